"""The rows of the ledger in an SQLite file."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from ledger_samples import compaction, conversation, spoken

from elbowroom.store.ledger_rows import SqlLedgerRows

DAY = 86400.0


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock of one's own."""
    return Clock()


Opened = Callable[..., AbstractAsyncContextManager[SqlLedgerRows]]


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Opened:
    """Open the same file again and again."""

    @asynccontextmanager
    async def open_rows(retention_days: int = 0) -> AsyncIterator[SqlLedgerRows]:
        rows = await SqlLedgerRows.open(tmp_path / "elbowroom.db", retention_days, clock)
        try:
            yield rows
        finally:
            await rows.aclose()

    return open_rows


async def test_what_was_saved_is_found_again(opened: Opened) -> None:
    """An entry comes back equal to what was saved; keys that are not there are not found."""
    entry, archive = compaction(conversation(3), 4)
    async with opened() as rows:
        assert list(await rows.keys()) == []
        await rows.save(entry, archive)
        assert list(await rows.keys()) == [entry.key]
        assert await rows.find([entry.key, "other"]) == [entry]
        assert await rows.find(["other"]) == []
    async with opened() as rows:
        assert list(await rows.keys()) == [entry.key]
        assert await rows.find(["other", entry.key, entry.key]) == [entry]
        assert await rows.archived(entry.key) == spoken(conversation(3), 4)
        assert await rows.archived("other") == []
