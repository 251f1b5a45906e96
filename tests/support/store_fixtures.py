"""Stores of each kind, as fixtures: a module of tests that takes one gives it a name of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from stored_conversations import KINDS, ME, lasting_conversations

from elbowroom.context.conversation import Conversations
from elbowroom.store.conversations_memory import MemoryConversations


@pytest.fixture(params=KINDS)
async def conversations(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Conversations]:
    """A store of each kind."""
    if request.param == "memory":
        yield MemoryConversations()
        return
    path = tmp_path / "elbowroom.db"
    if request.param == "broken":
        path.mkdir()
    async with lasting_conversations(path) as lasting:
        if request.param == "unwritable":
            assert await lasting.rows(ME) == []
            await lasting.refuse_writes()
        yield lasting
