"""How a file is opened: without being read, checked later after a crash, and for reading where it cannot be written."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chatting import eventually
from kept_outputs import ME, written_down
from ledger_files import file_store, query, sql_of
from ledger_samples import compaction, conversation
from sqlalchemy import Engine, event
from stored_conversations import messages_of, turn_messages, user, whole, write_behind_conversations

from elbowroom.store import Store
from elbowroom.store.base import StoreDamaged, StoreUnavailable
from elbowroom.store.inspection import inspect_file
from elbowroom.store.lock import doubt_about, note_doubt
from elbowroom.store.sql import SqlStore, database
from elbowroom.store.sql.dialect import check
from elbowroom.store.write_behind import Patience

WAL_HEADER = 32
SAID = [user("What is in the note?"), *turn_messages("c-t")]
UNWRITABLE = (
    "Conversations cannot be saved at the moment: its file or folder cannot be written. The chat goes on, and what is "
    "new is kept in memory until that works again."
)
LARGE_FILE_BYTES, LONGEST_OPENING = 10**9, 0.2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "elbowroom.db"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads in which the whole file was checked, in order."""
    found = list[str]()

    def noted(*given: Any) -> None:
        found.append(threading.current_thread().name)
        check(*given)

    monkeypatch.setattr("elbowroom.store.sql.database.check", noted)
    return found


async def filled(path: Path, text: str = "What is in the note?") -> None:
    """Keep something of every kind in a file, and close it."""
    async with file_store(path) as store:
        await store.ledger.save(*compaction(conversation(3)))
        await store.tool_outputs.keep(ME, "read", text)
        await store.memories.save(ME, "agent", "likes tea", 1.0)
        store.conversations.note(whole("c", text))
        assert await store.conversations.settled()


async def left_by_a_crash(path: Path, text: str = "What is in the note?") -> None:
    """Make the files that a process leaves which is killed: the database with its log."""
    running = path.with_name("running.db")
    async with file_store(running) as store:
        store.conversations.note(whole("c", text))
        assert await store.conversations.settled()
        for companion in ("", "-wal"):
            await asyncio.to_thread(shutil.copy, f"{running}{companion}", f"{path}{companion}")


def damage(path: Path) -> None:
    """Break a page of the file that is the first to be read by nobody but a check."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'step_usage'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x5a" * size)


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Let a check of the file wait for this event."""
    goes_on = threading.Event()

    def waiting(*given: Any) -> None:
        goes_on.wait(30)
        check(*given)

    monkeypatch.setattr("elbowroom.store.sql.database.check", waiting)
    yield goes_on
    goes_on.set()


async def checked(store: Store) -> None:
    """Wait until the file of a store is checked."""
    await store.ledger.keys()
    checking = sql_of(store)._checking
    if checking is not None:
        await checking


async def test_opening_reads_nothing_but_keys(path: Path, checks: list[str]) -> None:
    """Neither is the file checked nor a table read: what opening takes does not depend on what is kept."""
    await filled(path)
    plans: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *rest: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "DELETE", "UPDATE")):
            plans.extend(row[3] for row in connection.connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        store = await SqlStore.open(path)
        read = list(plans)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    await store.aclose()
    assert [plan for plan in read if plan.startswith("SCAN") and "COVERING INDEX" not in plan] == [
        "SCAN schema_version"
    ]
    assert checks == []


@pytest.mark.long
async def test_a_large_file_opens_at_once(path: Path) -> None:
    """A file of a gigabyte takes no longer than 200 ms, also one that a crash has left, and takes words meanwhile."""
    await left_by_a_crash(path)
    await asyncio.to_thread(_grow, path)
    await asyncio.to_thread(path.with_name(f"{path.name}-wal").write_bytes, b"\0" * WAL_HEADER)
    async with write_behind_conversations(path) as conversations:
        began = time.monotonic()
        assert await conversations._store.opening_ended(60)
        took = time.monotonic() - began
        conversations.note(whole("new"))
        assert await conversations.settled()
        written = time.monotonic() - began - took
        assert conversations.sql._database.is_unchecked
    await asyncio.to_thread(path.unlink)
    assert (took < LONGEST_OPENING, written < LONGEST_OPENING) == (True, True), (took, written)


def _grow(path: Path) -> None:
    """Make a file large by pages of a table that elbowroom knows."""
    with sqlite3.connect(path) as connection:
        for number in range(LARGE_FILE_BYTES // 10**7):
            connection.execute(
                "INSERT INTO tool_output_chunks VALUES ('nobody', ?, 1, 1, zeroblob(10000000))", [str(number)]
            )
            connection.commit()
    connection.close()


async def test_after_a_crash_it_is_checked_while_it_works(
    path: Path, held: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    """What is said meanwhile is written; the log says what was found, and after a proper end nothing is checked."""
    caplog.set_level("INFO", logger="elbowroom.store")
    await left_by_a_crash(path)
    async with file_store(path) as store:
        assert await messages_of(store.conversations, "c") == SAID
        store.conversations.note(whole("new"))
        assert await store.conversations.settled()
        assert doubt_about(path) == "unclean"
        held.set()
        await checked(store)
        assert store.news() == []
    assert doubt_about(path) is None
    (told,) = [told for told in caplog.messages if "the clock was set" not in told]  # its rows are of long ago
    assert told.startswith(
        f"The store {path} was not closed when elbowroom last ended. It has been checked and is sound"
    )
    async with file_store(path) as store:
        await checked(store)
        assert sql_of(store)._checking is None
    assert caplog.messages == [told]


async def test_a_check_that_was_stopped_is_made_up_for(path: Path, checks: list[str]) -> None:
    """A process that ends before the check has come to its end, and in good order, leaves it to the next one."""
    await left_by_a_crash(path)
    async with file_store(path) as store:
        await store.ledger.keys()
        sql_of(store)._database.stop_check()
        sql_of(store)._database._last_asked = time.monotonic()
        await checked(store)
        note_doubt(path, "unclean")  # a file as small as this one is checked before anybody can stop that
    async with file_store(path) as store:
        await checked(store)
    assert checks == ["store-checker"] * 2
    assert doubt_about(path) is None


async def test_a_check_gives_way(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While somebody asks or says something it rests, every few milliseconds; else it does not, and it can be ended."""
    await filled(path)
    opened = await database.Database.open(path)
    rested: list[float] = []
    monkeypatch.setattr(opened._is_check_over, "wait", rested.append)
    await opened.read(lambda _: None)
    assert not opened._gives_way()
    opened._last_asked -= database.ASKED_SECONDS
    assert not opened._gives_way()
    assert rested == [database.REST_SECONDS]
    opened.stop_check()
    assert opened._gives_way()
    await opened.aclose()


async def test_damage_after_a_crash_is_found_in_the_background(path: Path, held: threading.Event) -> None:
    """It is told, the file is set aside, a new one is begun, and what is said from then on is kept."""
    await left_by_a_crash(path)
    damage(path)
    note_doubt(path, "unclean")
    async with file_store(path) as store:
        assert await messages_of(store.conversations, "c") == SAID
        held.set()
        await eventually(lambda: list(path.parent.glob("*.damaged-*")), "it is not set aside", seconds=20)
        store.conversations.note(whole("new"))
        await eventually(lambda: not store.is_failing, "it does not work again")
        assert [row.id for row in await store.conversations.rows(ME)] == ["new"]
        assert len(await messages_of(store.conversations, "new")) == 4
        failed, told, *_ = store.news()
    assert "its file is damaged" in failed
    (aside,) = path.parent.glob("*.damaged-*")
    assert told.startswith(f"The database of conversations was damaged. It is kept as {aside.name} ")
    assert query(path, "SELECT id FROM conversations") == [("new",)]
    assert doubt_about(path) is None


async def test_what_cannot_be_read_is_checked_with_the_next_opening(path: Path, checks: list[str]) -> None:
    """Who comes upon damage makes the whole file be read before it is used again; a sound file stays where it is."""
    await filled(path)
    opened = await database.Database.open(path)

    def broken(_: object) -> None:
        raise StoreDamaged("a page is broken")

    with pytest.raises(StoreDamaged):
        await opened.read(broken)
    await opened.aclose()
    assert doubt_about(path) == "suspected"
    async with file_store(path) as store:
        assert len(await store.ledger.keys()) == 1
        assert checks == [checks[0]] != ["store-checker"]
    assert doubt_about(path) is None
    assert list(path.parent.glob("*.damaged-*")) == []


async def test_of_a_newer_file_only_the_version_is_read(path: Path, checks: list[str]) -> None:
    """However often it is tried, and also after a crash."""
    await left_by_a_crash(path)
    query(path, "UPDATE schema_version SET version = 99")
    await asyncio.to_thread(path.with_name(f"{path.name}-wal").write_bytes, b"\0" * WAL_HEADER)
    for _ in range(3):
        with pytest.raises(StoreUnavailable, match="newer elbowroom"):
            await SqlStore.open(path)
    assert checks == []


async def test_a_file_that_cannot_be_written_is_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept and what is new are told together, a person reads why once, and all is written once it can be."""
    await filled(path)
    monkeypatch.setattr(database, "may_be_written", lambda _: False)
    async with file_store(path, Patience(opening=30, again=0.05, closing=30)) as store:
        assert [row.id for row in await store.conversations.rows(ME)] == ["c"]
        assert store.news() == []
        before = sql_of(store)
        for name in ("new", "newer"):
            store.conversations.note(whole(name))
            assert not await store.conversations.settled()
        await store.memories.save(ME, "agent", "likes cake", 2.0)
        assert [row.id for row in await store.conversations.rows(ME)] == ["newer", "new", "c"]
        assert len(await store.conversations.rows(ME, search="in the note")) == 3
        assert await messages_of(store.conversations, "c") == SAID
        assert len(await store.ledger.keys()) == 1
        assert await written_down(store.memories) == ["likes cake", "likes tea"]
        assert store.news() == [UNWRITABLE]
        assert sql_of(store) is before
        assert query(path, "SELECT count(*) FROM conversations") == [(1,)]
        monkeypatch.undo()
        async with asyncio.timeout(20):
            while not await store.conversations.settled():  # noqa: ASYNC110  # what is waited for knows no events
                await asyncio.sleep(0.02)
        assert [row.id for row in await store.conversations.rows(ME)] == ["newer", "new", "c"]
    assert query(path, "SELECT count(*) FROM conversations") == [(3,)]


async def test_an_older_file_that_cannot_be_written_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tables would have to be changed first; the person reads that."""
    await filled(path)
    query(path, "UPDATE schema_version SET version = 1")
    monkeypatch.setattr(database, "may_be_written", lambda _: False)
    with pytest.raises(StoreUnavailable, match="it has not the tables of this version") as refusal:
        await SqlStore.open(path)
    assert refusal.value.plainly == "its file or folder cannot be written"


READ_ONLY = """
import asyncio, logging, os, sys
from pathlib import Path
from kept_outputs import ME
from ledger_files import file_store
from stored_conversations import messages_of, whole

async def use(path):
    async with file_store(path) as store:
        store.conversations.note(whole("new"))
        assert not await store.conversations.settled()
        assert {row.id for row in await store.conversations.rows(ME)} == {"new", "c"}
        assert len(await messages_of(store.conversations, "c")) == 4

logging.basicConfig(format="%(levelname)s %(message)s")
if os.geteuid() == 0:  # nothing is read-only to root
    os.setuid(65534)
asyncio.run(use(Path(sys.argv[1])))
"""


@pytest.mark.slow
@pytest.mark.fault("read-only folder", "first", "what was kept is read")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
@pytest.mark.parametrize("only", ["folder", "file", pytest.param("both", marks=pytest.mark.long)])
async def test_a_folder_or_file_without_the_right_to_write(only: str) -> None:
    """In a read-only folder, or with a read-only file, earlier conversations are there; the log says so once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "elbowroom.db"
        await filled(path)
        os.chmod(path, 0o666 if only == "folder" else 0o444)
        os.chmod(folder, 0o777 if only == "file" else 0o555)
        support = str(Path(__file__).parents[2] / "support")
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
        command = [sys.executable, "-W", "error", "-c", READ_ONLY, str(path)]
        done = await asyncio.to_thread(subprocess.run, command, env=environ, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, last = done.stderr.splitlines()
    assert first.startswith(f"ERROR The store {path} does not work: ")
    assert last.endswith("batches of what was said in conversations that are lost: 1.")


def test_a_doctor_tells_of_a_crash(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file is too large to be read in a few seconds, the doctor says that elbowroom is going to check it."""
    asyncio.run(filled(path, "x" * 3_000_000))
    monkeypatch.setattr("elbowroom.store.inspection.CHECK_SECONDS", 0.0)
    monkeypatch.setattr("elbowroom.store.inspection.STEPS_BETWEEN_LOOKS", 1)
    assert "elbowroom checks it" not in inspect_file(path).detail
    note_doubt(path, "unclean")
    found = inspect_file(path)
    assert found.state == "unchecked"
    assert found.detail.endswith("it was not closed when elbowroom last ended, and elbowroom checks it while it runs")


@pytest.mark.fault("search beside chats", "first", "a turn has a reader of its own")
async def test_a_turn_waits_for_nobody_who_reads_or_searches(path: Path) -> None:
    """While others export conversations and search, the conversation of a turn and its compactions are found."""
    await filled(path)
    goes_on = threading.Event()
    async with write_behind_conversations(path) as conversations:
        await conversations.queue()
        opened = conversations.sql._database
        others: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(opened.browse(lambda _: goes_on.wait(30))) for _ in range(10)
        ]
        others.append(asyncio.ensure_future(opened.search(lambda _: goes_on.wait(30))))
        others.append(asyncio.ensure_future(conversations.read(ME, "c")))
        found = await asyncio.wait_for(conversations.look_up(ME, "", ["c.1", "c.2", "new"], 1), 60)
        assert found is not None
        assert found.conversation == "c"
        assert len(await asyncio.wait_for(conversations.turns("c", ["c.2"]), 60)) == 1
        assert not any(other.done() for other in others)
        goes_on.set()
        await asyncio.gather(*others)
