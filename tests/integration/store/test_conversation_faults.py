"""When the file of conversations is damaged, held, read-only or full, all goes on, and nothing acknowledged is lost."""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from elbowroom.store.conversations_lasting import LATEST_SECONDS, MOST_CHANGES
from elbowroom.store.conversations_waiting import WaitingChanges, with_joined_deltas
from ledger_files import held_by_another_program, query
from stored_conversations import (
    ME,
    OwnConversations,
    begun,
    write_behind_conversations,
    messages_of,
    queued,
    turn_messages,
    user,
    whole,
)

from elbowroom.context.conversation_changes import Queued, ReplyGrew

FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from stored_conversations import ME, write_behind_conversations, messages_of, whole

async def main(path):
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("first"))
        assert await conversations.settled()
        _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, most))
        acknowledged = []
        for number in range(30):
            conversations.note(whole(f"c{number}", "x" * 20_000))
            if await conversations.settled():
                acknowledged.append(f"c{number}")
            assert len(await messages_of(conversations, f"c{number}")) == 4
        assert 0 < len(acknowledged) < 30, acknowledged
        assert len(await conversations.rows(ME)) == 31
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        while not await conversations.settled():
            await asyncio.sleep(0.02)
    async with write_behind_conversations(path) as conversations:
        assert len(await conversations.rows(ME)) == 31
        for number in range(30):
            assert len(await messages_of(conversations, f"c{number}")) == 4

asyncio.run(main(Path(sys.argv[1])))
"""
READ_ONLY = """
import asyncio, logging, os, sys, tempfile
from pathlib import Path
from stored_conversations import write_behind_conversations, messages_of, whole

async def say(path, settles):
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("c"))
        assert await conversations.settled() == settles
        assert len(await messages_of(conversations, "c")) == 4

logging.basicConfig(format="%(levelname)s %(message)s")
if os.geteuid() == 0:  # nothing is read-only to root
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(say(Path(folder, "first.db"), True))  # everything is imported by this
    os.setuid(65534)
asyncio.run(say(Path(sys.argv[1]), False))
"""


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a moment for another program that holds the file."""
    monkeypatch.setattr("elbowroom.store.sqlite.BUSY_MILLISECONDS", 50)


def run(script: str, path: Path) -> subprocess.CompletedProcess[str]:
    """Run a script of this file in a process of its own."""
    support = str(Path(__file__).parents[2] / "support")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    command = [sys.executable, "-W", "error", "-c", script, str(path)]
    return subprocess.run(command, env=environ, check=False, capture_output=True, text=True, timeout=100)


async def settle(conversations: OwnConversations) -> None:
    """Wait until everything is written."""
    deadline = time.monotonic() + 60
    while not await conversations.settled():
        assert time.monotonic() < deadline, "it was never written"
        await asyncio.sleep(0.02)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot limit the size of files")
def test_a_full_disk(tmp_path: Path) -> None:
    """What was acknowledged stays, the rest is read from memory, and all is in the file once there is room again."""
    done = run(FULL_DISK, tmp_path / "elbowroom.db")
    assert done.returncode == 0, done.stderr
    assert query(tmp_path / "elbowroom.db", "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
def test_a_read_only_folder() -> None:
    """Where nothing may be written, conversations are in memory, and the log says so once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        done = run(READ_ONLY, folder / "elbowroom.db")
        assert list(folder.iterdir()) == []
    assert done.returncode == 0, done.stderr
    first, second = done.stderr.splitlines()
    assert first.startswith(f"ERROR The store {folder / 'elbowroom.db'} does not work: ")
    assert second.startswith("WARNING ")


async def test_a_file_held_by_another_program(tmp_path: Path) -> None:
    """As long as it is held, conversations are in memory; then all of them are in the file, in order."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("before"))
        assert await conversations.settled()
    async with write_behind_conversations(path) as conversations:
        with held_by_another_program(path):
            conversations.note([*whole("meanwhile"), Queued(queued("q", "meanwhile"))])
            assert not await conversations.settled()
            assert len(await messages_of(conversations, "meanwhile")) == 4
            assert [item.id for item in await conversations.queue()] == ["q"]
        await settle(conversations)
        assert {row.id for row in await conversations.rows(ME)} == {"before", "meanwhile"}
        assert (await messages_of(conversations, "meanwhile"))[1:] == turn_messages("meanwhile-t")


async def test_a_file_that_refuses_changes_for_a_while(tmp_path: Path) -> None:
    """What was there is read together with what waits, also in one conversation, and written once that works."""
    path = tmp_path / "elbowroom.db"
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


async def test_damage_while_the_store_is_open(tmp_path: Path) -> None:
    """Reading and writing damaged pages raises nothing; the file is set aside, and what is new is kept."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note([change for number in range(30) for change in whole(f"c{number}", "x" * 5000)])
        assert await conversations.settled()
    async with write_behind_conversations(path) as conversations:
        assert len(await conversations.rows(ME)) == 30
        query(path, "PRAGMA user_version = 1")  # what others change is read from the file again
        with path.open("r+b") as file:
            file.seek(8192)
            file.write(b"\x5a" * 200_000)
        for number in range(30):
            await conversations.read(ME, f"c{number}")
            await conversations.rows(ME, search="note")
            await asyncio.sleep(0.01)
        conversations.note(whole("new"))
        await settle(conversations)
        assert len(await messages_of(conversations, "new")) == 4
    assert any(".damaged-" in name for name in os.listdir(tmp_path))


async def test_closing_tells_that_something_is_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is only in memory when elbowroom ends is told."""
    (tmp_path / "elbowroom.db").mkdir()
    async with write_behind_conversations(tmp_path / "elbowroom.db") as conversations:
        conversations.note(whole("c"))
        assert not await conversations.settled()
    assert "batches of what was said in conversations that are lost: 1" in caplog.messages[-1]


async def test_nothing_is_begun_behind_the_close(tmp_path: Path) -> None:
    """What is noted as the last thing, and cannot be written, leaves no task that nobody waits for."""
    (tmp_path / "elbowroom.db").mkdir()
    async with write_behind_conversations(tmp_path / "elbowroom.db") as conversations:
        conversations.note(whole("c"))
    conversations.note(whole("d"))
    before = asyncio.all_tasks()
    await asyncio.sleep(2 * LATEST_SECONDS)
    conversations.note([ReplyGrew("d-t.1", "text", "more")] * (2 * MOST_CHANGES))
    assert asyncio.all_tasks() == before


def test_what_goes_when_too_much_waits(caplog: pytest.LogCaptureFixture) -> None:
    """The oldest turns go first and each as a whole, then what people have said; what is in the queue goes last."""
    waiting = WaitingChanges(most_bytes=125_000)
    item = Queued(queued("q", "c0"))
    for number in range(30):
        waiting.new.extend(whole(f"c{number}", "x" * 1000))
        waiting.new.append(item)
        waiting.batches()
    before = waiting.batches()
    assert waiting.trim()
    after = [change for batch in waiting.batches() for change in batch.changes]
    assert waiting.let_go == sum(len(batch.changes) for batch in before) - len(after)
    assert after.count(item) == 30
    turns = [turn for change in after if (turn := getattr(change, "turn", ""))]
    assert set(Counter(turns).values()) == {Counter(getattr(change, "turn", "") for change in whole("c"))["c-t"]}
    assert "c0-t" not in turns
    assert not waiting.trim()
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_deltas_are_joined() -> None:
    """Deltas of one reply that follow one another are one change, whatever comes between them from other replies."""
    mixed = [ReplyGrew(message, "text", text) for message, text in (("a", "1"), ("b", "3"), ("a", "2"), ("b", "4"))]
    more = [ReplyGrew("a", "reasoning", "5"), ReplyGrew("a", "text", "6"), ReplyGrew("a", "text", "7")]
    assert with_joined_deltas([*mixed, *more]) == [
        ReplyGrew("a", "text", "12"),
        ReplyGrew("b", "text", "34"),
        ReplyGrew("a", "reasoning", "5"),
        ReplyGrew("a", "text", "67"),
    ]
