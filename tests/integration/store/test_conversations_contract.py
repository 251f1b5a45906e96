"""What all stores of conversations promise: in memory, in a file, and where the file fails."""

import math
from dataclasses import replace
from typing import Any

import pytest
import store_fixtures
from stored_conversations import (
    AGENT,
    FILL,
    ME,
    begun,
    call,
    heard,
    messages_of,
    queued,
    result,
    turn,
    turn_begun,
    turn_ended,
    turn_messages,
    turn_went_on,
    user,
    whole,
)

from elbowroom.context.conversation import (
    Added,
    Change,
    CompactionDetails,
    CompactionNoted,
    ConversationBegun,
    Heard,
    KeptCompaction,
    KeptTurn,
    Known,
    Queued,
    QueueDropped,
    QueueTaken,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    StepUsage,
    StepUsed,
    Totals,
    TurnBegun,
    TurnEnded,
)
from elbowroom.store.conversations import WriteBehindConversations
from elbowroom.store.questions import Conversations
from elbowroom.store.sql.schema import LARGEST_PART

conversations = store_fixtures.conversations
DETAILS = CompactionDetails(2.25, 4, 6, 20, "They spoke of lists.")


async def test_odd_questions(conversations: Conversations) -> None:
    """Whatever is asked for is not found, and nothing raises."""
    conversations.note(whole("c"))
    for odd in ("", "\0", "\ud800", "'; DROP TABLE turns; --", "x" * 100_000):
        assert await conversations.find(ME, odd) is None
        assert await conversations.read(ME, odd) is None
        assert await conversations.turns(odd, [odd, "c.2"]) == []
        assert not await conversations.delete(ME, odd)
        assert await conversations.rows(odd) == []
        assert await conversations.look_up(odd, odd, [odd]) is None
        assert await conversations.look_up(ME, "", [odd]) is None
    for odd in ("\0", "\ud800", "'; DROP TABLE turns; --"):
        assert await conversations.rows(ME, search=odd) == []
    assert len(await conversations.rows(ME)) == 1


async def test_nothing_is_there_at_first(conversations: Conversations) -> None:
    """A new store finds nothing."""
    assert await conversations.look_up(ME, "", ["a", "b"]) is None
    assert await conversations.look_up(ME, "name", []) is None
    assert await conversations.turns("c", ["a"]) == []
    assert await conversations.queue() == []
    assert await conversations.rows(ME) == await conversations.rows(ME, search="a") == []
    assert await conversations.find(ME, "c") is None
    assert await conversations.read(ME, "c") is None
    assert not await conversations.delete(ME, "c")


async def test_a_turn_is_read_as_it_was_said(conversations: Conversations) -> None:
    """The question, the reply with its call and its reasoning, the result and the answer, in this order."""
    conversations.note(whole("c"))
    found = await conversations.read(ME, "c")
    assert found
    assert [kept.message for kept in found.messages] == [user("What is in the note?"), *turn_messages("c-t")]
    question, reply, returned, answer = found.messages
    assert (question.turn, question.key, question.parent, question.agent) == ("", "c.1", "seed", AGENT)
    assert (reply.id, reply.turn, reply.key, reply.parent, reply.agent) == ("c-t.1", "c-t", "c.2", "c.1", AGENT)
    assert [reply.reasoning, returned.reasoning, answer.reasoning] == ["I have to read.", "", ""]
    assert {kept.status for kept in found.messages} == {"complete"}
    assert question.number < reply.number < returned.number < answer.number
    assert question.at < reply.at < returned.at < answer.at


async def test_what_is_being_said_is_read_too(conversations: Conversations) -> None:
    """A turn that goes on shows what has been said so far, as streaming, after each change."""
    conversations.note(begun("c"))
    reasoning = text = ""
    for change in turn_begun("t", "c", "c.1"):
        conversations.note([change])
        if isinstance(change, ReplyGrew):
            reasoning += change.text if change.kind == "reasoning" else ""
            text += change.text if change.kind == "text" else ""
            found = await conversations.read(ME, "c")
            assert found
            reply = found.messages[-1]
            assert (reply.status, reply.reasoning, reply.message["content"]) == ("streaming", reasoning, text)


async def test_a_reply_that_is_long_and_mixed(conversations: Conversations) -> None:
    """Text and reasoning that take turns, a megabyte of them, come back in order, whatever is in them."""
    odd = ["\0", '"', "\\", "\n", "\u2028", "é", "😀", "x" * 20_000, "\ud800", "\\u00e9"]
    conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0), ReplyBegun("t", "m", 1.0)])
    deltas = [f"{piece}{number} " for number in range(10) for piece in odd]
    for number, delta in enumerate(deltas):
        conversations.note([ReplyGrew("m", "reasoning" if number % 7 == 0 else "text", delta)])
        if number % 30 == 0:
            await conversations.settled()
    conversations.note([ReplyCalled("m", call("a", "1")), ReplyCalled("m", call("b", "2"))])
    found = await conversations.read(ME, "c")
    assert found
    assert found.messages[-1].reasoning == "".join(deltas[::7])
    expected = "".join(delta for number, delta in enumerate(deltas) if number % 7)
    said = {"role": "assistant", "content": expected, "tool_calls": [call("a", "1"), call("b", "2")]}
    assert found.messages[-1].message == said


async def test_two_replies_of_a_turn_that_grow_at_once(conversations: Conversations) -> None:
    """Words of each stay in their order, also where a text is longer than a part."""
    replies, words = ("t.1", "t.2"), [f"{number} " * 500 for number in range(10)]
    conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0)])
    conversations.note([ReplyBegun("t", reply, 1.0) for reply in replies])
    for word in words:
        conversations.note([ReplyGrew(reply, "text", word) for reply in replies])
    assert [kept["content"] for kept in await messages_of(conversations, "c")][1:] == 2 * ["".join(words)]


async def test_a_stopped_turn_is_interrupted(conversations: Conversations) -> None:
    """The end of a turn is the end of a reply that was still being said, as it was ended."""
    conversations.note([*begun("c"), *turn_begun("t", "c", "c.1"), TurnEnded("t", "interrupted", "k", 1.0)])
    found = await conversations.read(ME, "c")
    assert found
    assert [kept.status for kept in found.messages] == ["complete", "interrupted"]
    conversations.note([*turn_begun("u", "c", "c.1"), ReplyEnded("u.1", "interrupted")])
    found = await conversations.read(ME, "c")
    assert found
    assert [kept.status for kept in found.messages] == ["complete", "interrupted", "interrupted"]


async def test_what_was_read_again_for_a_reply(conversations: Conversations) -> None:
    """It is kept with the reply, in whatever batches the words came, and is no part of what was said."""
    lost = {"reason": "messages_changed", "tokens": 3012, "seconds": None, "at": 4, "told": "3,012 tokens"}
    for reply, is_written_between in (("t", False), ("u", True)):
        conversations.note([*begun("c"), TurnBegun(reply, "c", "c.1", AGENT, 1.0), ReplyBegun(reply, reply, 1.0)])
        conversations.note([ReplyGrew(reply, "text", "Yes")])
        if is_written_between:
            await conversations.settled()
        conversations.note([ReplyEnded(reply, "complete", lost)])
    found = await conversations.read(ME, "c")
    assert found
    assert [kept.lost for kept in found.messages] == [None, lost, lost]
    assert found.messages[-1].message == {"role": "assistant", "content": "Yes"}


async def test_the_same_history_again_adds_nothing(conversations: Conversations) -> None:
    """A client that sends everything again, its answers too, adds no message; three times "retry" is three turns."""
    for number in range(3):
        key = f"c.{2 * number + 1}"
        conversations.note([*begun("c"), heard("c", "c.1", "seed", "What is in the note?")])
        for answer in range(number):
            conversations.note(
                [heard("c", f"c.{2 * answer + 2}", "p", "the answer"), heard("c", f"c.{2 * answer + 3}", "p", "retry")]
            )
        conversations.note(turn(f"t{number}", "c", key, f"c.{2 * number + 2}"))
        await conversations.settled()
    conversations.note(whole("c"))
    again = [turn_messages(f"t{number}") for number in range(3)]
    expected = [user("What is in the note?"), *again[0], user("retry"), *again[1], user("retry"), *again[2]]
    assert (await messages_of(conversations, "c"))[: len(expected)] == expected
    assert len(await conversations.rows(ME)) == 1


async def test_the_same_words_in_two_conversations(conversations: Conversations) -> None:
    """Two conversations may have the very same keys; each keeps its own."""
    for conversation in ("a", "b"):
        conversations.note(
            [
                ConversationBegun(conversation, ME, conversation, AGENT, 1.0),
                Heard(conversation, "k", "s", user("hi"), 1.0),
            ]
        )
    for conversation in ("a", "b"):
        assert await messages_of(conversations, conversation) == [user("hi")]


async def test_what_a_conversation_has_used(conversations: Conversations) -> None:
    """Steps are added up, the fill is the last one's, compactions are counted and told one by one."""
    details = CompactionDetails(1.5, 2, 3, 40, "What \ud800 was\0 said.")
    noted = KeptCompaction(3000, 900, "summary", 5000.0, details)
    conversations.note([*whole("c"), CompactionNoted("c", 3000, 900, "summary", 5000.0, details)])
    await conversations.settled()
    conversations.note(
        [StepUsed("c-t", "m", StepUsage(1), None, 5001.0), CompactionNoted("c", 900, 1, "digest", 6000.0)]
    )
    found = await conversations.read(ME, "c")
    assert found
    assert found.row.totals == Totals(StepUsage(121, 15, 1, 125, is_counted=True), 3, 2, Totals(StepUsage(), 0, 0))
    assert found.row.fill == FILL
    assert found.compactions == (noted, KeptCompaction(900, 1, "digest", 6000.0))
    alone = replace(found.row, totals=replace(found.row.totals, pruning=None))
    assert alone == await conversations.find(ME, "c")
    assert (found.row.id, found.row.agent, found.row.title) == ("c", AGENT, "What is in the note?")
    assert found.row.updated == 6000.0 > found.row.created


async def test_the_longest_known_beginning(conversations: Conversations) -> None:
    """The conversation that knows most of a history is meant, of several the one used last; without answer none is."""
    conversations.note([*whole("a"), *whole("b")])
    shared: list[Change] = [heard(one, key, "p", "shared") for one in ("a", "b") for key in ("s1", "s2")]
    conversations.note(shared)
    assert await conversations.look_up(ME, "", ["a.1", "x"]) is None
    assert await conversations.look_up(ME, "", ["a.1", "a.2", "x"]) == Known("a", frozenset({"a.1", "a.2"}))
    assert await conversations.look_up("another", "", ["a.1", "a.2", "x"]) is None
    assert await conversations.look_up(ME, "", ["a.1", "a.2", "b.1", "b.2"]) == Known("b", frozenset({"b.1", "b.2"}))
    assert await conversations.look_up(ME, "", ["s1", "s2"]) is None
    tie = ["a.2", "b.2", "s2", "new"]
    assert await conversations.look_up(ME, "", tie) == Known("b", frozenset({"b.2", "s2"}))
    conversations.note([heard("a", "later", "p", "later")])
    assert await conversations.look_up(ME, "", tie) == Known("a", frozenset({"a.2", "s2"}))
    assert await conversations.look_up(ME, "", []) is None


async def test_an_answer_that_only_the_client_has(conversations: Conversations) -> None:
    """An answer that a client sent is an answer, and so is one that was interrupted, where the history goes on."""
    answer = Heard("a", "a.2", "a.1", {"role": "assistant", "content": "yes"}, 1.0)
    conversations.note([*begun("a"), answer, *begun("b"), *turn_begun("t", "b", "b.1")])
    conversations.note([TurnEnded("t", "interrupted", "", 1.0)])
    assert await conversations.look_up(ME, "", ["a.1", "a.2"]) == Known("a", frozenset({"a.1", "a.2"}))
    assert await conversations.look_up(ME, "", ["a.1", "x"]) is None
    assert await conversations.look_up(ME, "", ["b.1", "x"]) == Known("b", frozenset({"b.1"}))
    assert await conversations.look_up(ME, "", ["b.1"]) is None


@pytest.mark.slow
async def test_a_long_history_is_looked_up(conversations: Conversations) -> None:
    """Of twelve hundred messages all are known but the last, and of another branch the first hundred."""
    conversations.note(begun("c"))
    conversations.note(
        [Heard("c", f"k{n}", f"k{n - 1}", {"role": "assistant", "content": "a"}, 1.0) for n in range(1200)]
    )
    keys = [f"k{n}" for n in range(1200)]
    assert await conversations.look_up(ME, "", [*keys, "new"]) == Known("c", frozenset(keys))
    branch = [*keys[:100], *(f"b{n}" for n in range(1100))]
    assert await conversations.look_up(ME, "", branch) == Known("c", frozenset(keys[:100]))


async def test_a_conversation_with_a_name(conversations: Conversations) -> None:
    """One with a name is found by it alone, by its owner alone, and by its id as well as by its name."""
    name = 'chat "7" – é\0'
    conversations.note([*begun("c", name=name), *begun("d", owner="another", name=name)])
    assert await conversations.look_up(ME, name, ["c.1", "x"]) == Known("c", frozenset({"c.1"}))
    assert await conversations.look_up("another", name, []) == Known("d", frozenset())
    assert await conversations.look_up(ME, "other", ["c.1"]) is None
    for asked in ("c", name):
        row = await conversations.find(ME, asked)
        assert row
        assert (row.id, row.name) == ("c", name)
        assert await conversations.read(ME, asked)
    assert await conversations.find(ME, "d") is None
    assert await conversations.read(ME, "d") is None
    assert await conversations.find(ME, "") is None


async def test_turns_with_more_than_a_reply(conversations: Conversations) -> None:
    """Found by their answer's key, or by their parent where they were interrupted before it was known."""
    single: list[Change] = [
        TurnBegun("s", "c", "c.2", AGENT, 1.0),
        ReplyBegun("s", "s.1", 1.0),
        ReplyGrew("s.1", "text", "yes"),
    ]
    conversations.note([*whole("c"), *single, TurnEnded("s", "complete", "c.3", 1.0)])
    kept = KeptTurn("c-t", "c.2", "c.1", AGENT, "complete", tuple(turn_messages("c-t")))
    assert await conversations.turns("c", ["c.1", "c.2", "c.3"]) == [kept]
    assert await conversations.turns("c", ["c.1", "c.3"]) == []
    assert await conversations.turns("other", ["c.2"]) == []
    conversations.note([*turn_begun("i", "c", "c.3"), *turn_went_on("i")])
    assert await conversations.turns("c", ["c.3"]) == []
    conversations.note([ReplyBegun("i", "i.4", 1.0), TurnEnded("i", "interrupted", "", 1.0)])
    (found,) = await conversations.turns("c", ["c.3"])
    assert (found.id, found.status, found.key) == ("i", "interrupted", "")
    assert list(found.messages) == [*turn_messages("i")[:2], {"role": "assistant", "content": 'He says "hi"'}]
    assert [one.id for one in await conversations.turns("c", ["c.3", "c.2"])] == ["c-t", "i"]


async def test_the_queue(conversations: Conversations) -> None:
    """Messages wait in order; what a turn has taken comes back until it has ended, what was dropped never."""
    items = [queued(f"q{number}", "c" if number % 2 else "d", f"message {number}") for number in range(6)]
    conversations.note([*begun("c"), *begun("d"), *turn_begun("t", "c", "c.1")])
    conversations.note([Queued(item) for item in items])
    assert await conversations.queue() == items
    conversations.note([QueueTaken("t", ("q1", "q3")), QueueDropped(("q0", "unknown")), Queued(items[2])])
    assert await conversations.queue() == items[1:]
    conversations.note([Added("t", "t.2", items[1].message, 1.0), TurnEnded("t", "complete", "k", 1.0)])
    assert await conversations.queue() == [items[2], items[4], items[5]]
    conversations.note([QueueDropped(("q1", "q3"))])
    assert await conversations.queue() == [items[2], items[4], items[5]]


async def test_what_was_saved(conversations: Conversations) -> None:
    """It is told of one owner, by the days of a place; late answers tell how long a prompt takes."""
    midnight = 20_000 * 86_400.0
    for name, owner, at in (("c", ME, -1.0), ("d", ME, 7_200.0), ("other", "another", 0.0)):
        conversations.note(begun(name, owner=owner))
        conversations.note(
            [
                CompactionNoted(name, 7000, 3000, "plan", midnight + at, DETAILS),
                TurnBegun(f"{name}-t", name, "p", AGENT, midnight + at),
                ReplyBegun(f"{name}-t", f"{name}-m", midnight + at + 2.5),
                ReplyGrew(f"{name}-m", "text", "So."),
                StepUsed(f"{name}-t", "a-model", StepUsage(900, 120, 0, 300), None, midnight + at + 4),
            ]
        )
    saved = await conversations.saved(ME)
    sums = sorted((each.conversation, each.day, each.freed, each.compactions, each.cached) for each in saved.days)
    assert sums == [
        ("c", 19_999, 4000, 1, 0),
        ("c", 20_000, 0, 0, 300),
        ("d", 20_000, 0, 0, 300),
        ("d", 20_000, 4000, 1, 0),
    ]
    assert set(saved.waits) == {(900, 2.5)}
    assert {each.day for each in (await conversations.saved(ME, 60)).days} == {20_000}
    assert {each.day for each in (await conversations.saved(ME, -180)).days} == {19_999}
    assert not (await conversations.saved("nobody")).days


async def test_the_list_of_conversations(conversations: Conversations) -> None:
    """The one used last comes first, in pages, and nobody else's is in it."""
    for number in range(7):
        conversations.note(begun(f"c{number}", f"  question\n {number}  " + "x" * 200))
    conversations.note([*begun("other", owner="another"), heard("c2", "new", "p", "again")])
    rows = await conversations.rows(ME)
    assert [row.id for row in rows] == ["c2", "c6", "c5", "c4", "c3", "c1", "c0"]
    assert rows[0].title == "question 2 " + "x" * 69
    page = await conversations.rows(ME, limit=3)
    assert page == rows[:3]
    assert await conversations.rows(ME, limit=3, before=page[-1].updated) == rows[3:6]
    assert [row.id for row in await conversations.rows("another")] == ["other"]
    assert len(await conversations.rows(ME, limit=-1)) == 1
    assert len(await conversations.rows(ME, limit=10**9)) == 7


SAID = ["Die Straße ist naïve ÄÖÜ", "日本語のテキスト", 'He said "hi" \\o/', "one\ntwo 100%_!", "плохо"]
FOUND = [
    ("Straße", 0), ("STRAßE", 0), ("NAÏVE", 0), ("naïve äöü", 0), ("日本語", 1), ("本", 1), ('say "hi', None),
    ('said "hi"', 2), ('"', 2), ("\\o/", 2), ("ONE\nTWO", 3), ("100%", 3), ("%_!", 3), ("ПЛОХО", 4),
    ("nothing", None), ("u65e5", None), ("ntwo", None), ("65", None), ("%", 3), ("role", None),
]  # fmt: skip


@pytest.mark.parametrize("place", ["client", "result", "reply", "list"])
async def test_search(conversations: Conversations, place: str) -> None:
    """Text is found whatever its case, wherever it was said, and only where it was."""
    for number, text in enumerate(SAID):
        name = f"c{number}"
        conversations.note([*begun(name, "a"), TurnBegun(f"t{name}", name, f"{name}.1", AGENT, 1.0)])
        if place == "client":
            conversations.note([heard(name, "k", "p", text)])
        elif place == "list":
            parts = [{"type": "text", "text": text, "extra": 1}, {"type": "image_url", "image_url": {"url": "data:,x"}}]
            conversations.note([Heard(name, "k", "p", {"role": "user", "content": parts}, 1.0)])
        elif place == "result":
            conversations.note([Added(f"t{name}", f"m{name}", result("1", text), 1.0)])
        else:
            conversations.note([ReplyBegun(f"t{name}", f"m{name}", 1.0)])
            conversations.note([ReplyGrew(f"m{name}", "text", letter) for letter in text])
    await conversations.settled()
    for search, found in FOUND:
        rows = await conversations.rows(ME, search=search)
        assert [row.id for row in rows] == ([] if found is None else [f"c{found}"]), search
    assert len(await conversations.rows(ME, search="a", limit=2)) == 2
    assert await conversations.rows("another", search="a") == []


@pytest.mark.slow
async def test_search_where_a_text_is_cut(conversations: Conversations) -> None:
    """A long reply is written a hundred words at a time and kept in parts; what stands across two of them is found."""
    conversations.note([*begun("c"), TurnBegun("t", "c", "c.1", AGENT, 1.0), ReplyBegun("t", "m", 1.0)])
    words = [f"{number:05} needle " for number in range(900)]
    for start in range(0, len(words), 100):
        conversations.note([ReplyGrew("m", "text", word) for word in words[start : start + 100]])
        await conversations.settled()
    fit = LARGEST_PART // len(words[0])
    cuts = range(fit, len(words), fit)
    assert len(cuts) > 2
    for first in cuts:
        found = await conversations.rows(ME, search=f"{words[first - 1]}{words[first]}".strip().upper())
        assert [row.id for row in found] == ["c"], first


async def test_deleting(conversations: Conversations) -> None:
    """It is gone with all that belongs to it, for its owner alone, and what still comes for it is left out."""
    conversations.note([*whole("c"), *whole("d"), *turn_begun("t", "c", "c.2"), Queued(queued("q", "c"))])
    assert not await conversations.delete("another", "c")
    assert await conversations.delete(ME, "c")
    assert not await conversations.delete(ME, "c")
    conversations.note([*turn_went_on("t"), *turn_ended("t", "c.4"), heard("c", "c.5", "c.4", "more")])
    await conversations.settled()
    assert [row.id for row in await conversations.rows(ME)] == ["d"]
    assert await conversations.read(ME, "c") is None
    assert await conversations.queue() == []
    assert await conversations.turns("c", ["c.2", "c.4"]) == []
    assert await conversations.look_up(ME, "", ["c.1", "c.2"]) is None
    conversations.note(begun("c", "anew"))
    assert await messages_of(conversations, "c") == [user("anew")]
    assert await messages_of(conversations, "d") == [user("What is in the note?"), *turn_messages("d-t")]


async def test_what_refers_to_nothing_is_left_out(
    conversations: Conversations, caplog: pytest.LogCaptureFixture
) -> None:
    """Changes of conversations, turns and replies that are not there hold up nothing and say nothing."""
    lost: list[Change] = [
        heard("gone", "k", "p", "lost"),
        *turn("t", "gone", "k", "l"),
        CompactionNoted("gone", 2, 1, "digest", 1.0),
        Queued(queued("q", "gone")),
        QueueTaken("t", ("q", "r")),
        QueueDropped(("q",)),
    ]
    caplog.clear()
    for change in lost:
        conversations.note([change])
    conversations.note([*whole("c"), *lost])
    assert await messages_of(conversations, "c") == [user("What is in the note?"), *turn_messages("c-t")]
    assert [row.id for row in await conversations.rows(ME)] == ["c"]
    assert await conversations.queue() == []
    assert not [record for record in caplog.records if "cannot be kept" in record.getMessage()]


async def test_what_is_no_json_is_left_out(conversations: Conversations, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever cannot be kept is left out with a warning, and what comes with it is kept."""
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    poison: list[Change] = [
        Heard("c", "p1", "s", {"role": "user", "content": object()}, 1.0),
        Heard("c", "p2", "s", {"role": "user", "content": deep}, 1.0),
        Heard("c", "p3", "s", {"role": "user", "content": [10**5000]}, 1.0),
        Heard("c", "\ud800", "s", user("x"), 1.0),
        Heard("c", "a\0b", "s", user("x"), 1.0),
        Heard("c", "p6", "s", user("x"), math.nan),
        StepUsed("t", "m", StepUsage(2**70), None, 1.0),
        StepUsed("t", "m", StepUsage(-1), None, 1.0),
        CompactionNoted("c", 2**70, 1, "digest", 1.0),
        CompactionNoted("c", 2, 1, "digest", 1.0, CompactionDetails(1.0, 2**70, 1, 1, "")),
        CompactionNoted("c", 2, 1, "digest", 1.0, CompactionDetails(math.inf, 1, 1, 1, "")),
        ReplyCalled("t.1", {"bad": {1, 2}}),
        Added("t", "bad", {"role": "tool", "content": b"bytes"}, 1.0),
        Queued(queued("\ud800", "c")),
        ReplyGrew("\udfff", "text", "x"),
    ]
    conversations.note([*begun("c"), *turn_begun("t", "c", "c.1")])
    for change in poison:
        conversations.note([change, ReplyGrew("t.1", "text", ".")])
    found = await conversations.read(ME, "c")
    assert found
    assert [kept.message for kept in found.messages] == [
        user("What is in the note?"),
        {"role": "assistant", "content": "Let me look." + "." * len(poison)},
    ]
    assert await conversations.queue() == []
    told = [record for record in caplog.records if "cannot be kept" in record.getMessage()]
    assert {record.levelname for record in told} == {"WARNING"}
    assert len(told) >= len(poison)


async def test_a_turn_belongs_to_its_conversation(conversations: Conversations) -> None:
    """It is found for its owner alone, as soon as it has begun."""
    conversations.note(whole("c"))
    conversations.note([TurnBegun("t", "c", "c.2", "reader", 1.0)])
    for held in ("c-t", "t"):
        assert await conversations.holder(ME, held) == "c"
        assert await conversations.holder("another", held) is None
    for odd in ("", "\0", "\ud800", "x" * 100_000, "nobody"):
        assert await conversations.holder(ME, odd) is None
        assert not await conversations.delete_turn(ME, odd)


async def test_a_deleted_turn_is_gone(conversations: Conversations) -> None:
    """What was said in it cannot be read, found or put back, and all else of its conversation stays."""
    conversations.note(whole("c"))
    conversations.note([Heard("c", "c.3", "c.2", user("And then?"), 1.0)])
    conversations.note(turn("u", "c", "c.3", "c.4"))
    assert not await conversations.delete_turn("another", "u")
    assert await conversations.delete_turn(ME, "u")
    assert await messages_of(conversations, "c") == [
        user("What is in the note?"),
        *turn_messages("c-t"),
        user("And then?"),
    ]
    assert await conversations.holder(ME, "u") is None
    assert await conversations.turns("c", ["c.4"]) == []
    assert await conversations.look_up(ME, "", ["c.1", "c.2", "c.3", "c.4"]) == Known(
        "c", frozenset({"c.1", "c.2", "c.3"})
    )
    assert not await conversations.delete_turn(ME, "u")


async def test_what_is_said_in_a_deleted_turn_is_lost(conversations: Conversations) -> None:
    """Nothing of it comes back, and what is said elsewhere at the same time is kept."""
    conversations.note(whole("c"))
    conversations.note(
        [TurnBegun("u", "c", "c.2", "reader", 1.0), ReplyBegun("u", "u.1", 1.0), ReplyGrew("u.1", "text", "One")]
    )
    assert await conversations.delete_turn(ME, "u")
    conversations.note([ReplyGrew("u.1", "text", " two"), *turn("v", "c", "c.2", "c.5")])
    assert (await messages_of(conversations, "c"))[4:] == turn_messages("v")


PANGRAM = "Съешь же ещё этих мягких французских булок, да выпей чаю"


async def test_search_for_many_different_letters(conversations: Conversations) -> None:
    """However long the text is, and however many letters it has, it is found as a whole and in any case."""
    odd = "".join(letter for letter in map(chr, range(0xA0, 0x500)) if letter.lower().upper() == letter)
    for name, text in (("c", PANGRAM), ("d", odd), ("e", PANGRAM[:30]), ("f", "x" * 60_000)):
        conversations.note(begun(name, text))
    await conversations.settled()
    for search, found in ((PANGRAM.upper(), "c"), (odd.lower(), "d"), ("X" * 60_000, "f")):
        assert [row.id for row in await conversations.rows(ME, search=search)] == [found]
    assert await conversations.rows(ME, search=PANGRAM + "!") == []


async def test_metadata_is_replaced_as_a_whole(conversations: WriteBehindConversations) -> None:
    """A conversation has the last metadata that it was given, whatever is in it, and no other one has it."""
    conversations.note([*begun("c"), *begun("d")])
    for metadata in ({"a": "é \ud800 \0", "b": ""}, {"c": "'; DROP TABLE turns; --"}, {}):
        await conversations.describe("c", metadata)
        rows = {row.id: row.metadata for row in await conversations.rows(ME)}
        assert rows == {"c": metadata, "d": {}}
    await conversations.describe("nothing", {"a": "b"})
    assert len(await conversations.rows(ME)) == 2


async def test_a_title_that_a_person_gave_stays(conversations: WriteBehindConversations) -> None:
    """It is shown and found, whatever is in it, also after later turns; without it the first question's is back."""
    conversations.note([*whole("c"), *whole("d")])
    first = {row.id: row.title for row in await conversations.rows(ME)}
    for title in ("Ärger mit 'Öl' ☕ 100 %", '\\ " _ %', "'; DROP TABLE turns; --"):
        await conversations.rename("c", title)
        conversations.note(whole("c"))
        assert {row.id: row.title for row in await conversations.rows(ME)} == {**first, "c": title}
        for search in (title, title.upper(), title[2:5]):
            assert [row.id for row in await conversations.rows(ME, search=search)] == ["c"]
        assert await conversations.rows("somebody else", search=title) == []
        found = await conversations.find(ME, "c")
        assert found
        assert found.title == title
    await conversations.rename("c", "")
    assert {row.id: row.title for row in await conversations.rows(ME)} == first
    assert await conversations.rows(ME, search="DROP TABLE") == []


async def test_what_a_person_did_about_compactions(conversations: WriteBehindConversations) -> None:
    """Focus, edited summary, undo and pins are read as they were noted, each of its own compaction or message."""
    details = CompactionDetails(1.5, 2, 3, 40, "They spoke.", "Keep \ud800 the boats.")
    noted = [CompactionNoted("c", 3000, 900, "plan", at, details) for at in (5000.5, 6000.25)]
    conversations.note([*whole("c"), *noted, *whole("d")])
    await conversations.edit_summary("c", 5000.5, "Mine \ud800.")
    await conversations.undo_compaction("c", 6000.25)
    found = await conversations.read(ME, "c")
    assert found
    edited, undone = found.compactions
    assert (edited.edited, edited.undone, edited.details) == ("Mine \ud800.", None, details)
    assert (undone.edited, undone.undone is not None, undone.details) == (None, True, details)
    question, answer = found.messages[0], found.messages[-1]
    for message in (question, answer):
        await conversations.pin("c", message.id, is_pinned=True)
    assert await conversations.pins("c") == {question.key, answer.key}
    await conversations.pin("c", question.id, is_pinned=False)
    assert await conversations.pins("c") == {answer.key}
    again = await conversations.read(ME, "c")
    assert again
    assert [kept.id for kept in again.messages if kept.is_pinned] == [answer.id]
    assert await conversations.pins("d") == await conversations.pins("\0") == frozenset()


async def test_message_is_deleted_and_what_came_after_it_stays(conversations: WriteBehindConversations) -> None:
    """A client's message goes out of the middle: the next message and the turn follow the one before it."""
    conversations.note(begun("c"))
    conversations.note([Heard("c", f"k{n}", f"k{n - 1}" if n else "c.1", user(f"{n}"), 1.0) for n in range(3)])
    conversations.note([TurnBegun("t", "c", "k1", AGENT, 2.0), Added("t", "m", user("a note"), 2.0)])
    found = await conversations.read(ME, "c")
    assert found
    await conversations.unhear("c", next(kept for kept in found.messages if kept.key == "k1"))
    left = await conversations.read(ME, "c")
    assert left
    assert [(kept.message["content"], kept.parent) for kept in left.messages[-3:]] == [
        ("0", "c.1"),
        ("2", "k0"),
        ("a note", "k0"),
    ]
    assert [row.id for row in await conversations.rows(ME, search="2")] == ["c"]
    assert await conversations.look_up(ME, "c", ["k1", "k2"]) == Known("c", frozenset({"k2"}))
