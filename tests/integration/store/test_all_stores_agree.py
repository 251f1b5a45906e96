"""That messages come back as they were, and that all stores do the same with whatever happens."""

from collections.abc import AsyncIterator
from dataclasses import astuple, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from memory_stores import MemoryConversations
from stored_conversations import (
    AGENT,
    ME,
    OwnConversations,
    begun,
    messages_of,
    unnumbered,
    user,
    write_behind_conversations,
)

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import Added, Change, Heard, QueuedMessage, StepUsage, TurnBegun
from elbowroom.store.questions import Conversations


@pytest.fixture
async def stored(tmp_path: Path) -> AsyncIterator[OwnConversations]:
    """Conversations in a file."""
    async with write_behind_conversations(tmp_path / "elbowroom.db") as conversations:
        yield conversations


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ITEMS = (
    st.builds(lambda text: {"type": "text", "text": text}, st.text())
    | st.builds(lambda url: {"type": "image_url", "image_url": {"url": url}}, st.text())
    | JSON
)
CALLS = st.builds(lambda name, text: {"id": name, "function": {"name": name, "arguments": text}}, st.text(), st.text())
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant", "tool", "system"]) | JSON,
        "content": st.none() | st.text() | st.lists(ITEMS, max_size=4) | JSON,
        "tool_calls": st.lists(CALLS, max_size=3) | JSON,
        "tool_call_id": st.text(),
        "name": st.text(),
        "refusal": st.none() | st.text(),
        "x-unknown": JSON,
    },
)


@pytest.mark.slow
@given(messages=st.lists(MESSAGES, min_size=1, max_size=12))
@settings(max_examples=25, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_any_message_comes_back_as_it_was(stored: OwnConversations, messages: list[dict[str, Any]]) -> None:
    """Content a text, a list, null or missing, calls, images, fields that nobody knows: all of it is there again."""
    await stored.delete(ME, "c")
    stored.note(begun("c"))
    frozen = [MappingProxyType(message) for message in messages]
    stored.note([Heard("c", f"k{n}", "p", message, 1.0) for n, message in enumerate(frozen)])
    stored.note([TurnBegun("t", "c", "c.1", AGENT, 1.0)])
    stored.note([Added("t", f"m{n}", message, 1.0) for n, message in enumerate(frozen)])
    assert await messages_of(stored, "c") == [user("What is in the note?"), *messages, *messages]


NAMES = st.sampled_from(["c", "d"])
TURNS = st.sampled_from(["c-t", "c-u", "d-t", "lost"])
REPLIES = st.sampled_from(["m1", "m2", "m3"])
KEYS = st.sampled_from(["k1", "k2", "k3", "k4"])
ITEMS_OF_QUEUE = st.sampled_from(["q1", "q2", "q3"])
ENDS = st.sampled_from(["complete", "interrupted"])
WORDS = st.sampled_from(["a", "b", "\u00e9", '"', "\n"])
HEARD = st.sampled_from([user("question"), {"role": "assistant", "content": "yes"}])
USAGES = st.builds(StepUsage, st.integers(0, 9), is_counted=st.booleans())
TIMES = st.integers(1, 50).map(float)
DETAILS = st.builds(
    kinds.CompactionDetails, TIMES, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), WORDS | st.just("")
)
CHANGES = st.one_of(
    st.builds(kinds.ConversationBegun, NAMES, st.just(ME), st.sampled_from(["", "name"]), st.just(AGENT), TIMES),
    st.builds(Heard, NAMES, KEYS, KEYS, HEARD, TIMES),
    st.builds(lambda turn, key, at: TurnBegun(turn, turn[0], key, AGENT, at), TURNS, KEYS, TIMES),
    st.builds(kinds.ReplyBegun, TURNS, REPLIES, TIMES),
    st.builds(kinds.ReplyGrew, REPLIES, st.sampled_from(["text", "reasoning"]), WORDS),
    st.builds(kinds.ReplyGrew, REPLIES, st.sampled_from(["text", "reasoning"]), WORDS),
    st.builds(kinds.ReplyCalled, REPLIES, WORDS.map(lambda word: {"id": word})),
    st.builds(kinds.ReplyEnded, REPLIES, ENDS, st.none() | st.just({"reason": "compacted", "tokens": 900})),
    st.builds(Added, TURNS, st.sampled_from(["a1", "a2"]), WORDS.map(user), TIMES),
    st.builds(kinds.StepUsed, TURNS, WORDS, USAGES, st.none(), TIMES),
    st.builds(
        kinds.CompactionNoted, NAMES, st.integers(1, 9), st.just(1), st.just("digest"), TIMES, st.none() | DETAILS
    ),
    st.builds(kinds.TurnEnded, TURNS, ENDS, KEYS, TIMES),
    st.builds(
        lambda item, name, at: kinds.Queued(QueuedMessage(item, name, user(item), "steer", at)),
        ITEMS_OF_QUEUE, NAMES, TIMES,
    ),
    st.builds(lambda turn, item: kinds.QueueTaken(turn, (item,)), TURNS, ITEMS_OF_QUEUE),
    st.builds(lambda item: kinds.QueueDropped((item,)), ITEMS_OF_QUEUE),
)  # fmt: skip


async def all_of(conversations: Conversations) -> list[Any]:
    """Return everything that can be asked for."""
    keys = ["k1", "k2", "k3", "k4"]
    return [
        [unnumbered(await conversations.read(ME, name)) for name in ("c", "d", "name")],
        await conversations.rows(ME),
        sorted(map(astuple, (await conversations.saved(ME)).days)),
        [row.id for row in await conversations.rows(ME, search="A")],
        [replace(turn, messages=()) for name in ("c", "d") for turn in await conversations.turns(name, keys)],
        await conversations.queue(),
        [await conversations.look_up(ME, "", keys[:length]) for length in range(5)],
        await conversations.look_up(ME, "name", keys),
    ]


HISTORIES = {"changes": st.lists(CHANGES, max_size=40), "stops": st.integers(0, 40), "fails": st.booleans()}
CALLED_AND_BEGUN_AGAIN: list[Change] = [
    kinds.ReplyCalled("m1", {"id": "a"}),
    kinds.ReplyBegun("c-t", "m1", 9.0),
    kinds.ReplyCalled("m1", {"id": "b"}),
]
ENDED_AND_GROWN: list[Change] = [
    kinds.ReplyGrew("m1", "text", "a"),
    kinds.ReplyEnded("m1", "complete"),
    kinds.ReplyGrew("m1", "text", "b"),
    kinds.TurnEnded("c-t", "complete", "k2", 9.0),
    kinds.ReplyGrew("m1", "text", "\u00e9"),
]
BEGUN_IN_NO_TURN: list[Change] = [
    kinds.ReplyBegun("lost", "m2", 9.0),
    kinds.ReplyGrew("m2", "text", "a"),
    kinds.ReplyBegun("c-t", "m2", 9.0),
    kinds.ReplyGrew("m2", "text", "b"),
]
ONE_FILE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.slow
@given(**HISTORIES)
@example(changes=CALLED_AND_BEGUN_AGAIN, stops=3, fails=False)
@example(changes=CALLED_AND_BEGUN_AGAIN, stops=2, fails=False)
@example(changes=CALLED_AND_BEGUN_AGAIN, stops=1, fails=True)
@example(changes=ENDED_AND_GROWN, stops=5, fails=False)
@example(changes=ENDED_AND_GROWN, stops=0, fails=True)
@example(changes=BEGUN_IN_NO_TURN, stops=4, fails=False)
@example(changes=BEGUN_IN_NO_TURN, stops=2, fails=True)
@settings(ONE_FILE, max_examples=5, derandomize=True)
async def test_all_stores_do_the_same(stored: OwnConversations, changes: list[Change], stops: int, fails: bool) -> None:
    """Whatever is noted in whatever order, also where the file refuses it from some point on, for a while."""
    await check_all_stores_do_the_same(stored, changes, stops, fails)


@pytest.mark.long
@pytest.mark.timeout(600)
@given(**HISTORIES)
@settings(ONE_FILE, max_examples=500)
async def test_all_stores_always_do_the_same(
    stored: OwnConversations, changes: list[Change], stops: int, fails: bool
) -> None:
    """The same, five hundred times."""
    await check_all_stores_do_the_same(stored, changes, stops, fails)


async def check_all_stores_do_the_same(
    stored: OwnConversations, changes: list[Change], stops: int, fails: bool
) -> None:
    """Hold that a file shows what memory does, while it works, while it fails, and when it works again."""
    memory = MemoryConversations()
    for name in ("c", "d"):
        await stored.delete(ME, name)
    first: list[Change] = [*begun("c"), *begun("d"), TurnBegun("c-t", "c", "k1", AGENT, 1.0)]
    for kind in (memory, stored):
        kind.note([*first, kinds.ReplyBegun("c-t", "m1", 1.0), *changes[:stops]])
    assert await all_of(stored) == await all_of(memory)
    if fails:
        await stored.refuse_writes()
    for change in changes[stops:]:
        memory.note([change])
        stored.note([change])
    assert await all_of(stored) == await all_of(memory)
    assert await stored.settled() is not (fails and bool(changes[stops:]))
    if fails:
        await stored.take_writes()
        assert await all_of(stored) == await all_of(memory)
        assert await stored.settled()
