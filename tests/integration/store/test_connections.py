"""One connection writes and waits for the disk; those that read can do nothing else."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from elbowroom.store.database import Database
from elbowroom.store.errors import StoreUnavailable
from ledger_files import query

FULL = 2


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """An open database with a table of its own."""
    database = await Database.open(tmp_path / "elbowroom.db")
    async with database.writing() as connection:
        await connection.exec_driver_sql("CREATE TABLE numbers (number INTEGER)")
    yield database
    await database.aclose()


async def test_what_is_acknowledged_is_on_the_disk(database: Database) -> None:
    """The connection that writes waits for the disk with each commit."""
    async with database.writing() as connection:
        assert (await connection.exec_driver_sql("PRAGMA synchronous")).scalar() == FULL
        assert (await connection.exec_driver_sql("PRAGMA journal_mode")).scalar() == "wal"


async def test_readers_cannot_write(database: Database) -> None:
    """Whatever a reader does, the file stays as it is."""
    with pytest.raises(StoreUnavailable, match="readonly"):
        async with database.reading() as connection:
            await connection.exec_driver_sql("INSERT INTO numbers VALUES (1)")
    assert query(database.path, "SELECT * FROM numbers") == []


async def test_one_thread_writes(database: Database) -> None:
    """A hundred who write at the same time come one after another, all on the same connection."""
    seen = set()

    async def write(number: int) -> None:
        async with database.writing() as connection:
            await connection.exec_driver_sql("INSERT INTO numbers VALUES (?)", (number,))
            seen.add(id((await connection.get_raw_connection()).driver_connection))

    await asyncio.gather(*map(write, range(100)))
    assert len(seen) == 1
    assert query(database.path, "SELECT count(*) FROM numbers") == [(100,)]


async def test_readers_see_what_was_there_when_they_began(database: Database) -> None:
    """Neither waits for the other, and who reads sees no half of what is written meanwhile."""
    async with database.reading() as reader:
        assert (await reader.exec_driver_sql("SELECT count(*) FROM numbers")).scalar() == 0
        async with database.writing() as writer:
            await writer.exec_driver_sql("INSERT INTO numbers VALUES (1)")
        assert (await reader.exec_driver_sql("SELECT count(*) FROM numbers")).scalar() == 0
    async with database.reading() as reader:
        assert (await reader.exec_driver_sql("SELECT count(*) FROM numbers")).scalar() == 1


async def test_the_log_is_written_into_the_file_at_the_end(tmp_path: Path) -> None:
    """A closed database is one file, which can be copied."""
    path = tmp_path / "elbowroom.db"
    await (await Database.open(path)).aclose()
    assert [file.name for file in tmp_path.iterdir()] == ["elbowroom.db"]  # noqa: ASYNC240  # a folder of two files
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    connection.close()
