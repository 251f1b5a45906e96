"""When the file is damaged, held, read-only or full, chats go on, and what could not be written is not lost."""

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chatting import eventually
from kept_outputs import ME, read, text_of, written_down
from ledger_files import (
    SOON,
    bytes_of,
    file_store,
    held_by_another_program,
    keys_in,
    query,
    save_entry,
    save_until_written,
    sql_store,
)
from ledger_samples import compaction, conversation
from stored_conversations import (
    OwnConversations,
    begun,
    heard,
    messages_of,
    queued,
    turn_messages,
    user,
    whole,
    write_behind_conversations,
)

from elbowroom.context.conversation import Queued, ReplyGrew
from elbowroom.context.ledger import Entry
from elbowroom.store import Store
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.conversations import LATEST_SECONDS, MOST_CHANGES, PAUSE_SECONDS
from elbowroom.store.sql import SqlStore
from elbowroom.store.write_behind import Patience, WriteBehindStore

FULL_DISK = """
import asyncio, random, resource, sys
from pathlib import Path
from kept_outputs import ME, text_of, written_down
from ledger_files import file_store, keys_in, query, save_until_written
from ledger_samples import compaction, conversation
from stored_conversations import messages_of, whole

def limit(size):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size or most, most))

async def main(path):
    samples = [compaction(conversation(100, f"subject {number}" * 20)) for number in range(20)]
    samples = [(type(entry)(entry.key, tuple(made_from), 1, 1, 1, "plan", 0.0), ()) for entry, made_from in samples]
    texts = [random.Random(number).randbytes(30_000).hex() for number in range(20)]
    async with file_store(path) as store:
        conversations = store.conversations
        await store.ledger.save(*samples[0])
        refs = [await store.tool_outputs.keep(ME, "read", texts[0])]
        await store.memories.save(ME, "agent", "before", 0.0)
        conversations.note(whole("c0"))
        assert await conversations.settled()
        limit(400_000)
        acknowledged = []
        for number in range(1, 20):
            entry, _ = samples[number]
            await store.ledger.save(entry, ())
            assert await store.ledger.find([entry.key]) == [entry]
            refs.append(await store.tool_outputs.keep(ME, "read", texts[number]))
            conversations.note(whole(f"c{number}", "x" * 20_000))
            if await conversations.settled():
                acknowledged.append(number)
            assert len(await messages_of(conversations, f"c{number}")) == 4
        await store.memories.save(ME, "agent", "meanwhile", 1.0)
        assert len(acknowledged) < 19
        everything = {entry.key for entry, _ in samples}
        assert set(await store.ledger.keys()) == everything
        assert samples[0][0].key in keys_in(path) < everything
        assert [await text_of(store.tool_outputs, ref.id) for ref in refs] == texts
        assert await written_down(store.memories) == ["meanwhile", "before"]
        assert len(await conversations.rows(ME)) == 20
        limit(0)
        await save_until_written(store, path, *compaction(conversation(1)))
        while not await conversations.settled():
            await asyncio.sleep(0.02)
    assert everything < keys_in(path)
    assert {ref_id for (ref_id,) in query(path, "SELECT id FROM tool_outputs")} == {ref.id for ref in refs}
    assert query(path, "SELECT count(*) FROM memories") == [(2,)]
    async with file_store(path) as store:
        assert len(await store.conversations.rows(ME)) == 20
        for number in range(20):
            assert len(await messages_of(store.conversations, f"c{number}")) == 4

asyncio.run(main(Path(sys.argv[1])))
"""
READ_ONLY = """
import asyncio, logging, os, sys, tempfile
from pathlib import Path
from kept_outputs import ME, text_of, written_down
from ledger_files import file_store
from ledger_samples import compaction, conversation
from stored_conversations import messages_of, whole

async def use(path, is_durable):
    async with file_store(path) as store:
        entry, made_from = compaction(conversation(2))
        await store.ledger.save(entry, made_from)
        assert await store.ledger.find([entry.key]) == [entry]
        assert list(await store.ledger.keys()) == [entry.key]
        ref = await store.tool_outputs.keep(ME, "read", "text")
        assert await text_of(store.tool_outputs, ref.id) == "text"
        await store.memories.save(ME, "agent", "likes tea", 0.0)
        assert await written_down(store.memories) == ["likes tea"]
        store.conversations.note(whole("c"))
        assert await store.conversations.settled() == is_durable
        assert len(await messages_of(store.conversations, "c")) == 4

logging.basicConfig(format="%(levelname)s %(message)s")
if os.geteuid() == 0:  # nothing is read-only to root
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(use(Path(folder, "first.db"), True))  # everything is imported by this
    os.setuid(65534)
asyncio.run(use(Path(sys.argv[1]), False))
"""
SPOIL = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as connection:  # what others change is read from the file again
    connection.execute("PRAGMA user_version = 1")
connection.close()
with open(sys.argv[1], "r+b") as file:
    file.seek(8192)
    file.write(b"\\x5a" * 40_000)
"""


def overwrite(start: int, content: bytes) -> Callable[[Path], None]:
    """Return what breaks a file by writing these bytes over it."""

    def damage(path: Path) -> None:
        whole = bytearray(path.read_bytes())
        whole[start : start + len(content)] = content
        path.write_bytes(bytes(whole))

    return damage


def cut(size: int) -> Callable[[Path], None]:
    """Return what breaks a file by leaving only its beginning."""
    return lambda path: os.truncate(path, size)


DAMAGES = {
    "header": overwrite(0, b"\xde\xad\xbe\xef" * 25),
    "another file": lambda path: path.write_text("Dear diary", encoding="utf-8"),
    "first page": overwrite(100, b"\xff" * 3000),
    "middle": overwrite(8192, b"\x5a" * 40_000),
    "half": cut(30_000),
    "few bytes": cut(50),
}


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a moment for another program that holds the file."""
    monkeypatch.setattr("elbowroom.store.sql.dialect.sqlite.BUSY_MILLISECONDS", 50)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "elbowroom.db"


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of this file in a process of its own."""
    support = str(Path(__file__).parents[2] / "support")
    command = [sys.executable, "-W", "error", "-c", script, str(path)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=100)


async def filled(path: Path) -> set[str]:
    """Write a store of some size; return the keys of its entries."""
    samples = [compaction(conversation(30, f"subject {number}")) for number in range(10)]
    async with sql_store(path) as sql:
        for entry, made_from in samples:
            await save_entry(sql, Entry(entry.key, tuple(made_from), 1, 1, 1, "plan", 0.0))
    return {entry.key for entry, _ in samples}


def set_aside(path: Path) -> list[Path]:
    """Return the files that were set aside, without what belongs to them."""
    return [file for file in path.parent.glob("*.damaged-*") if not file.name.endswith(("-wal", "-shm"))]


def put_a_folder_at(path: Path) -> None:
    """Let there be a folder where the file should be."""
    path.mkdir()


async def until_settled(store: Store) -> None:
    """Wait until everything that was said is written."""
    deadline = time.monotonic() + 60
    while not await store.conversations.settled():
        assert time.monotonic() < deadline, "it was never written"
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
async def test_a_damaged_file_is_set_aside(
    path: Path, damage: Callable[[Path], object], caplog: pytest.LogCaptureFixture
) -> None:
    """It keeps its bytes under a name with the date, a new one is begun, and the log tells both names."""
    await filled(path)
    damage(path)
    broken = bytes_of(path)
    entry, made_from = compaction(conversation(2))
    async with file_store(path) as store:
        assert list(await store.ledger.keys()) == []
        await store.ledger.save(entry, made_from)
    assert keys_in(path) == {entry.key}
    (aside,) = set_aside(path)
    assert bytes_of(aside) == broken
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert f"The store {path} is damaged" in record.getMessage()
    assert str(aside) in record.getMessage()


async def test_a_sound_store_says_nothing(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As long as nothing fails the log is silent."""
    caplog.set_level("INFO", logger="elbowroom")
    for number in range(2):
        async with file_store(path) as store:
            await store.ledger.save(*compaction(conversation(2, f"subject {number}")))
            store.conversations.note(whole(f"c{number}"))
    assert len(keys_in(path)) == 2
    assert [told for told in caplog.messages if "the clock was set" not in told] == []  # its rows are of long ago


async def test_an_entry_that_the_database_refuses_holds_up_no_other(path: Path) -> None:
    """One that cannot be written stays in memory, and those that came after it are written all the same."""
    refused = Entry("refused", (), 2**80, 1, 1, "digest", 0.0)
    entry, made_from = compaction(conversation(2))
    async with file_store(path) as store:
        await store.ledger.save(refused, [])
        await save_until_written(store, path, entry, made_from)
        assert set(await store.ledger.keys()) == {"refused", entry.key}
        assert await store.ledger.find(["refused"]) == [refused]
    assert keys_in(path) == {entry.key}


async def test_an_empty_file_is_a_new_one(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file without a byte in it is no damage."""
    query(path, "PRAGMA user_version")  # which makes one
    assert bytes_of(path) == b""
    async with sql_store(path) as sql:
        assert list(sql.ledger.last_used) == []
    assert not caplog.records
    assert not set_aside(path)


async def test_files_set_aside_never_overwrite_each_other(path: Path) -> None:
    """Two damages within a second give two files."""
    for _ in range(3):
        await filled(path)
        DAMAGES["header"](path)
        async with sql_store(path):
            pass
    assert len(set_aside(path)) == 3


async def test_damage_while_the_store_is_open(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Reading damaged pages finds nothing and raises nothing; the file is set aside and saving goes on."""
    keys = await filled(path)
    async with file_store(path) as store:
        assert set(await store.ledger.keys()) == keys
        store.conversations.note([change for number in range(30) for change in whole(f"c{number}", "x" * 5000)])
        assert await store.conversations.settled()
        assert (await asyncio.to_thread(run, SPOIL, path)).returncode == 0
        for number, key in enumerate(keys):
            await store.ledger.find([key])
            await store.conversations.read(ME, f"c{number}")
            await store.conversations.rows(ME, search="note")
        entry, made_from = compaction(conversation(2))
        await save_until_written(store, path, entry, made_from)
        store.conversations.note(whole("new"))
        await until_settled(store)
        assert list(await store.ledger.keys()) == [entry.key]
        assert len(await messages_of(store.conversations, "new")) == 4
    assert len(set_aside(path)) == 1
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]


async def test_a_file_held_by_another_program(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """As long as it is held, all kinds are in memory; then all of them are in the file. Each is said once."""
    caplog.set_level("INFO", logger="elbowroom.store.write_behind")
    keys = await filled(path)
    async with file_store(path) as store:
        old = await store.tool_outputs.keep(ME, "read", "old")
        forgotten = await store.memories.save(ME, "agent", "is tired", 0.0)
        store.conversations.note(whole("before"))
    samples = [compaction(conversation(3, f"meanwhile {number}")) for number in range(3)]
    async with file_store(path, Patience(opening=30, again=0.2, closing=30)) as store:
        with held_by_another_program(path):
            assert list(await store.ledger.keys()) == []
            for entry, made_from in samples:
                await store.ledger.save(entry, made_from)
                assert await store.ledger.find([entry.key, *keys]) == [entry]
            new = await store.tool_outputs.keep(ME, "read", "new")
            await store.memories.save(ME, "agent", "likes tea", 1.0)
            assert await text_of(store.tool_outputs, new.id) == "new"
            assert await store.tool_outputs.find(ME, old.id) is None
            assert await read(store.tool_outputs, old.id) == []
            assert await written_down(store.memories) == ["likes tea"]
            assert not await store.memories.delete(ME, "agent", forgotten.id)
            store.conversations.note([*whole("meanwhile"), Queued(queued("q", "meanwhile"))])
            assert not await store.conversations.settled()
            assert len(await messages_of(store.conversations, "meanwhile")) == 4
            assert [item.id for item in await store.conversations.queue()] == ["q"]
        last = compaction(conversation(1))
        await save_until_written(store, path, *last)
        await until_settled(store)
        everything = {*keys, last[0].key, *(entry.key for entry, _ in samples)}
        assert set(await store.ledger.keys()) == everything
        assert {row.id for row in await store.conversations.rows(ME)} == {"before", "meanwhile"}
        assert (await messages_of(store.conversations, "meanwhile"))[1:] == turn_messages("meanwhile-t")
        assert await text_of(store.tool_outputs, old.id) == "old"
        assert await written_down(store.memories) == ["likes tea", "is tired"]
        assert await store.memories.delete(ME, "agent", forgotten.id)
    assert keys_in(path) == everything
    assert len(query(path, "SELECT id FROM tool_outputs")) == 2
    assert query(path, "SELECT text FROM memories") == [('"likes tea"',)]
    assert [(record.levelname, record.getMessage().split(": ")[0]) for record in caplog.records] == [
        ("ERROR", f"The store {path} does not work"),
        ("INFO", f"The store {path} works again."),
    ]


async def test_a_file_that_is_held_while_it_is_open(path: Path) -> None:
    """An open store whose file another program takes goes on from memory; what is deleted meanwhile goes later."""
    first, second = compaction(conversation(1, "first")), compaction(conversation(1, "second"))
    async with file_store(path) as store:
        await store.ledger.save(*first)
        memory = await store.memories.save(ME, "agent", "is tired", 0.0)
        blocker = sqlite3.connect(path, isolation_level=None)
        blocker.execute("BEGIN IMMEDIATE")
        await store.ledger.save(*second)
        assert await store.ledger.find([second[0].key, first[0].key]) == [second[0], first[0]]
        assert await store.memories.delete(ME, "agent", memory.id)
        assert not await store.memories.delete(ME, "agent", memory.id)
        assert await written_down(store.memories) == []
        assert query(path, "SELECT count(*) FROM ledger_entries") == [(1,)]
        assert query(path, "SELECT count(*) FROM memories") == [(1,)]
        blocker.execute("ROLLBACK")
        blocker.close()
    assert keys_in(path) == {first[0].key, second[0].key}
    assert query(path, "SELECT count(*) FROM memories") == [(0,)]


async def test_conversations_in_a_file_that_refuses_changes_for_a_while(path: Path) -> None:
    """What was there is read together with what waits, also in one conversation, and written once that works."""
    changes = whole("c")
    async with write_behind_conversations(path) as conversations:
        conversations.note([*whole("old"), *changes[:9]])
        assert await conversations.settled()
        await conversations.refuse_writes()
        for change in [*changes[9:], *begun("new")]:
            conversations.note([change])
        assert await messages_of(conversations, "c") == [user("What is in the note?"), *turn_messages("c-t")]
        assert [row.id for row in await conversations.rows(ME)] == ["new", "old", "c"]
        assert await conversations.delete(ME, "old")
        assert [row.id for row in await conversations.rows(ME)] == ["new", "c"]
        assert not await conversations.settled()
        await conversations.take_writes()
        assert await conversations.settled()
    async with write_behind_conversations(path) as conversations:
        assert await messages_of(conversations, "c") == [user("What is in the note?"), *turn_messages("c-t")]
        assert [row.id for row in await conversations.rows(ME)] == ["new", "c"]


async def test_a_deletion_that_cannot_be_written_is_tried_again(path: Path) -> None:
    """It has its time, also where nobody says or asks anything more."""
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("old"))
        assert await conversations.settled()
        await conversations.refuse_writes()
        assert await conversations.delete(ME, "old")
        assert conversations._timer or conversations._writing
        await conversations.take_writes()


async def test_questions_while_what_waits_is_being_written(path: Path) -> None:
    """Whoever asks while the file begins to work again gets all that was noted, once, and nothing fails."""
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("c"))
        assert await conversations.settled()
        await conversations.refuse_writes()
        conversations.note(whole("d"))
        listing = [asyncio.create_task(conversations.rows(ME)) for _ in range(10)]
        await conversations.take_writes()
        reading = [asyncio.create_task(messages_of(conversations, "d")) for _ in range(10)]
        for rows in await asyncio.gather(*listing):
            assert [row.id for row in rows] == ["d", "c"]
        for said in await asyncio.gather(*reading):
            assert said == [user("What is in the note?"), *turn_messages("d-t")]
        assert await conversations.settled()
        assert not conversations._store.is_failing


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.long)], ids=["some", "each"])
@pytest.mark.parametrize("can_be_read", [False, True])
async def test_questions_that_are_cancelled_while_what_waits_is_looked_through(
    path: Path, step: int, *, can_be_read: bool
) -> None:
    """Wherever a question is cancelled, the next answer has each word once, and no thread stays."""
    if not can_be_read:
        put_a_folder_at(path)
    async with write_behind_conversations(path, Patience(opening=5, again=3600, closing=5)) as conversations:
        await conversations.rows(ME)
        if can_be_read:
            await conversations.refuse_writes()
        for number in range(0, 60, step):
            name = f"c{number}"
            conversations.note(whole(name))
            question = asyncio.create_task(conversations.read(ME, name))
            for _ in range(number):
                await asyncio.sleep(0.0005)
            question.cancel()
            await asyncio.gather(question, return_exceptions=True)
            assert await messages_of(conversations, name) == [user("What is in the note?"), *turn_messages(f"{name}-t")]
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("store")] == []


async def test_closing_tells_what_could_not_be_written(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is only in memory when elbowroom ends is counted in the log."""
    put_a_folder_at(path)
    async with file_store(path) as store:
        await store.ledger.save(*compaction(conversation(1)))
        await store.ledger.save(*compaction(conversation(2)))
        store.conversations.note(whole("c"))
        assert not await store.conversations.settled()
    assert caplog.messages[-2:] == [
        f"The store {path} could not be written: compactions that are lost: 2.",
        f"The store {path} could not be written: batches of what was said in conversations that are lost: 1.",
    ]


async def test_all_turns_share_one_timer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many turns have words, one timer runs until they are written together, and none while nothing is said."""
    loop, timers = asyncio.get_running_loop(), []
    async with write_behind_conversations(path) as conversations:
        assert await conversations.rows(ME) == []
        call_at = loop.call_at

        def counted(when: float, callback: Callable[..., object], *args: object, **named: Any) -> asyncio.TimerHandle:
            if callback == conversations._write_soon:
                timers.append(when)
            return call_at(when, callback, *args, **named)

        monkeypatch.setattr(loop, "call_at", counted)
        asked: list[int] = []
        for number in range(5):
            conversations.note(whole(f"c{number}"))
            conversations.note_when_writing(partial(asked.append, number))
        assert len(timers) == 1
        assert 0 < conversations.lag < LATEST_SECONDS
        await eventually(lambda: conversations.lag == 0.0, "what was noted is not written")
        assert asked == [0, 1, 2, 3, 4]
        await asyncio.sleep(2 * PAUSE_SECONDS)  # for anything that would set another
        assert len(timers) == 1
        assert len(await conversations.rows(ME)) == 5


@pytest.mark.parametrize("state", ["failing", "opening"])
async def test_many_changes_that_cannot_be_written_keep_nobody_busy(
    path: Path, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A history that comes while the file takes nothing, or is being opened, is not tried over and over."""
    may_open, tried = asyncio.Event(), itertools.count()

    async def open_slowly() -> SqlStore:
        await may_open.wait()
        return await SqlStore.open(path)

    store = WriteBehindStore(str(path), open_slowly, Patience(opening=0.01, closing=30))
    conversations, write = OwnConversations(store), store.write

    async def counted(*args: Any, **named: Any) -> None:
        next(tried)
        await write(*args, **named)

    if state == "failing":
        may_open.set()
        assert await store.opening_ended()
        await conversations.refuse_writes()
        conversations.note(begun("c"))
        assert not await conversations.settled()
    monkeypatch.setattr(store, "write", counted)
    conversations.note([*begun("c"), *(heard("c", f"{number}", "", "more") for number in range(4 * MOST_CHANGES))])
    await asyncio.sleep(6 * PAUSE_SECONDS)
    assert next(tried) <= 6
    may_open.set()
    if state == "failing":
        await conversations.take_writes()
    await eventually(lambda: conversations.lag == 0.0, "what waited is not written")
    assert len(await messages_of(conversations, "c")) == 4 * MOST_CHANGES + 1
    await conversations.aclose()


async def test_the_lag_counts_words_whose_conversation_is_being_looked_for(tmp_path: Path) -> None:
    """What a turn says before its conversation is found is in no database either."""
    async with write_behind_conversations(tmp_path / "elbowroom.db") as conversations:
        found = asyncio.get_running_loop().create_future()
        conversations.expect(found)
        await asyncio.sleep(0)
        assert 0 < conversations.lag < 60
        found.set_result(None)
        await eventually(lambda: conversations.lag == 0.0, "it has been found")


async def test_nothing_is_begun_after_the_close(path: Path) -> None:
    """What is noted as the last thing, and cannot be written, leaves no task that nobody waits for."""
    put_a_folder_at(path)
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("c"))
    conversations.note(whole("d"))
    before = asyncio.all_tasks()
    await asyncio.sleep(2 * LATEST_SECONDS)
    conversations.note([ReplyGrew("d-t.1", "text", "more")] * (2 * MOST_CHANGES))
    assert asyncio.all_tasks() == before


async def test_after_closing_nothing_is_raised(path: Path) -> None:
    """A request that is late finds nothing, and what it keeps is in memory."""
    async with file_store(path) as store:
        ref = await store.tool_outputs.keep(ME, "read", "text")
    assert await store.tool_outputs.find(ME, ref.id) is None
    late = await store.tool_outputs.keep(ME, "read", "late")
    assert await text_of(store.tool_outputs, late.id) == "late"
    await store.tool_outputs.in_use(ME, [ref.id])
    assert await written_down(store.memories) == []


async def test_a_folder_that_cannot_be_made(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Below a file there is no folder: the log says so, chats go on, and once the file is gone all is written."""
    (tmp_path / "data").write_text("in the way", encoding="utf-8")
    path = tmp_path / "data" / "elbowroom.db"
    entry, made_from = compaction(conversation(2))
    async with file_store(path) as store:
        await store.ledger.save(entry, made_from)
        assert await store.ledger.find([entry.key]) == [entry]
        assert f"The store {path} does not work" in caplog.text
        (tmp_path / "data").unlink()
    assert keys_in(path) == {entry.key}


@pytest.mark.slow
@pytest.mark.fault("read-only folder", "streaming", "kept in memory, told once")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_read_only_folder() -> None:
    """Where nothing may be written, all kinds are in memory; the log says so once, and in the end what is lost."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        done = run(READ_ONLY, folder / "elbowroom.db")
        assert list(folder.iterdir()) == []
    assert done.returncode == 0, done.stderr
    first, *lost = done.stderr.splitlines()
    assert first.startswith(f"ERROR The store {folder / 'elbowroom.db'} does not work: ")
    assert "Permission denied" in first
    assert first.endswith("`elbowroom doctor` says how to mend it.")
    assert [line.split(": ")[1:] for line in lost] == [
        ["compactions that are lost", "1."],
        ["outputs of tools that are lost", "1."],
        ["memories that are lost", "1."],
        ["batches of what was said in conversations that are lost", "1."],
    ]
    assert {line.split()[0] for line in lost} == {"WARNING"}


@pytest.mark.slow
@pytest.mark.fault("disk full", "streaming", "kept in memory, written later")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot limit the size of files")
def test_a_full_disk(path: Path) -> None:
    """What was acknowledged stays, the rest is read from memory, and all is in the file once there is room again."""
    done = run(FULL_DISK, path)
    assert done.returncode == 0, done.stderr
    assert "The store" in done.stderr
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


async def test_what_could_not_be_written_is_written_though_nobody_asks(path: Path) -> None:
    """A compaction and a memory, refused while another program held the file, are in it a moment after that let go."""
    entry, made_from = compaction(conversation(2))
    keys = await filled(path)
    async with file_store(path, SOON) as store:
        with held_by_another_program(path):
            await store.ledger.save(entry, made_from)
            await store.memories.save(ME, "agent", "is tired", 1.0)
            assert store.is_failing
        await eventually(lambda: not store.is_failing, "nobody tries it again")
        assert keys_in(path) == {*keys, entry.key}
        assert len(query(path, "SELECT text FROM memories")) == 1


async def test_a_store_that_takes_long_to_open(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Requests wait for it a little while and only once; what they save meanwhile is written when it is open."""
    may_open = asyncio.Event()

    async def open_slowly() -> SqlStore:
        await may_open.wait()
        return await SqlStore.open(path)

    entry, made_from = compaction(conversation(2))
    async with file_store(path, Patience(opening=0.05, again=0, closing=30), open_slowly) as store:
        assert list(await store.ledger.keys()) == []
        await store.ledger.save(entry, made_from)
        assert await store.ledger.find([entry.key]) == [entry]
        assert caplog.messages == [f"The store {path} takes long to open; chats go on without it until then."]
        assert not os.listdir(path.parent)
        may_open.set()
    assert keys_in(path) == {entry.key}


async def test_what_is_cancelled_is_finished(path: Path) -> None:
    """A client that leaves while something of it is saved, even while the file is opened, takes nothing along."""
    async with file_store(path) as store:
        keeping = asyncio.create_task(store.tool_outputs.keep(ME, "read", "text" * 500_000))
        for _ in range(10_000):
            if os.listdir(path.parent):  # it is being opened for the text
                break
            await asyncio.sleep(0.0005)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
    assert query(path, "SELECT bytes FROM tool_outputs") == [(2_000_000,)]
    entry, made_from = compaction(conversation(2))
    async with file_store(path) as store:
        saving = asyncio.create_task(store.ledger.save(entry, made_from))
        await asyncio.sleep(0)
        saving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await saving
    assert keys_in(path) == {entry.key}


@pytest.mark.slow
async def test_many_requests_while_the_store_fails_and_comes_back(path: Path) -> None:
    """Fifty that write all kinds around a failure: all of it is in the file in the end, as it was saved last."""
    fails = True

    async def open_when_told() -> SqlStore:
        if fails:
            raise StoreUnavailable("not yet")
        return await SqlStore.open(path)

    async def use(store: Store, number: int) -> None:
        nonlocal fails
        await asyncio.sleep(number / 500)
        fails = fails and number < 25
        entry, made_from = compaction(conversation(2, f"subject {number}"))
        await store.ledger.save(entry, made_from)
        assert await store.ledger.find([entry.key]) == [entry]
        text = f"text {number} " * 20_000
        ref = await store.tool_outputs.keep(ME, "read", text)
        await store.memories.save(ME, "agent", f"memory {number}", float(number))
        store.conversations.note(whole(f"c{number}"))
        assert await text_of(store.tool_outputs, ref.id) == text
        assert len(await messages_of(store.conversations, f"c{number}")) == 4

    async with file_store(path, SOON, open_when_told) as store:
        await asyncio.gather(*(use(store, number) for number in range(50)))
    for table in ("tool_outputs", "memories", "ledger_entries", "conversations"):
        assert query(path, f"SELECT count(*) FROM {table}") == [(50,)]


@pytest.mark.parametrize("content", [b"no zlib", b"", "text", b"x\x9c\x01\x01\x00\xfe\xff\xff\x01\xfe\x01\x00"])
async def test_a_chunk_that_somebody_else_wrote(
    path: Path, content: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading ends where the text is broken, with a line in the log; an image is whole or not there."""
    async with file_store(path) as store:
        text = await store.tool_outputs.keep(ME, "read", "line\n" * 50_000)
        image = await store.tool_outputs.keep_media(ME, "camera", "image/png", b"png" * 50_000)
    query(path, 'UPDATE tool_output_chunks SET content = ? WHERE line * "column" > 1', [content])
    async with file_store(path) as store:
        assert ("line\n" * 50_000).startswith(await text_of(store.tool_outputs, text.id))
        assert await store.tool_outputs.media(ME, image.id) is None
    assert f"The output {text.id} of a tool cannot be read to its end" in caplog.text
