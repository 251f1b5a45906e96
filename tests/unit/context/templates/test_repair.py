"""Repair makes calls and results fit together, and leaves alone what fits."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from random_histories import Json, always_the_same, histories, words_in

from elbowroom.context.templates import repair as repair_module
from elbowroom.context.templates.repair import MISSING_RESULT, orphans_in, repair

if TYPE_CHECKING:
    from elbowroom.context.transcript import Message

ASK: Json = {"role": "user", "content": "What grows?"}
BYE: Json = {"role": "user", "content": "Never mind."}


def call(call_id: object = "a", arguments: Any = "{}", name: Any = "read_note") -> Json:
    """Return a tool call."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*several: Json) -> Json:
    """Return an assistant message with calls."""
    return {"role": "assistant", "content": "", "tool_calls": list(several)}


def result(content: str, call_id: object = "a") -> Json:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def assert_sound(messages: list[Message]) -> None:
    """Every call has one result right behind it, in order; ids are unique; arguments are objects."""
    seen: set[str] = set()
    wanted: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == wanted.pop(0)
            continue
        assert not wanted
        for each in message.get("tool_calls", ()):
            assert each["id"]
            assert each["id"] not in seen
            assert isinstance(json.loads(each["function"]["arguments"]), dict)
            seen.add(each["id"])
            wanted.append(each["id"])
    assert not wanted


@always_the_same
@given(histories())
def test_repaired_history_is_sound(history: list[Json]) -> None:
    """Whatever comes in, no call is without its result and no result without its call."""
    assert_sound(repair(history))


@always_the_same
@given(histories(sound=True))
def test_sound_history_comes_back_as_it_is(history: list[Json]) -> None:
    """Nothing is touched where nothing is wrong: the same message objects in the same order."""
    repaired = repair(history)
    assert len(repaired) == len(history)
    assert all(kept is given for kept, given in zip(repaired, history, strict=True))


@always_the_same
@given(histories())
def test_repair_leaves_the_callers_messages_alone(history: list[Json]) -> None:
    """The caller's objects are the same after it, and the same history gives the same result again."""
    before = copy.deepcopy(history)
    first = repair(history)
    assert history == before
    assert repair(before) == first
    assert repair(first) == first


@always_the_same
@given(histories())
def test_repair_loses_no_word(history: list[Json]) -> None:
    """All that is said, called and returned is still there, whether a result answers a call or not."""
    assert words_in(repair(history)) == words_in(history)


def told(content: str, name: str = "a tool") -> Json:
    """Return a result without a call, as the user tells it."""
    return {"role": "user", "content": f"Result of {name}, for no call of this conversation:\n\n```\n{content}\n```"}


def test_result_without_call_is_told() -> None:
    """The user tells a result that no call before it asked for, where it stands; also where its call comes later."""
    assert repair([ASK, result("found"), BYE]) == [ASK, told("found"), BYE]
    assert repair([ASK, {**result("found"), "name": "read_note"}]) == [ASK, told("found", "read_note")]
    assert repair([result("early"), calls(call())]) == [told("early"), calls(call()), result(MISSING_RESULT)]
    assert repair([calls(call()), BYE, result("z", "z")]) == [
        calls(call()), result(MISSING_RESULT), BYE, told("z"),
    ]  # fmt: skip


def test_second_result_of_a_call_is_told() -> None:
    """The first result answers the call; the user tells the second after it."""
    assert repair([calls(call()), result("first"), result("second")]) == [
        calls(call()),
        result("first"),
        told("second"),
    ]
    asked = calls(call("a"), call("b"))
    assert repair([asked, result("A"), result("more"), result("B", "b")]) == [
        asked, result("A"), result("B", "b"), told("more"),
    ]  # fmt: skip


def test_result_under_a_foreign_id_answers_the_call_before_it() -> None:
    """Right after the calls, a result whose id is of no call answers the first open one, as an engine renders it."""
    assert repair([ASK, calls(call("c1")), result("found", "c2"), BYE]) == [
        ASK, calls(call("c1")), result("found", "c1"), BYE,
    ]  # fmt: skip
    asked = calls(call("a"), call("b"))
    assert repair([asked, result("B", "b"), result("A", "z")]) == [asked, result("A", "a"), result("B", "b")]
    assert repair([asked, result("A", "y"), result("B", "z"), result("C", "z")]) == [
        asked, result("A", "a"), result("B", "b"), told("C"),
    ]  # fmt: skip


def test_orphans_are_counted() -> None:
    """As many as are told by the user."""
    assert orphans_in([ASK, BYE]) == 0
    assert orphans_in([calls(call()), result("first"), result("second"), BYE, result("z", "z")]) == 2


def test_call_without_result_gets_one() -> None:
    """A call that nobody answered gets an error as its result, in its place, also at the end of a history."""
    answered = [calls(call("a"), call("b")), result(MISSING_RESULT, "a"), result("here", "b"), BYE]
    assert repair([calls(call("a"), call("b")), result("here", "b"), BYE]) == answered
    assert repair([ASK, calls(call())]) == [ASK, calls(call()), result(MISSING_RESULT)]


def test_late_result_stands_behind_its_call() -> None:
    """Results in the wrong order, or behind other messages, move to their calls."""
    asked = calls(call("a"), call("b"))
    sound = [ASK, asked, result("A", "a"), result("B", "b"), BYE]
    assert repair([ASK, asked, result("B", "b"), result("A", "a"), BYE]) == sound
    assert repair([ASK, asked, result("B", "b"), BYE, result("A", "a")]) == sound


def test_repeated_ids_become_new_ones_in_pairs() -> None:
    """Engines that count from `call_0` in every step: each result stays with its own call, the first id stays."""
    one, two = call("call_0", '{"path": "a"}'), call("call_0", '{"path": "b"}')
    repaired = repair([calls(one), result("A", "call_0"), ASK, calls(two), result("B", "call_0")])
    first, first_result, _, second, second_result = repaired
    assert (first, first_result) == (calls(one), result("A", "call_0"))
    assert second["tool_calls"][0]["function"] == two["function"]
    new_id = second["tool_calls"][0]["id"]
    assert second_result == result("B", new_id)
    assert len(new_id) == 9
    assert new_id.isalnum()


def test_equal_ids_in_one_message_are_told_apart_by_order() -> None:
    """Two calls with one id in one message take the results in their order."""
    messages = [calls(call("", '{"path": "a"}'), call("", '{"path": "b"}')), result("A", ""), result("B", "")]
    asked, first, second = repair(messages)
    assert [first["tool_call_id"], second["tool_call_id"]] == [each["id"] for each in asked["tool_calls"]]
    assert (first["content"], second["content"]) == ("A", "B")


def test_result_without_id_answers_the_call_before_it() -> None:
    """A result that names no call belongs to the open call of the last message with calls, and to no older one."""
    nameless = {"role": "tool", "content": "A"}
    assert repair([calls(call("a")), nameless]) == [calls(call("a")), result("A", "a")]
    older = [calls(call("a")), calls(call("b")), result("B", "b")]
    assert repair([*older, nameless]) == [*repair(older), told("A")]


def test_new_ids_stay_when_the_history_goes_on() -> None:
    """The ids of a turn are those of the turn before, so that the engine reads nothing twice."""
    history = [
        calls(call("", '{"path": "a"}')),
        result("A", ""),
        ASK,
        calls(call("", '{"path": "b"}')),
        result("B", ""),
    ]
    assert repair([*history, BYE])[:-1] == repair(history)
    assert repair(history[3:]) == repair(history)[3:]


@pytest.mark.parametrize(
    ("arguments", "safe"),
    [
        ("", "{}"),
        (" \n", "{}"),
        (None, "{}"),
        ({"path": "Gärten"}, '{"path": "Gärten"}'),
        ('{"path": "gar', r'{"malformed_arguments": "{\"path\": \"gar"}'),
        ("[1]", '{"malformed_arguments": "[1]"}'),
        ('"text"', r'{"malformed_arguments": "\"text\""}'),
        ("{'path': 1}", """{"malformed_arguments": "{'path': 1}"}"""),
        ('{"x": NaN}', r'{"malformed_arguments": "{\"x\": NaN}"}'),
        ('{"x": 1e999}', r'{"malformed_arguments": "{\"x\": 1e999}"}'),
        ('{"x": "\\ud800"}', r'{"malformed_arguments": "{\"x\": \"\\ud800\"}"}'),
        ([1, 2], '{"malformed_arguments": "[1, 2]"}'),
        ('{"x": ' + "[" * 100_000, '{"malformed_arguments": ' + json.dumps('{"x": ' + "[" * 100_000) + "}"),
    ],
)
def test_arguments_become_a_json_object(arguments: object, safe: str) -> None:
    """Arguments that are no JSON object are kept, whole, as the text in one."""
    (asked, _) = repair([calls(call(arguments=arguments)), result("A")])
    assert asked["tool_calls"][0]["function"]["arguments"] == safe


@pytest.mark.parametrize("arguments", ["{}", ' {"b":1, "a": "\\u00e9\\ud83c\\udf31"}\n', '{"a": 1.0, "a": 2}'])
def test_sound_arguments_stay_to_the_byte(arguments: str) -> None:
    """White space, order and escapes of sound arguments are not touched."""
    message = calls(call(arguments=arguments))
    assert repair([message, result("A")])[0] is message


@pytest.mark.parametrize("broken", [None, [], "text", [None, "text"]])
def test_message_with_no_real_calls_has_none(broken: object) -> None:
    """Null, an empty list, or what is no call at all is as good as no calls."""
    assert repair([{"role": "assistant", "content": "Hi", "tool_calls": broken}]) == [
        {"role": "assistant", "content": "Hi"}
    ]
    assert repair([{**ASK, "tool_calls": [call()]}]) == [ASK]


@pytest.mark.parametrize("broken", [{"id": "a"}, {"id": "a", "function": {"arguments": "{}"}}, call(name="")])
def test_call_without_a_name_gets_one(broken: Json) -> None:
    """A call that was cut before its name is still a call with a name and arguments."""
    (asked, _) = repair([calls(broken), result("A")])
    assert asked["tool_calls"][0]["function"] == {"name": "unknown_tool", "arguments": "{}"}


def test_thousands_of_equal_calls_get_their_ids_in_one_try_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the calls before have tried is not tried again: five thousand would take minutes."""
    tried: list[str] = []
    portable_id = repair_module.portable_id

    def counted(*seed: str) -> str:
        tried.append(seed[-1])
        return portable_id(*seed)

    monkeypatch.setattr(repair_module, "portable_id", counted)
    call = {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
    repaired = repair([{"role": "assistant", "content": None, "tool_calls": [call] * 300}])
    assert len({call["id"] for call in repaired[0]["tool_calls"]}) == 300
    assert len(tried) == 299
