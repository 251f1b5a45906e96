"""A conversation that comes again has the objects it had before, and nothing is made of them again."""

import copy
import json
import operator
import random
from collections.abc import Mapping
from typing import Any

import pytest
from cases import case

from elbowroom.agents.request import parse_chat_request
from elbowroom.caches import Histories
from elbowroom.context.ledger import Chain
from elbowroom.errors import RequestError
from elbowroom.tokens.anchoring import conversation_keys


def said(*texts: str) -> list[dict[str, Any]]:
    """Return a history of a person and a model."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def test_what_comes_again_is_the_same_and_made_once() -> None:
    """Also where the last question was written anew."""
    histories, asked = Histories("h"), list[str]()

    def make(message: Mapping[str, Any]) -> str:
        asked.append(message["content"])
        return f"/{message['content']}"

    first = histories.of(said("a", "b", "c"))
    assert first.each(make) == ["/a", "/b", "/c"]
    again = histories.of(said("a", "b", "x", "y"))
    assert again.each(make) == ["/a", "/b", "/x", "/y"]
    assert asked == ["a", "b", "c", "x", "y"]
    assert all(map(operator.is_, again.messages[:2], first.messages))
    assert histories.of(said("a", "b", "x", "y")) is again
    assert first.each(make) == ["/a", "/b", "/c"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"role": "user", "content": "a"}, {"content": "a", "role": "user"}),
        ({"role": "user", "content": "a", "n": 1}, {"role": "user", "content": "a", "n": True}),
        ({"role": "user", "content": "a", "n": [1.0]}, {"role": "user", "content": "a", "n": [1]}),
        (
            {"role": "user", "content": "a", "n": {"a": 0, "b": 1}},
            {"role": "user", "content": "a", "n": {"b": 1, "a": 0}},
        ),
        ({"role": "user", "content": "a"}, {"role": "assistant", "content": "a"}),
    ],
)
def test_equal_is_not_the_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Another order of keys or another kind of number is another message: each is sent on as it came."""
    histories = Histories("h")
    histories.of([one])
    assert json.dumps(histories.of([other]).messages) == json.dumps([other])


def test_memory_is_bounded() -> None:
    """What was used last stays; a history that is too large is not kept, nor an empty one."""
    histories = Histories("h", 10_000)
    kept = [histories.of(said(f"{number}" * 1000)) for number in range(100)]
    assert histories.size <= 10_000
    assert len(histories) == 3
    assert histories.of(said("99" * 1000)) is kept[99]
    assert histories.of(said("0" * 1000)) is not kept[0]
    before = len(histories)
    histories.of(said("x" * 20_000))
    histories.of([])
    assert len(histories) == before
    for number in range(100):
        kept[0].keep(number, [None])
    assert sum(bool(kept[0].known(number)) for number in range(100)) <= 16


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "x" * 5000}}


@pytest.mark.parametrize(
    "large",
    [
        {"role": "assistant", "tool_calls": [CALL]},
        {"content": "a", "x": "y" * 5000},
        {"content": "a", "z" * 5000: "y"},
        {"role": "user", "content": [""] * 500},
        {"role": "user", "content": "a", "x": dict.fromkeys(map(str, range(500)), "")},
    ],
    ids=lambda large: ", ".join(map(str, large))[:20],
)
def test_all_that_a_message_has_takes_room(large: dict[str, Any]) -> None:
    """Calls, keys and empty texts count as well, also in a body that is refused afterwards."""
    histories = Histories("h", 50_000)
    for number in range(50):
        histories.of([*said(str(number)), large])
    assert len(histories) < 11


@pytest.mark.parametrize("odd", [5000, 1.5, None, "a", [1], [[]]], ids=repr)
def test_what_is_no_message_is_remembered_as_well(odd: Any) -> None:
    """A body is looked up before it is checked: one that comes again is refused in the same words."""
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}, odd]}
    for _ in range(2):
        with pytest.raises(RequestError, match=r"^messages\[1\] has to be an object"):
            parse_chat_request(json.loads(json.dumps(body)))


def message(chance: random.Random) -> dict[str, Any]:
    """Return a message, sometimes with calls or a result of a tool."""
    role = chance.choice(["system", "user", "assistant", "assistant", "tool"])
    made: dict[str, Any] = {"role": role, "content": chance.choice(["a", "b ", " c", [{"type": "text", "text": "d"}]])}
    ids = [chance.choice("pqr") for _ in range(chance.randint(0, 2))]
    if role == "assistant" and ids:
        made["tool_calls"] = [{"id": each, "type": "function", "function": {"name": each}} for each in ids]
    if role == "tool" and chance.random() < 0.8:
        made["tool_call_id"] = chance.choice("pqr")
    return made


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [60, pytest.param(600, marks=pytest.mark.long)])
def test_keys_are_those_of_a_history_that_nobody_knows(monkeypatch: pytest.MonkeyPatch, seeds: int) -> None:
    """However a conversation grows, branches and is cut, its keys are the ones that are made of the whole."""
    for seed in range(seeds):
        with case(seed):
            chance, known = random.Random(seed), Histories("h")
            messages: list[dict[str, Any]] = []
            for _ in range(12):
                kept = chance.choice([len(messages), len(messages), chance.randint(0, len(messages))])
                messages = [*messages[:kept], *(message(chance) for _ in range(chance.randint(0, 4)))]
                found = []
                for histories in (known, Histories("h")):
                    for module in ("context.ledger", "tokens.anchoring"):
                        monkeypatch.setattr(f"elbowroom.{module}.HISTORIES", histories)
                    sent = copy.deepcopy(messages)
                    chain = Chain.of("me", "writer", sent)
                    following = chain.followed_by({"role": "tool", "content": "e"})
                    found.append((chain, following, conversation_keys("m", sent)))
                assert found[0] == found[1]


def test_no_value_is_too_deep() -> None:
    """What is nested deeper than Python compares is taken as it is, and known again nowhere."""
    deep: list[list[Any]] = [[], []]
    for _ in range(5000):
        deep = [[each] for each in deep]
    histories = Histories("deep")
    first, second = ([{"role": "user", "content": each}] for each in deep)
    assert [histories.of(first).messages[0] is first[0], histories.of(second).messages[0] is second[0]] == [True, True]
