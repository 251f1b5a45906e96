"""Each kind of store as a fixture: a module of tests that takes one gives it a name of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ledger_files import file_store
from stored_conversations import KINDS, ME, write_behind_conversations

from elbowroom.context.conversation import Conversations
from elbowroom.store import Store


@pytest.fixture(params=KINDS)
async def conversations(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Conversations]:
    """A store of each kind."""
    path = tmp_path / "elbowroom.db"
    if request.param == "broken":
        path.mkdir()
    async with write_behind_conversations(None if request.param == "memory" else path) as kept:
        if request.param == "unwritable":
            assert await kept.rows(ME) == []
            await kept.refuse_writes()
        yield kept


@pytest.fixture(params=["file", "memory", "broken"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store in a file, one in memory, and one whose file cannot be opened."""
    path = tmp_path / "elbowroom.db"
    if request.param == "broken":
        path.mkdir()
    async with file_store(None if request.param == "memory" else path) as kept:
        yield kept
