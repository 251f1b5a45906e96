"""A process that is killed while it writes all kinds of rows, two processes on one file, restarts, and the end."""

import asyncio
import os
import random
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from pathlib import Path

import pytest
from kept_conversations import call_of
from kept_outputs import ME, numbered, text_of, written_down
from ledger_files import file_store, keys_in, query, sql_of
from ledger_samples import compaction, conversation
from stored_conversations import (
    AGENT,
    begun,
    heard,
    messages_of,
    queued,
    turn,
    turn_begun,
    turn_messages,
    turn_went_on,
    user,
    whole,
    write_behind_conversations,
)

from elbowroom.context.conversation import (
    Added,
    Change,
    Conversation,
    PageWanted,
    Queued,
    QueueTaken,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    TurnBegun,
    TurnEnded,
)
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.questions import Conversations
from elbowroom.store.sql import SqlStore
from elbowroom.store.write_behind import Patience

WRITER = """
import asyncio, sys
from pathlib import Path
from kept_outputs import ME, numbered
from ledger_files import file_store
from ledger_samples import compaction, conversation
from stored_conversations import AGENT, begun, turn_went_on
from elbowroom.context.conversation import ReplyBegun, ReplyGrew, TurnBegun, TurnEnded

def acknowledge(*words):
    print(*words, "done", flush=True)

async def say(conversations, name, most):
    conversations.note(begun(name))
    for number in range(most):
        turn = f"{name}-{number}"
        conversations.note([TurnBegun(turn, name, f"{name}.1", AGENT, 1.0), ReplyBegun(turn, f"{turn}.1", 1.0)])
        for token in range(30):
            conversations.note([ReplyGrew(f"{turn}.1", "text", f"{token} ")])
            await asyncio.sleep(0)
        conversations.note([*turn_went_on(turn), TurnEnded(turn, "complete", f"{turn}.key", 1.0)])
        if await conversations.settled():
            acknowledge("turn", name, turn)

async def keep(store, name, most):
    for number in range(most):
        ref = await store.tool_outputs.keep(ME, "read", numbered(name, number))
        acknowledge("output", number, ref.id)

async def compact(store, name, most):
    for number in range(most):
        entry, made_from = compaction(conversation(20, f"{name}, {number}"))
        await store.ledger.save(entry, made_from)
        acknowledge("entry", number, entry.key)

async def main(path, name, most):
    async with file_store(path) as store:
        await asyncio.gather(
            *(say(store.conversations, f"{name}-{number}", most) for number in range(3)),
            keep(store, name, most), compact(store, name, most),
        )
        while not await store.conversations.settled():  # another process has the file
            await asyncio.sleep(0.05)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
"""
REPLY = "".join(f"{token} " for token in range(30))
Acknowledged = dict[str, list[tuple[str, str]]]


def start_writer(path: Path, name: str, most: int) -> subprocess.Popen[str]:
    """Start a process that writes so many rows of each kind, and tells which are acknowledged."""
    support = str(Path(__file__).parents[2] / "support")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([support, *filter(None, sys.path)])}
    command = [sys.executable, "-c", WRITER, str(path), name, str(most)]
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def acknowledged_in(lines: Iterable[str]) -> Acknowledged:
    """Return what a writer has acknowledged, by kinds."""
    found: Acknowledged = defaultdict(list)
    for line in lines:
        words = line.split()
        if len(words) == 4 and words[-1] == "done":
            found[words[0]].append((words[1], words[2]))
    return found


def acknowledged_until_killed(path: Path, name: str, milliseconds: float) -> Acknowledged:
    """Let a process write until so long after its first acknowledged turn; return what it acknowledged."""
    with start_writer(path, name, 10_000) as writer:
        assert writer.stdout is not None
        lines: list[str] = []
        while not lines or not lines[-1].startswith("turn"):
            lines.append(writer.stdout.readline())
            assert lines[-1], "the writer has failed"
        time.sleep(milliseconds / 1000)
        writer.kill()
        lines += writer.stdout.read().splitlines()
    return acknowledged_in(lines)


async def check_what_is_left(path: Path, name: str, acknowledged: Acknowledged) -> int:
    """Hold that all that was acknowledged is whole and the rest is interrupted; return how much of that there is."""
    assert keys_in(path).issuperset(key for _, key in acknowledged["entry"])
    chunks = query(path, "SELECT DISTINCT id FROM tool_output_chunks ORDER BY id")
    assert chunks == query(path, "SELECT id FROM tool_outputs ORDER BY id")
    async with file_store(path) as store:
        for number, ref_id in acknowledged["output"]:
            assert await text_of(store.tool_outputs, ref_id) == numbered(name, int(number))
        assert len(await store.ledger.find([key for _, key in acknowledged["entry"]])) == len(acknowledged["entry"])
        assert await store.conversations.rows(ME)
        interrupted = 0
        for name in {name for name, _ in acknowledged["turn"]}:
            found = await store.conversations.read(ME, name)
            assert found
            interrupted += check_turns(found, [turn_id for of, turn_id in acknowledged["turn"] if of == name])
    orphans = "SELECT count(*) FROM message_parts WHERE message NOT IN (SELECT id FROM messages)"
    assert query(path, orphans) == [(0,)]
    assert query(path, "SELECT count(*) FROM turns WHERE status = 'streaming'") == [(0,)]
    return interrupted


def check_turns(found: Conversation, acknowledged: list[str]) -> int:
    """Hold that these turns are whole; return how many messages are interrupted."""
    replies = {kept.id: kept for kept in found.messages}
    for turn_id in acknowledged:
        reply, last = replies[f"{turn_id}.1"], replies[f"{turn_id}.3"]
        assert (reply.status, reply.message["content"]) == ("complete", REPLY)
        assert reply.number < replies[f"{turn_id}.2"].number < last.number
        assert (last.status, last.message["content"]) == ("complete", 'He says "hi"')
    interrupted = [kept for kept in found.messages if kept.status != "complete"]
    for kept in interrupted:
        assert kept.status == "interrupted"
        assert REPLY.startswith(kept.message["content"]) or kept.id.endswith(".3")
    return len(interrupted)


async def kill_again_and_again(path: Path, rounds: int, seed: int) -> None:
    """Kill one process after another, each at another moment, all on the same file; at least one within an answer."""
    generator, interrupted, keys, turns = random.Random(seed), 0, set[str](), set[str]()
    for number in count():
        if number >= rounds and interrupted:
            break
        new = acknowledged_until_killed(path, f"round-{number}", generator.uniform(0, 150))
        assert new
        interrupted += await check_what_is_left(path, f"round-{number}", new)
        keys.update(key for _, key in new["entry"])
        turns.update(turn_id for _, turn_id in new["turn"])
    assert keys
    assert turns
    assert not list(path.parent.glob("*.damaged-*"))
    assert keys_in(path) >= keys
    assert {turn_id for (turn_id,) in query(path, "SELECT id FROM turns WHERE status = 'complete'")} >= turns


@pytest.mark.slow
async def test_a_killed_process_loses_nothing_it_acknowledged(tmp_path: Path) -> None:
    """Killed at any moment it leaves a sound file with all that was acknowledged, the rest whole or interrupted."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_two_hundred_killed_processes_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    """The same, two hundred times on one file."""
    await kill_again_and_again(tmp_path / "elbowroom.db", 200, seed=2)


@pytest.mark.slow
async def test_two_processes_on_one_file(tmp_path: Path) -> None:
    """One has the file, and the other writes what it has kept in memory as soon as that one has ended."""
    path = tmp_path / "elbowroom.db"
    writers = [start_writer(path, name, 5) for name in ("left", "right")]
    told = await asyncio.gather(*(asyncio.to_thread(writer.communicate) for writer in writers))
    assert [writer.returncode for writer in writers] == [0, 0]
    keys = {key for output, _ in told for _, key in acknowledged_in(output.splitlines())["entry"]}
    assert len(keys) == 10
    assert keys_in(path) == keys


async def test_a_process_sees_what_another_saved_before_it_started(tmp_path: Path) -> None:
    """A second process on the same file begins with what the first has saved so far."""
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as first:
        entry, made_from = compaction(conversation(3))
        await first.ledger.save(entry, made_from)
        await first.memories.save(ME, "agent", "likes tea", 1.0)
        async with file_store(path) as second:
            assert await second.ledger.find([entry.key]) == [entry]
            assert await written_down(second.memories) == ["likes tea"]


async def test_what_is_said_is_written_without_being_asked(tmp_path: Path) -> None:
    """A reply that streams is in the file a moment later, though nobody settles or asks."""
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0), ReplyBegun("t", "m", 1.0)])
        for number in range(20):
            conversations.note([ReplyGrew("m", "text", f"{number} ")])
        deadline = time.monotonic() + 60
        content = "".join(f"{number} " for number in range(20))
        while not conversations._store.current or query(path, "SELECT content FROM message_parts")[-1:] != [(content,)]:
            assert time.monotonic() < deadline, "it was never written"
            await asyncio.sleep(0.02)


@pytest.mark.fault("store opens late", "streaming", "written as soon as it is open")
async def test_what_is_said_after_a_late_opening_is_written_at_once(tmp_path: Path) -> None:
    """Words that wait for a store that opens late are written when it is open, and later ones as soon as ever."""
    path, may_open = tmp_path / "elbowroom.db", asyncio.Event()

    async def begin() -> SqlStore:
        await may_open.wait()
        return await SqlStore.open(path)

    async with file_store(path, Patience(opening=0.01, again=3600), begin) as store:
        conversations = store.conversations
        conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0), ReplyBegun("t", "m", 1.0)])
        assert await conversations.queue() == []  # which puts together what waits
        async with asyncio.timeout(60):
            while conversations._timer is None or conversations._timer.when() < asyncio.get_running_loop().time() + 1:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until it has been tried in vain
            conversations.note([ReplyGrew("m", "text", "Early, ")])
            may_open.set()
            while not path.exists() or store.conversations.lag:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            conversations.note([ReplyGrew("m", "text", "late.")])
            while store.conversations.lag:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert query(path, "SELECT content FROM message_parts")[-1:] == [("Early, late.",)]


async def test_a_tool_that_ran_when_the_process_was_killed_is_running_in_an_interrupted_turn(tmp_path: Path) -> None:
    """A call without a result is running, before and after the restart; others are completed, failed or pending."""
    path = tmp_path / "elbowroom.db"

    def calling(turn: str, *names: str) -> list[Change]:
        calls = [ReplyCalled(f"{turn}-m", call_of(name, "look_up", "{}")) for name in names]
        return [ReplyBegun(turn, f"{turn}-m", 1.0), *calls, ReplyEnded(f"{turn}-m", "complete")]

    async def check(conversations: Conversations, status: str) -> None:
        found = await conversations.read(ME, "c")
        assert found is not None
        (asking,) = [kept for kept in found.messages if kept.calls]
        assert (asking.status, asking.turn_status) == ("complete", status)
        assert asking.calls == {"one": "completed", "two": "error", "three": "running"}

    def result(turn: str, call: str, text: str) -> Added:
        return Added(turn, f"{turn}-{call}", {"role": "tool", "tool_call_id": call, "content": text}, 1.0)

    async with write_behind_conversations(path) as conversations:
        conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0), *calling("t", "one", "two", "three")])
        conversations.note([result("t", "one", "found"), result("t", "two", "Error: it is gone")])
        conversations.note([*begun("d"), TurnBegun("u", "d", "d.1", AGENT, 1.0), *calling("u", "four")])
        conversations.note([TurnEnded("u", "complete", "d.2", 1.0)])
        await check(conversations, "streaming")
    async with write_behind_conversations(path) as conversations:
        await check(conversations, "interrupted")
        page = await conversations.page(ME, "d", PageWanted(limit=9))
        assert page is not None
        assert [kept.calls for kept in page.messages if kept.calls] == [{"four": "pending"}]


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
    assert query(path, "SELECT count(*) FROM message_parts WHERE status = 'streaming'") == [(0,)]


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
            store.conversations.note([change])
            await asyncio.sleep(0)
            if number % 7 == 0:
                await store.conversations.settled()

    async with file_store(path) as store:
        await asyncio.gather(*(say(name) for name in names))
        for name in names:
            said = await messages_of(store.conversations, name)
            assert said == [user("What is in the note?"), *turn_messages(f"{name}-t")]
        assert len(await store.conversations.rows(ME)) == 20
        assert sql_of(store).is_durable
    assert query(path, "SELECT count(*) FROM messages") == [(80,)]
