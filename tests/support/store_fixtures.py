"""Each kind of store as a fixture: a module of tests that takes one gives it a name of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from ledger_files import file_store
from postgresql import new_place
from spread_variants import sample
from stored_conversations import KINDS, ME, write_behind_conversations

from elbowroom.store import Store
from elbowroom.store.place import Place
from elbowroom.store.questions import Conversations


@pytest.fixture(params=sample(KINDS, *(kind for kind in KINDS if kind not in ("memory", "broken"))))
async def conversations(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Conversations]:
    """A store of each kind; the quick tests spare those that keep all in memory."""
    async with _place(request.param, tmp_path) as place, write_behind_conversations(place) as kept:
        if request.param == "unwritable":
            assert await kept.rows(ME) == []
            await kept.refuse_writes()
        yield kept


@pytest.fixture(params=sample(["file", "memory", "broken", "postgresql"], "file", "broken", "postgresql"))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store in a file, one in memory, one whose file cannot be opened, and one on a PostgreSQL server."""
    async with _place(request.param, tmp_path) as place, file_store(place) as kept:
        yield kept


@asynccontextmanager
async def _place(kind: str, folder: Path) -> AsyncIterator[Place]:
    """Give the place of a store of this kind."""
    if kind == "postgresql":
        async with new_place() as place:
            yield place
        return
    path = folder / "elbowroom.db"
    if kind == "broken":
        path.mkdir()
    yield None if kind == "memory" else path
