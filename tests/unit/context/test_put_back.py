"""What a client never saw stands in its history again, where its words are still the ones that were said."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kept_turns import called, kept_turn, reply, result, shown, user
from ledger_chats import chain_of, system
from random_histories import always_the_same

from elbowroom.agents.answer import BETWEEN_STEPS
from elbowroom.context.conversation import KeptTurn
from elbowroom.context.ledger import Chain
from elbowroom.context.prompt import items_of
from elbowroom.context.put_back import BETWEEN_REPLIES, Expanded, expanded
from elbowroom.context.templates.repair import MISSING_RESULT, repair
from elbowroom.context.transcript import Message, text_of

Json = dict[str, Any]
ASK = user("What does the note say?")
MORE = user("And the other one?")
READ: list[Json] = [
    reply("Let me look.", called("aaaaaaaa1")),
    result("aaaaaaaa1"),
    reply("", called("aaaaaaaa2"), called("aaaaaaaa3", '{"path": "b.md"}')),
    result("aaaaaaaa2", "Two."),
    result("aaaaaaaa3", "Three."),
    reply("It was painted."),
]
AS_READ: list[Json] = [*READ[:2], {**READ[2], "content": None}, *READ[3:]]
SAID = reply(shown(READ))


def told(messages: Sequence[Message], *turns: KeptTurn, place: int = -1) -> Expanded:
    """Return a history of ada's with these turns put back."""
    return expanded(items_of(messages, chain_of(messages)), chain_of(messages), place, turns)


def test_what_was_read_is_read_again() -> None:
    """Calls and results stand where they stood in the turn, and the chain's ends are behind them."""
    messages = [system(), ASK, SAID, system("It is noon."), MORE]
    whole = told(messages, kept_turn([ASK], READ, SAID))
    assert stands(whole) == [system(), ASK, *AS_READ, system("It is noon."), MORE]
    keys = ("", *chain_of(messages).keys, "")
    assert [item.key for item in whole.items] == [*keys[:2], *keys[2:3] * 6, "", keys[3]]
    assert [turn.id for turn in whole.turns] == ["turn_1"]


def test_the_text_between_steps_is_that_of_answers() -> None:
    """An answer is told apart from its replies by the very text that joins them."""
    assert BETWEEN_REPLIES == BETWEEN_STEPS


def test_what_a_compaction_covers_is_left_alone() -> None:
    """Behind the place that a compaction ends at turns are put back, before it none are."""
    messages = [ASK, SAID, MORE, SAID, ASK]
    turns = [kept_turn([ASK], READ, SAID), kept_turn(messages[:3], READ, SAID, number=2)]
    assert [turn.id for turn in told(messages, *turns, place=1).turns] == ["turn_2"]
    assert stands(told(messages, *turns, place=1)) == [
        ASK,
        SAID,
        MORE,
        *renamed(AS_READ, told(messages, turns[1])),
        ASK,
    ]
    assert stands(told(messages, *turns, place=3)) == messages


def stands(whole: Expanded) -> list[Message]:
    """Return the messages of a history."""
    return [item.message for item in whole.items]


def renamed(messages: list[Json], whole: Expanded) -> list[Message]:
    """Return as many messages as these, as they stand before the last one of a history."""
    return stands(whole)[-len(messages) - 1 : -1]


def test_ids_that_are_taken() -> None:
    """The same turn twice, as no client would send it: each call has an id of its own, and its own result."""
    messages = [ASK, SAID, MORE, SAID, ASK]
    whole = stands(told(messages, kept_turn([ASK], READ, SAID), kept_turn(messages[:3], READ, SAID, number=2)))
    assert len(ids_in(whole)) == len(set(ids_in(whole))) == 6
    assert repair(whole) == whole


@pytest.mark.parametrize(
    "answer",
    [
        reply("Let me look.\n\nIt was never painted."),
        reply("It was painted."),
        user(SAID["content"]),
        {**SAID, "tool_calls": [called("bbbbbbbb1", name="look")]},
    ],
    ids=["edited", "cut", "another role", "with a call"],
)
def test_another_answer_stays(answer: Json) -> None:
    """Where the client has other words than were said, it has them all."""
    messages = [ASK, answer, MORE]
    assert stands(told(messages, kept_turn([ASK], READ, SAID))) == messages


def test_other_agents_and_owners() -> None:
    """Turns are found by keys, in which agent and owner are: those of others are not put back."""
    messages = [ASK, SAID, MORE]
    turns = [kept_turn([ASK], READ, SAID, agent="writer"), kept_turn([ASK], READ, SAID)]
    assert not told(messages, turns[0]).turns
    bob = Chain.of("bob", "coder", messages)
    assert not expanded(items_of(messages, bob), bob, -1, turns).turns


def test_an_answer_to_be_continued() -> None:
    """An answer at the end goes on from its own words; what was read for it is not put between."""
    assert stands(told([ASK, SAID], kept_turn([ASK], READ, SAID))) == [ASK, SAID]


def test_an_answer_that_nobody_continues() -> None:
    """What was read for an answer at the end stands before it where the model is not to go on with it."""
    chain, turns = chain_of([ASK, SAID]), [kept_turn([ASK], READ, SAID)]
    whole = expanded(items_of([ASK, SAID], chain), chain, -1, turns, is_continued=False)
    assert stands(whole) == stands(told([ASK, SAID, MORE], *turns))[:-1]
    assert len(stands(whole)) > 2


def test_words_of_the_client() -> None:
    """The last reply is the client's, with what it keeps beside the text; a lone one in the very parts it has."""
    said = {**SAID, "content": f"\n{SAID['content']}\n ", "reasoning_content": "Hm."}
    whole = stands(told([ASK, said, MORE], kept_turn([ASK], READ, SAID)))
    assert whole[-2] == {"role": "assistant", "content": "It was painted.\n ", "reasoning_content": "Hm."}
    turn = [READ[2], *READ[3:5], READ[5]]
    parts = reply([{"type": "text", "text": "It was painted."}])  # type: ignore[arg-type]
    assert stands(told([ASK, parts, MORE], kept_turn([ASK], turn, reply("It was painted."))))[-2] == parts


def test_thoughts_in_the_text() -> None:
    """Thoughts that the client has folded away stay before what is read again, and are not added to its own words."""
    turn = [reply("<think>Hm.</think>Let me look.", called("aaaaaaaa1")), result("aaaaaaaa1"), reply("Painted.")]
    said = reply("Let me look.\n\nPainted.")
    whole = stands(told([ASK, said, MORE], kept_turn([ASK], turn, reply(shown(turn)))))
    assert whole == [ASK, *turn, MORE]


def test_messages_from_the_queue() -> None:
    """What a person said while the agent worked stands where the agent was told."""
    turn = [*READ[:2], user("Be quick."), READ[5]]
    said = reply(shown(turn))
    assert stands(told([ASK, said, MORE], kept_turn([ASK], turn, said))) == [ASK, *turn, MORE]


def test_calls_of_the_client() -> None:
    """A reply may call the client's tools and the server's: the client's keep the ids that it knows them by."""
    mine, theirs = called("aaaaaaaa1"), called("aaaaaaaa9", name="look")
    said = reply("Both.", called("client-id", name="look"))
    messages = [ASK, said, result("client-id", "Nothing."), MORE]
    turn = [reply("Both.", mine, theirs), result("aaaaaaaa1")]
    whole = stands(told(messages, kept_turn([ASK], turn, reply("Both.", theirs))))
    assert whole == [ASK, reply("Both.", mine, said["tool_calls"][0]), result("aaaaaaaa1"), *messages[2:]]
    assert repair(whole) == whole


def test_calls_without_results() -> None:
    """A turn that was stopped has called what never answered: its words stay, and the calls that have results."""
    turn = [reply("Let me look.", called("aaaaaaaa1"), called("aaaaaaaa2")), result("aaaaaaaa2", "Two.")]
    said = reply("Let me look.")
    whole = stands(told([ASK, said, MORE], kept_turn([ASK], turn, said, status="interrupted")))
    assert whole == [ASK, reply("Let me look.", called("aaaaaaaa2")), result("aaaaaaaa2", "Two."), MORE]
    nothing = kept_turn([ASK], [reply("Let me look.", called("aaaaaaaa1"))], said, status="interrupted")
    assert stands(told([ASK, said, MORE], nothing)) == [ASK, said, MORE]


BROKEN_OFF = [*READ[:2], reply("It was pain")]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (shown(BROKEN_OFF), BROKEN_OFF),
        (shown(BROKEN_OFF) + "ted in spring.", [*READ[:2], reply("It was painted in spring.")]),
        ("Let me look.\n\nIt was", BROKEN_OFF),
        ("Let me look.", BROKEN_OFF),
        ("Let me", BROKEN_OFF),
        ("It was painted.", [reply("It was painted.")]),
        ("", BROKEN_OFF),
    ],
    ids=["all of it", "more than is kept", "less", "up to the call", "not even that", "another answer", "nothing"],
)
def test_a_turn_that_nobody_ended(answer: str, expected: list[Json]) -> None:
    """The process died: what was kept of the turn stands where the client has less of it; it may have more."""
    messages = [ASK, reply(answer), MORE]
    assert stands(told(messages, kept_turn([ASK], BROKEN_OFF))) == [ASK, *expected, MORE]


@pytest.mark.parametrize("turn", [BROKEN_OFF, [reply("It was pain")]], ids=["several messages", "one reply"])
def test_an_answer_that_the_client_has_lost(turn: list[Json]) -> None:
    """Open WebUI drops an answer whose socket breaks: what was kept of it stands between the person's messages.

    Only once the person has gone on: until then the same question is asked again.
    """
    kept = kept_turn([ASK], turn)
    whole = told([system(), ASK, system("Noon."), MORE], kept)
    assert stands(whole) == [system(), ASK, *turn, system("Noon."), MORE]
    assert whole.lost == kept
    later = told([ASK, MORE, reply("Fine."), user("And then?")], kept)
    assert stands(later) == [ASK, *turn, MORE, reply("Fine."), user("And then?")]
    assert later.lost is None
    assert stands(told([ASK], kept)) == [ASK]
    assert stands(told([ASK, MORE], kept_turn([ASK], [reply("")]))) == [ASK, MORE]


def test_the_last_of_several_lost_answers() -> None:
    """A question that was asked twice in vain has the last answer; a whole one goes before all."""
    kept = [kept_turn([ASK], [reply(f"Answer {number}")], number=number) for number in range(2)]
    assert stands(told([ASK, MORE], *kept)) == [ASK, reply("Answer 1"), MORE]
    assert stands(told([ASK, reply("Mine."), MORE], *kept)) == [ASK, reply("Mine."), MORE]


def test_more_than_was_kept_behind_a_result() -> None:
    """The last reply had not been written yet: the client's words are one."""
    messages = [ASK, reply("Let me look.\n\nIt was painted."), MORE]
    assert stands(told(messages, kept_turn([ASK], READ[:2]))) == [ASK, *READ[:2], READ[5], MORE]


@pytest.mark.parametrize("answer", [shown(READ[:2]), "Let me look.\n\nIt was painted."])
def test_what_was_taken_in_before_a_turn_broke_off(answer: str) -> None:
    """A queued message left the queue when the model read it: it is in the turn that nobody ended, or nowhere."""
    turn = [*READ[:2], user("Be quick."), READ[5]]
    whole = told([ASK, reply(answer), MORE], kept_turn([ASK], turn))
    assert stands(whole) == [ASK, *turn, MORE]


def ids_in(messages: Sequence[Message]) -> list[str]:
    """Return the ids of all calls."""
    return [call["id"] for message in messages for call in message.get("tool_calls") or ()]


IDS = st.sampled_from(["aaaaaaaa1", "aaaaaaaa2", "aaaaaaaa3", "aaaaaaaa4"])
TEXTS = st.sampled_from(["", "Let me look.", "Fine.\n", " One.\n\nTwo.", "<think>Hm.</think>Yes."])


@st.composite
def turns(draw: st.DrawFn) -> list[Json]:
    """Draw the messages of a turn: sound ones, and such as a stop or a failing store leaves behind."""
    messages: list[Json] = []
    for _ in range(draw(st.integers(0, 3))):
        ids = draw(st.lists(IDS, min_size=1, max_size=3))
        messages.append(reply(draw(TEXTS), *map(called, ids)))
        messages += [result(call_id, f"Result {draw(st.integers(0, 9))}.") for call_id in draw(st.permutations(ids))]
        if draw(st.booleans()):
            messages.append(user("Be quick."))
    messages.append(reply(draw(TEXTS)))
    missing = draw(st.sets(st.integers(0, 12), max_size=2)) if draw(st.booleans()) else set()
    return [message for at, message in enumerate(messages) if at not in missing]


@st.composite
def conversations(draw: st.DrawFn) -> tuple[list[Json], list[KeptTurn], int]:
    """Draw what a client sends, edited here and there, with turns that were kept, and a place in its chain."""
    messages: list[Json] = [system()] if draw(st.booleans()) else []
    kept: list[KeptTurn] = []
    for number in range(draw(st.integers(1, 4))):
        messages.append(user(f"Question {number}?"))
        turn = draw(turns())
        said = reply(shown(turn))
        own = called(f"client{number:03d}", name="look")
        calls_client = bool(turn) and turn[-1]["role"] == "assistant" and draw(st.booleans())
        if calls_client:
            turn[-1] = {**turn[-1], "tool_calls": [*turn[-1].get("tool_calls", ()), own]}
            said = {**said, "tool_calls": [own]}
        known = draw(st.sampled_from([said, said, said, None]))
        kept.append(kept_turn(messages, turn, known, number=number))
        cut = said["content"][: draw(st.integers(0, 20))]
        texts = [said["content"], said["content"], "Other words.", cut, f"{said['content']} And more."]
        messages.append({**said, "content": draw(st.sampled_from(texts))})
        if calls_client:
            messages.append(result(own["id"]))
    if draw(st.booleans()):
        messages.append(user("Thanks."))
    return messages, kept, draw(st.integers(-1, len(chain_of(messages).keys) - 1))


@always_the_same
@given(conversations())
def test_whatever_was_kept(drawn: tuple[list[Json], list[KeptTurn], int]) -> None:
    """The history is sound, holds all words of the client in order, and its chain fits it; the same each time."""
    messages, kept, place = drawn
    before = chain_of(messages)
    whole = expanded(items_of(messages, before), before, place, kept)
    assert repair(messages) == messages
    assert repair(stands(whole)) == stands(whole)
    assert whole == expanded(items_of(messages, before), before, place, kept)
    covered = before.ends[place] if place >= 0 else 0
    assert stands(whole)[:covered] == messages[:covered]
    begin = 0
    ends = {item.key: at for at, item in enumerate(whole.items, 1) if item.key}
    for own, end in zip(before.ends, map(ends.__getitem__, before.keys), strict=True):
        message, instead = messages[own - 1], stands(whole)[begin:end]
        if message["role"] != "assistant":
            assert instead[-1] == message
        said = " ".join(text_of(one) for one in instead if one["role"] == "assistant")
        assert [word for word in text_of(message).split() if message["role"] == "assistant" and word not in said] == []
        assert {*ids_in([message])} <= {*ids_in(instead)}
        begin = end


@always_the_same
@given(turns())
def test_whole_turns(turn: list[Json]) -> None:
    """Of a turn that the client has as it was, no result is lost whose call is there."""
    said = reply(shown(turn))
    whole = stands(told([ASK, said, MORE], kept_turn([ASK], turn, said)))
    answered = [one for one in repair(turn) if one["role"] == "tool" and one["content"] != MISSING_RESULT]
    assert [one["content"] for one in whole if one["role"] == "tool"] == [one["content"] for one in answered]
