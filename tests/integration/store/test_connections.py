"""One connection writes and waits for the disk; the others read and can do nothing else, each on a thread."""

import asyncio
import errno
import os
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from ledger_files import query
from sqlalchemy import Connection, event, text

from elbowroom.context.conversation import ConversationBegun, Heard
from elbowroom.context.ledger import Entry
from elbowroom.context.memories import Memory
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.packed import packed, packed_entry
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.database import READERS, Database
from elbowroom.store.sql.dialect.words import waits_for_disk
from elbowroom.store.sql.search.text_index import TextIndex

NORMAL, FULL = 1, 2
COUNT = text("SELECT count(*) FROM numbers")
SAID = {"role": "user", "content": "Hello"}
ADD = text("INSERT INTO numbers VALUES (1)")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    """An open database with a table of its own."""
    database = await Database.open(tmp_path / "elbowroom.db")
    await database.write(lambda connection: connection.execute(text("CREATE TABLE numbers (number INTEGER)")))
    yield database
    await database.aclose()


def pragmas(connection: Connection) -> list[object]:
    """Return whether the connection waits for the disk, and the kind of its log."""
    return [connection.scalar(text(f"PRAGMA {name}")) for name in ("synchronous", "journal_mode")]


async def test_what_is_acknowledged_is_on_the_disk(database: Database) -> None:
    """The connection that writes waits for the disk with each commit, also after words that did not wait."""

    def at_once() -> list[object]:
        with database.writing_at_once() as connection:
            return pragmas(connection)

    assert await database.write(pragmas) == [FULL, "wal"]
    assert await database.do(at_once) == [NORMAL, "wal"]
    assert await database.keep_house(pragmas) == [NORMAL, "wal"]
    assert await database.write(pragmas) == [FULL, "wal"]


async def test_no_word_waits_for_the_house_to_be_kept(tmp_path: Path) -> None:
    """From a new file's first commit on no word waits for the disk behind another write.

    That is a start, the index, a limit, a compaction, the output of a tool, its use in a prompt, or a memory.
    """
    store = await SqlStore.open(tmp_path / "elbowroom.db")
    waiting = list[object]()

    def noted(connection: Connection) -> None:
        if waits_for_disk(connection):
            waiting.append(connection)

    event.listen(store._database._writer, "begin", noted)
    conversations = store.conversations
    await conversations.interrupt()
    await conversations.write([ConversationBegun("c", "", "", "", 1.0), Heard("c", "k", "", SAID, 1.0)])
    await TextIndex(store._database).step()
    assert await conversations.delete_some("c") in (True, False)
    entry = packed_entry(Entry("k", (SAID,), 1, 1, 1, "digest", 0.0), [SAID])
    assert entry is not None
    await store.ledger.save(entry)
    await store.ledger.delete_unused(0.0)
    output = packed("", "t", "a result")
    await store.tool_outputs.save(output)
    store.tool_outputs.name("", [output.ref.id])
    await store.memories.save("room", Memory("m", "kept", 1.0))
    await store.memories.delete("room", "m")
    await store._apply_limits()
    assert waiting == []
    await store.aclose()


@pytest.mark.fault("power loss", "streaming", "words are on the disk a moment after they were written")
async def test_a_busy_disk_keeps_no_word_waiting(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is busy with what was said before, more is written; all is brought to the disk in the end."""
    synced, is_free = list[int](), threading.Event()

    def fsync(descriptor: int) -> None:
        is_free.wait(10)
        synced.append(os.fstat(descriptor).st_size)

    def add() -> None:
        with database.writing_at_once() as connection:
            connection.execute(ADD)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(3):
        await database.do(add)
    assert await database.read(lambda connection: connection.scalar(COUNT)) == 3
    assert synced == []
    size = await asyncio.to_thread(os.path.getsize, f"{database.path}-wal")
    is_free.set()
    await database.aclose()
    assert synced[-1] == size


async def test_a_disk_that_fails_is_told_once(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the disk does not take what was written the log says so, and what is said goes on being written."""

    def fsync(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    def add() -> None:
        with database.writing_at_once() as connection:
            connection.execute(ADD)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(3):
        await database.do(add)
    await database.aclose()
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [
        "The disk does not take what was written; a power cut would take it back: Input/output error"
    ]


async def test_readers_cannot_write(database: Database) -> None:
    """Whatever a reader does, the file stays as it is."""
    with pytest.raises(StoreUnavailable, match="readonly"):
        await database.read(lambda connection: connection.execute(ADD))
    assert await database.read(lambda connection: connection.scalar(COUNT)) == 0


async def test_one_thread_writes_and_two_read(database: Database) -> None:
    """A hundred who write at the same time come one after another; those who read share two threads."""
    writing, reading = set(), set()

    def write(connection: Connection) -> None:
        connection.execute(ADD)
        writing.add((threading.get_ident(), id(connection.connection.driver_connection)))

    def read(connection: Connection) -> None:
        connection.scalar(COUNT)
        reading.add(threading.get_ident())

    await asyncio.gather(*(database.write(write) for _ in range(100)), *(database.read(read) for _ in range(100)))
    assert len(writing) == 1
    assert len(reading) <= READERS
    assert await database.read(lambda connection: connection.scalar(COUNT)) == 100


async def test_readers_see_what_was_there_when_they_began(database: Database) -> None:
    """Neither waits for the other, and who reads sees no half of what is written meanwhile."""
    has_begun, may_end = threading.Event(), threading.Event()

    def read_twice(connection: Connection) -> list[int | None]:
        first = connection.scalar(COUNT)
        has_begun.set()
        may_end.wait(60)
        return [first, connection.scalar(COUNT)]

    reading = asyncio.create_task(database.read(read_twice))
    await asyncio.to_thread(has_begun.wait, 60)
    await database.write(lambda connection: connection.execute(ADD))
    assert await database.read(lambda connection: connection.scalar(COUNT)) == 1
    may_end.set()
    assert await reading == [0, 0]


async def test_all_of_a_change_or_nothing(database: Database) -> None:
    """A change that fails on the way leaves nothing."""

    def fail(connection: Connection) -> None:
        connection.execute(ADD)
        connection.execute(text("SELECT * FROM nowhere"))

    with pytest.raises(StoreUnavailable, match="nowhere"):
        await database.write(fail)
    assert await database.read(lambda connection: connection.scalar(COUNT)) == 0


async def test_a_change_goes_on_whose_caller_has_gone(database: Database) -> None:
    """Cancelling a caller undoes nothing, and closing waits for the change."""
    may_end = threading.Event()

    def add(connection: Connection) -> None:
        may_end.wait(60)
        connection.execute(ADD)

    writing = asyncio.create_task(database.write(add))
    await asyncio.sleep(0)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    may_end.set()
    await database.aclose()
    assert database.path
    assert query(database.path, "SELECT count(*) FROM numbers") == [(1,)]
    with pytest.raises(StoreUnavailable, match="closed"):
        await database.read(lambda connection: connection.scalar(COUNT))


async def test_the_log_is_written_into_the_file_at_the_end(tmp_path: Path) -> None:
    """A closed database is one file, which can be copied."""
    path = tmp_path / "elbowroom.db"
    await (await Database.open(path)).aclose()
    assert os.listdir(tmp_path) == ["elbowroom.db"]
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.threat("secrets at rest", "files for the owner alone")
@pytest.mark.skipif(os.name == "nt", reason="Windows has other rights")
async def test_only_the_owner_can_read_what_is_made(tmp_path: Path) -> None:
    """The file and what belongs to it are for the owner alone, and so is a folder that is made."""
    path = tmp_path / "data" / "elbowroom.db"
    database = await Database.open(path)
    await database.write(lambda connection: connection.execute(text("CREATE TABLE numbers (number INTEGER)")))
    modes = {name: os.stat(path.parent / name).st_mode & 0o777 for name in os.listdir(path.parent)}
    assert modes == {"elbowroom.db": 0o600, "elbowroom.db-wal": 0o600, "elbowroom.db-shm": 0o600}
    assert os.stat(path.parent).st_mode & 0o777 == 0o700
    await database.aclose()


ENDLESS = text("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")


async def begun_searches(database: Database, how_many: int) -> list[asyncio.Task[int | None]]:
    """Begin searches that never end by themselves, and wait until one is under way."""
    has_begun = threading.Event()

    def search(connection: Connection) -> int | None:
        has_begun.set()
        found: int | None = connection.scalar(ENDLESS)
        return found

    searches = [asyncio.create_task(database.search(search)) for _ in range(how_many)]
    await asyncio.to_thread(has_begun.wait, 60)
    return searches


@pytest.mark.fault("search beside chats", "first", "ends when its client leaves")
async def test_a_search_that_nobody_waits_for_ends(database: Database) -> None:
    """Searches take no thread that reads, and the next one runs as soon as the callers of all before are gone."""
    searches = await begun_searches(database, READERS + 2)
    assert await database.read(lambda connection: connection.scalar(COUNT)) == 0
    for search in searches:
        search.cancel()
    async with asyncio.timeout(60):
        assert await database.search(lambda connection: connection.scalar(COUNT)) == 0


async def test_closing_ends_a_search(database: Database) -> None:
    """A search that is under way or waits does not keep the database open; its caller learns that."""
    searches = await begun_searches(database, 2)
    async with asyncio.timeout(60):
        await database.aclose()
        results = await asyncio.gather(*searches, return_exceptions=True)
    assert all(isinstance(result, StoreUnavailable) for result in results)
