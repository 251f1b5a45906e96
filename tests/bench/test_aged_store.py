"""The store of a server that has long been in use, as the bench makes it."""

from pathlib import Path

import pytest
from aged import KINDS, AgedRound, Chats, Kind, Visitor
from aged_rows import rows_of_aged, rows_of_growth, rows_of_kind
from aged_store import make
from growth import Growth
from past import AGENT, GREETING, LONG_NAME, OWNER, SYSTEM, Past, id_of, talk
from servers import AGED, EMPTY

from elbowroom.context.ledger import Chain
from elbowroom.settings.model import StoreSettings
from elbowroom.store.store import open_store

SMALL = Past(conversations=5, turns=3, long=4)


def keys(number: int, turns: int, question: str) -> list[str]:
    """Return the keys of a stored conversation with another question after it."""
    history = [SYSTEM, *talk(number, turns), {"role": "user", "content": question}]
    return list(Chain.of(OWNER, AGENT, history).keys)


async def test_a_stored_conversation_is_known_again(tmp_path: Path) -> None:
    """A server that opens the store finds each conversation by its history, and the long one by its name as well."""
    await make(tmp_path, SMALL)
    store = open_store(StoreSettings(), {"ELBOWROOM_DATA_DIR": str(tmp_path)})
    try:
        for number in range(SMALL.conversations):
            known = await store.conversations.look_up(OWNER, "", keys(number, SMALL.turns, "And now?"))
            assert known is not None
            assert known.conversation == id_of(number)
            assert len(known.kept) == 2 * SMALL.turns
        long = await store.conversations.look_up(OWNER, LONG_NAME, [])
        assert long is not None
        assert long.conversation == id_of(SMALL.conversations)
    finally:
        await store.aclose()


async def test_the_store_has_as_many_messages_as_it_says(tmp_path: Path) -> None:
    """Each conversation is kept whole: a system prompt, then questions and answers in turn."""
    await make(tmp_path, SMALL)
    store = open_store(StoreSettings(), {"ELBOWROOM_DATA_DIR": str(tmp_path)})
    try:
        assert len(await store.conversations.rows(OWNER)) == SMALL.conversations + 1
        kept = await store.conversations.read(OWNER, id_of(1))
        assert kept is not None
        said = [{"role": of.message["role"], "content": of.message["content"]} for of in kept.messages]
        assert said == [SYSTEM, *talk(1, SMALL.turns)]
    finally:
        await store.aclose()


def test_every_third_conversation_begins_with_the_same_words() -> None:
    """They share their first message, and no other."""
    firsts = [talk(number, 1)[0]["content"] for number in range(9)]
    assert [number for number, first in enumerate(firsts) if first == GREETING] == [0, 3, 6]
    assert len(set(firsts)) == 7


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_no_two_requests_of_a_visit_are_the_same(kind: Kind) -> None:
    """No server can answer a measured request from what it has kept of the same bytes."""
    asked = kind.asked(Visitor("m", "round 1", 2, SMALL))
    bodies = asked.opening + asked.measured
    assert asked.measured
    assert len(set(bodies)) == len(bodies)


def aged_round(control: float, year: float, empty: float, broken: tuple[str, ...] = ()) -> AgedRound:
    """Return a round in which the first contents of new chats took so many milliseconds."""
    taken = {"control": control, f"elbowroom{AGED}": year, f"elbowroom{EMPTY}": empty}
    chats = [Chats(server, KINDS[0].name, (of / 1000,), broken) for server, of in taken.items()]
    return AgedRound(tuple(chats), ())


def verdicts(*rounds: AgedRound) -> dict[str, str]:
    """Return the verdicts on new chats: of their median, of their 99th percentile, and of the two stores compared."""
    rows = rows_of_kind(KINDS[0], rounds)
    return {row.target: row.verdict for row in rows if row.target != "-"}


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        pytest.param([(9.0, 12.0, 11.9)] * 2, ["pass", "pass", "pass"], id="3 ms more than the control, as if empty"),
        pytest.param([(1.0, 4.5, 4.4), (2.0, 6.0, 6.0)], ["MISSED", "pass", "pass"], id="over 3 ms more"),
        pytest.param([(1.0, 14.0, 14.0)], ["MISSED", "MISSED", "pass"], id="over 12 ms more"),
        pytest.param([(1.0, 4.0, 3.0)], ["pass", "pass", "MISSED"], id="1.5 times what an empty store adds"),
        pytest.param([(1.0, 2.4, 2.0)], ["pass", "pass", "pass"], id="1.4 times, and within the noise"),
    ],
)
def test_what_is_added_is_held_against_the_control_and_the_empty_store(
    rounds: list[tuple[float, float, float]], expected: list[str]
) -> None:
    """Differences and ratios are taken within the rounds, and half a millisecond is never too much."""
    found = verdicts(*(aged_round(*of) for of in rounds))
    assert list(found.values()) == expected
    assert list(found) == ["at most 3 added", "at most 12 added", "at most 1.3, or 0.5 ms more"]


def test_wrong_answers_leave_no_verdict() -> None:
    """A visit with a wrong answer makes the rows of its kind broken."""
    assert set(verdicts(aged_round(1.0, 2.0, 2.0, ("lost",))).values()) == {"broken"}


def test_a_run_without_elbowroom_has_no_aged_rows() -> None:
    """The control alone has no store."""
    assert rows_of_aged([AgedRound((Chats("control", KINDS[0].name, (0.001,)),), ())]) == []


@pytest.mark.parametrize(("last", "verdict"), [(115.0, "pass"), (116.0, "MISSED")])
def test_memory_is_held_against_that_after_the_first_requests(last: float, verdict: str) -> None:
    """What counts is how much more it is."""
    row = rows_of_growth([Growth("elbowroom", 100.0, last)])[0]
    assert row.verdict == verdict
    assert row.spreads["elbowroom"].median == last - 100.0
