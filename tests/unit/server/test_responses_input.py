"""The items of a Responses request as the messages of a chat."""

import time
from typing import Any

import pytest

from elbowroom.errors import RequestError
from elbowroom.server.responses.input import messages_of, references_in, resolved

Item = dict[str, Any]


def message(role: str, text: str, **fields: Any) -> Item:
    """Return a message with one text part, as responses have it."""
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}], **fields}


def call(call_id: str, name: str = "read") -> Item:
    """Return a call of a function."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def result(call_id: str, output: Any) -> Item:
    """Return what a function has returned."""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def reasoning(text: str, **fields: Any) -> Item:
    """Return a thought in full."""
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}], **fields}


def test_a_text() -> None:
    """A bare text is what the user says."""
    assert messages_of("Hello") == [{"role": "user", "content": "Hello"}]


def test_roles() -> None:
    """A user's text is a text, also where it comes in parts; a system's message stays a list of parts."""
    items = [message("system", "Be kind."), {"role": "user", "content": "Hello"}, message("user", "Well?")]
    assert messages_of(items) == [
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
        {"role": "user", "content": "Hello"},
        {"role": "user", "content": "Well?"},
    ]


def test_an_answer_is_one_message() -> None:
    """Thoughts, words and calls of one answer are one message, with its words as the client was shown them."""
    items = [
        reasoning("Hm."),
        message("assistant", "I look.", id="msg_a_1"),
        reasoning(" Well."),
        message("assistant", "\n\nIt is there.", id="msg_a_3"),
        call("1"),
        call("2", "write"),
        result("1", "oats"),
    ]
    [answer, returned] = messages_of(items)
    assert answer["content"] == "I look.\n\nIt is there."
    assert answer["reasoning_content"] == "Hm. Well."
    assert [one["function"]["name"] for one in answer["tool_calls"]] == ["read", "write"]
    assert returned == {"role": "tool", "tool_call_id": "1", "content": "oats"}


@pytest.mark.parametrize(
    ("first", "second", "joined"),
    [
        ({"id": "msg_a_0"}, {"id": "msg_a_1"}, "One.Two."),
        ({"id": "msg_a_0"}, {"id": "msg_b_0"}, "One.\n\nTwo."),
        ({}, {}, "One.\n\nTwo."),
    ],
)
def test_two_messages_in_a_row(first: Item, second: Item, joined: str) -> None:
    """Pieces of one response are joined as they were; others are parted by a blank line."""
    assert messages_of([message("assistant", "One.", **first), message("assistant", "Two.", **second)]) == [
        {"role": "assistant", "content": joined}
    ]


def test_thoughts_belong_to_the_answer_behind_them() -> None:
    """Thoughts before a user's message belong to nothing; a summary stands for what is encrypted."""
    encrypted = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "In short."}],
        "encrypted_content": "x",
    }
    assert messages_of([reasoning("Hm."), message("user", "a"), encrypted, message("assistant", "b")]) == [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "In short."},
    ]


def test_results_in_parts() -> None:
    """Texts of a result are lines of one text; with an image it stays in parts."""
    texts = [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]
    image = {"type": "input_image", "image_url": "data:,", "detail": "low"}
    [_, returned, seen] = messages_of([call("1"), result("1", texts), result("2", [image])])
    assert returned["content"] == "one\ntwo"
    assert seen["content"] == [{"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}]


def test_references() -> None:
    """An item with an id alone is a reference; what is not known is refused by its place."""
    items = [{"id": "msg_a_0"}, {"type": "item_reference", "id": "rs_a_1"}, message("user", "a", id="msg_b_0")]
    assert references_in(items) == ["msg_a_0", "rs_a_1"]
    known = {"msg_a_0": message("assistant", "One."), "rs_a_1": reasoning("Hm.")}
    assert resolved(items, known) == [known["msg_a_0"], known["rs_a_1"], items[2]]
    assert references_in("a text") == []
    assert resolved("a text", {}) == "a text"
    with pytest.raises(RequestError) as refused:
        resolved(items, {"msg_a_0": known["msg_a_0"]})
    assert (refused.value.param, refused.value.code) == ("input[1]", "item_not_found")


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (3, "input"),
        (["a"], "input[0]"),
        ([{"role": []}], "input[0].role"),
        ([{"role": "user"}], "input[0].content"),
        ([{"role": "user", "content": ["a"]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": ["a"]}]}], "input[0].content[0]"),
        ([{"role": "user", "content": [{"type": "input_text"}]}], "input[0].content[0].text"),
        ([{"role": "assistant", "content": [{"type": "input_image", "image_url": "a"}]}], "input[0].content"),
        ([{"type": []}], "input[0].type"),
        ([{"type": "function_call", "name": "a", "arguments": {}}], "input[0].arguments"),
        ([{"type": "function_call_output", "output": "a"}], "input[0].call_id"),
    ],
)
def test_what_is_wrong_is_named(value: Any, param: str) -> None:
    """A refusal names the place."""
    with pytest.raises(RequestError) as refused:
        messages_of(value)
    assert refused.value.param == param


def test_very_many_items() -> None:
    """What an assistant has said in very many items is put together in moments: each text is copied once or twice."""
    items = [message("assistant", "x" * 100)] * 80_000
    began = time.monotonic()
    [answer] = messages_of(items)
    assert len(answer["content"]) == 80_000 * 102 - 2
    assert time.monotonic() - began < 20


def test_one_item_is_referred_to_once() -> None:
    """An item that is referred to again and again would make a small body a huge prompt."""
    reference = {"type": "item_reference", "id": "msg_a_0"}
    with pytest.raises(RequestError, match="once") as refused:
        resolved([reference, reference], {"msg_a_0": message("assistant", "A")})
    assert refused.value.param == "input[1]"
