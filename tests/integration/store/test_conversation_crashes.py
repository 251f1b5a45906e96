"""A process that is killed while it writes conversations, restarts, and the end of a server."""

import asyncio
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from elbowroom.store.errors import StoreUnavailable
from ledger_files import query
from stored_conversations import (
    AGENT,
    ME,
    begun,
    heard,
    write_behind_conversations,
    messages_of,
    queued,
    turn,
    turn_begun,
    turn_messages,
    turn_went_on,
    user,
    whole,
)

from elbowroom.context.conversation_changes import (
    Queued,
    QueueTaken,
    ReplyBegun,
    ReplyGrew,
    TurnBegun,
    TurnEnded,
)

WRITER = """
import asyncio, sys
from pathlib import Path
from stored_conversations import AGENT, begun, write_behind_conversations, turn_went_on
from elbowroom.context.conversation_changes import Heard, ReplyBegun, ReplyGrew, TurnBegun, TurnEnded

async def say(conversations, name):
    conversations.note(begun(name))
    for number in range(10_000):
        turn = f"{name}-{number}"
        conversations.note([TurnBegun(turn, name, f"{name}.1", AGENT, 1.0), ReplyBegun(turn, f"{turn}.1", 1.0)])
        for token in range(30):
            conversations.note([ReplyGrew(f"{turn}.1", "text", f"{token} ")])
            await asyncio.sleep(0)
        conversations.note([*turn_went_on(turn), TurnEnded(turn, "complete", f"{turn}.key", 1.0)])
        if await conversations.settled():
            print(name, turn, flush=True)

async def main(path, round):
    async with write_behind_conversations(path) as conversations:
        await asyncio.gather(*(say(conversations, f"{round}-{number}") for number in range(3)))

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""
REPLY = "".join(f"{token} " for token in range(30))


def acknowledged_until_killed(path: Path, number: int, milliseconds: float) -> list[list[str]]:
    """Let a process write until so long after its first acknowledgement; returns the turns that it acknowledged."""
    support = str(Path(__file__).parents[2] / "support")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    command = [sys.executable, "-c", WRITER, str(path), str(number)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline()]
        time.sleep(milliseconds / 1000)
        writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
    return [line.split() for line in lines if line.endswith("\n")]


async def check_what_is_left(path: Path, acknowledged: list[list[str]]) -> int:
    """Hold that all that was acknowledged is there and the rest is interrupted; returns how much of that there is."""
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    async with write_behind_conversations(path) as conversations:
        interrupted = 0
        for name in {name for name, _ in acknowledged}:
            found = await conversations.read(ME, name)
            assert found
            replies = {kept.id: kept for kept in found.messages}
            for _, turn_id in (one for one in acknowledged if one[0] == name):
                reply, last = replies[f"{turn_id}.1"], replies[f"{turn_id}.3"]
                assert (reply.status, reply.message["content"]) == ("complete", REPLY)
                assert reply.number < replies[f"{turn_id}.2"].number < last.number
                assert (last.status, last.message["content"]) == ("complete", 'He says "hi"')
            for kept in found.messages:
                assert kept.status in {"complete", "interrupted"}
                if kept.status == "interrupted":
                    interrupted += 1
                    assert REPLY.startswith(kept.message["content"]) or kept.id.endswith(".3")
    orphans = "SELECT count(*) FROM message_parts WHERE message NOT IN (SELECT id FROM messages)"
    assert query(path, orphans) == [(0,)]
    assert query(path, "SELECT count(*) FROM turns WHERE status = 'streaming'") == [(0,)]
    return interrupted


async def kill_again_and_again(path: Path, rounds: int, seed: int) -> None:
    """Kill one process after another, each at another moment, all on the same file."""
    generator = random.Random(seed)
    acknowledged: list[list[str]] = []
    interrupted = 0
    for number in range(rounds):
        new = acknowledged_until_killed(path, number, generator.uniform(0, 150))
        assert new
        acknowledged += new
        interrupted += await check_what_is_left(path, new)
    assert interrupted
    assert not list(path.parent.glob("*.damaged-*"))
    turns = {turn_id for (turn_id,) in query(path, "SELECT id FROM turns WHERE status = 'complete'")}
    assert turns.issuperset(turn_id for _, turn_id in acknowledged)


async def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Killed at any moment it leaves a sound file with all that was settled, and interrupted what was being said."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 3, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_two_hundred_killed_processes_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    """The same, two hundred times on one file."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 200, seed=2)


async def test_what_is_said_is_written_without_being_asked(tmp_path: Path) -> None:
    """A reply that streams is in the file a moment later, though nobody settles or asks."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0), ReplyBegun("t", "m", 1.0)])
        for number in range(20):
            conversations.note([ReplyGrew("m", "text", f"{number} ")])
        deadline = time.monotonic() + 60
        content = "".join(f"{number} " for number in range(20))
        while not conversations._store._sql or query(path, "SELECT content FROM message_parts")[-1:] != [(content,)]:
            assert time.monotonic() < deadline, "it was never written"
            await asyncio.sleep(0.02)


async def test_a_restart(tmp_path: Path) -> None:
    """What was being said is interrupted, what is whole stays whole, and what that turn took from the queue waits."""
    path = tmp_path / "elbowroom.db"
    items = [queued(f"q{number}", "c") for number in range(3)]
    async with write_behind_conversations(path) as conversations:
        conversations.note([*whole("c"), *(Queued(item) for item in items), QueueTaken("c-t", ("q0",))])
        conversations.note([*turn_begun("t", "c", "c.2"), *turn_went_on("t"), QueueTaken("t", ("q1",))])
    async with write_behind_conversations(path) as conversations:
        assert await conversations.queue() == items[1:]
        found = await conversations.read(ME, "c")
        assert found
        assert [kept.status for kept in found.messages] == [*["complete"] * 6, "interrupted"]
        _, stopped = await conversations.turns("c", ["c.2"])
        assert (stopped.id, stopped.status, stopped.messages[1]) == ("t", "interrupted", turn_messages("t")[1])
        conversations.note([*turn("u", "c", "c.2", "c.4"), heard("c", "c.5", "c.4", "more")])
        assert (await messages_of(conversations, "c"))[7:] == [*turn_messages("u"), user("more")]
    parts = "SELECT count(*) FROM message_parts WHERE status = 'streaming'"
    assert query(path, parts) == [(0,)]


async def test_what_goes_on_is_not_interrupted_when_the_file_is_opened_again(tmp_path: Path) -> None:
    """A store that failed and comes back has not stopped anything: only a new process finds what another has left."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note([*begun("c"), *turn_begun("t", "c", "c.1")])
        assert await conversations.settled()
        conversations._store.failed(conversations.sql, StoreUnavailable("for a test"))
        conversations.note([ReplyGrew("t.1", "text", " More.")])
        deadline = time.monotonic() + 60
        while not await conversations.settled():
            assert time.monotonic() < deadline, "it was never written"
            await asyncio.sleep(0.02)
        conversations.note([TurnEnded("t", "complete", "c.2", 1.0)])
        found = await conversations.read(ME, "c")
        assert found
        reply = found.messages[-1]
        assert (reply.status, reply.message["content"]) == ("complete", "Let me look. More.")
    assert query(path, "SELECT count(*) FROM message_parts WHERE kind = 'text'") == [(2,)]


async def test_the_end_of_a_server(tmp_path: Path) -> None:
    """All that was noted before the store is closed is in the file, though it was being written at that moment."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("a"))
        settling = asyncio.create_task(conversations.settled())
        await asyncio.sleep(0)
        conversations.note(whole("b"))
    assert await settling
    async with write_behind_conversations(path) as conversations:
        for name in ("a", "b"):
            assert await messages_of(conversations, name) == [user("What is in the note?"), *turn_messages(f"{name}-t")]


async def test_twenty_conversations_at_once(tmp_path: Path) -> None:
    """Turns whose changes come mixed are kept apart, each in its own order."""
    path = tmp_path / "elbowroom.db"
    names = [f"c{number}" for number in range(20)]

    async def say(name: str) -> None:
        for number, change in enumerate(whole(name)):
            kept.note([change])
            await asyncio.sleep(0)
            if number % 7 == 0:
                await kept.settled()

    async with write_behind_conversations(path) as kept:
        await asyncio.gather(*(say(name) for name in names))
        for name in names:
            assert await messages_of(kept, name) == [user("What is in the note?"), *turn_messages(f"{name}-t")]
        assert len(await kept.rows(ME)) == 20
    assert query(path, "SELECT count(*) FROM messages") == [(80,)]
