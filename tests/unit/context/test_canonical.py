"""The canonical form of a message: what clients change between turns is outside, everything said is inside."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import sys
from itertools import combinations
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_histories import Json, always_the_same

from elbowroom.context import canonical
from elbowroom.context.canonical import OpenCalls, Place, json_form, question_in

PIXEL: Final = bytes(range(256))
PIXEL_TEXT: Final = base64.b64encode(PIXEL).decode()
PADDED: Final = b"?>\xff\xfe"
TEMPLATE: Final = "### Task:\nRespond using the provided context.\n\n<context>\n{files}\n</context>\n\n"
JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def form_of(message: Json, answered: Place | None = None) -> bytes:
    """Return the form of a message as it is hashed."""
    kind, text = canonical.form_of(message, answered)
    return kind + text.encode("utf-8", "surrogatepass")


def said(role: str, content: Any = "", **more: Any) -> Json:
    """Return a message."""
    return {"role": role, "content": content, **more}


def calling(name: Any = "read", arguments: Any = "{}", call_id: Any = "call_1", content: Any = "") -> Json:
    """Return an assistant message with one call."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return said("assistant", content, tool_calls=[call])


def text(words: str) -> Json:
    """Return a part of text."""
    return {"type": "text", "text": words}


def image(url: str, **more: Any) -> Json:
    """Return a part with an image."""
    return {"type": "image_url", "image_url": {"url": url, **more}}


def nested(depth: int, end: object) -> Any:
    """Return a value within so many objects and lists."""
    value = end
    for _ in range(depth):
        value = {"a": [value]}
    return value


THE_SAME: Final = {
    "an answer that was stripped": (said("assistant", "\n\n Hello. \n"), said("assistant", "Hello.")),
    "thoughts in an answer": (said("assistant", "<think>\nHm.\n</think>\n\nHello."), said("assistant", "Hello.")),
    "thoughts in a part": (said("assistant", [text(" <think>Hm.</think>Hello. ")]), said("assistant", "Hello.")),
    "an answer of white space": (said("assistant", " \n"), said("assistant", None)),
    "reasoning_content": (said("assistant", "Hi", reasoning_content="Hm."), said("assistant", "Hi")),
    "reasoning": (said("assistant", "Hi", reasoning="Hm."), said("assistant", "Hi")),
    "reasoning_details": (said("assistant", "Hi", reasoning_details=[{"data": "x"}]), said("assistant", "Hi")),
    "empty fields of a library": (
        said("assistant", "Hi", refusal=None, audio=None, function_call=None, tool_calls=None),
        said("assistant", "Hi"),
    ),
    "unknown fields": (said("user", "Hi", timestamp=1.5, id="m-1"), said("user", "Hi")),
    "the order of fields": ({"content": "Hi", "role": "user"}, said("user", "Hi")),
    "ids of calls": (calling(call_id="call_1"), calling(call_id=None)),
    "an id that is no text": (calling(call_id="call_1"), calling(call_id=["odd"])),
    "text before a call, unstripped": (calling(content="Let me look. "), calling(content="Let me look.")),
    "null content beside calls": (calling(content=None), calling(content="")),
    "no parts beside calls": (calling(content=[]), calling(content="")),
    "no content beside calls": (
        {key: value for key, value in calling().items() if key != "content"},
        calling(content=""),
    ),
    "the id of a call of another kind": (
        said("assistant", "", tool_calls=[{"id": "a", "type": "custom", "custom": {"name": "run"}}]),
        said("assistant", "", tool_calls=[{"id": "b", "type": "custom", "custom": {"name": "run"}, "index": 0}]),
    ),
    "the order of arguments": (calling(arguments='{"a": 1, "b": 2}'), calling(arguments='{"b":2,"a":1}')),
    "deep in arguments": (calling(arguments='{"a": {"x": 1, "y": [2]}}'), calling(arguments='{"a":{"y":[2],"x":1}}')),
    "escapes in arguments": (calling(arguments=r'{"a": "\u00fc"}'), calling(arguments='{"a": "ü"}')),
    "arguments as an object": (calling(arguments={"a": 1}), calling(arguments='{"a": 1}')),
    "no arguments": (calling(arguments=""), calling(arguments="{}")),
    "null arguments": (calling(arguments=None), calling(arguments="{}")),
    "a number written by another library": (calling(arguments='{"a": 1.0}'), calling(arguments='{"a": 1}')),
    "white space around broken arguments": (calling(arguments=' {"a": '), calling(arguments='{"a":\n')),
    "a text as one part": (said("user", [text("Hi")]), said("user", "Hi")),
    "a text as a bare string in a list": (said("user", ["Hi"]), said("user", "Hi")),
    "an answer as one part": (said("assistant", [text(" Hi\n")]), said("assistant", "Hi")),
    "a result as one part": (said("tool", [text("Hi")]), said("tool", "Hi")),
    "a result's id and name": (said("tool", "Hi", tool_call_id="a", name="read"), said("tool", "Hi")),
    "nothing, as parts": (said("user", []), said("user", "")),
    "an image with line breaks": (
        said("user", [image(f"data:image/png;base64,{PIXEL_TEXT[:76]}\r\n{PIXEL_TEXT[76:]}")]),
        said("user", [image(f"data:image/png;base64,{PIXEL_TEXT}")]),
    ),
    "an image without padding": (
        said("user", [image(f"data:image/png;base64,{PIXEL_TEXT.rstrip('=')}")]),
        said("user", [image(f"data:image/png;base64,{PIXEL_TEXT}")]),
    ),
    "an image in the alphabet for URLs": (
        said("user", [image(f"data:image/png;base64,{base64.urlsafe_b64encode(PADDED).decode()}")]),
        said("user", [image(f"data:image/png;base64,{base64.b64encode(PADDED).decode()}")]),
    ),
    "an image with its type in capitals": (
        said("user", [image(f"DATA:image/PNG;Base64,{PIXEL_TEXT}")]),
        said("user", [image(f"data:image/png;base64,{PIXEL_TEXT}")]),
    ),
    "the detail of an image": (
        said("user", [image("https://example.test/a.png", detail="low")]),
        said("user", [{"type": "image_url", "image_url": "https://example.test/a.png"}]),
    ),
    "a file before the question": (
        said("user", TEMPLATE.format(files="<source>Boats.</source>") + "What floats?"),
        said("user", "What floats?"),
    ),
    "a file before the question, in parts": (
        said("user", [text(TEMPLATE.format(files="Boats.") + "What floats?"), image("https://example.test/a.png")]),
        said("user", [text("What floats?"), image("https://example.test/a.png")]),
    ),
}


def test_what_clients_change_does_not_count() -> None:
    """A message is recognised although the client has sent it in another way, or with less around it."""
    for name, (one, other) in THE_SAME.items():
        assert form_of(one) == form_of(other), name


DIFFERENT: Final = [
    said("user"),
    said("user", "ab"),
    said("user", "Ab"),
    said("user", "ab "),
    said("user", ["a", "b"]),
    said("user", ["ab", ""]),
    said("user", [["text", "ab"]]),
    said("user", [{"type": "refusal", "text": "ab"}]),
    said("user", [{"type": "refusal", "text": "a"}]),
    said("user", {"text": "ab"}),
    said("user", 1),
    said("user", "1"),
    said("user", True),
    said("user", "true"),
    said("user", 'j["user",["a","b"],[],null]'),
    said("user", '["user",["a","b"],[],null]'),
    said("user", "\ud83d"),
    said("user", "\ude00\ud83d"),
    said("user", "😀"),
    said("assistant", "ab"),
    said("assistant", "a b"),
    said("assistant", ["a", "b"]),
    said("tool", "ab"),
    said("tool", "0,0:ab"),
    said("function", "ab"),
    said("user", [image(f"data:image/png;base64,{PIXEL_TEXT}")]),
    said("user", [image(f"data:image/png;base64,{base64.b64encode(PADDED).decode()}")]),
    said("user", [image(f"data:image/png;base64,{PIXEL_TEXT}"), image(f"data:image/png;base64,{PIXEL_TEXT}")]),
    said("user", [image("data:image/png;base64,!!!!")]),
    said("user", [image("data:image/png;base64,????")]),
    said("user", [image("data:image/png;base64,\ud83d")]),
    said("user", [image("https://example.test/a.png")]),
    said("user", [image("https://example.test/b.png")]),
    said("user", [image(hashlib.blake2b(PIXEL, digest_size=16).hexdigest())]),
    said("user", "https://example.test/a.png"),
    said("user", [{"type": "image_url"}]),
    said("user", [{"type": "image_url", "image_url": {"url": None}}]),
    said("user", [{"type": "input_audio", "input_audio": {"data": "AAAA"}}]),
    said("user", [{"type": "file", "file": {"file_id": "1"}}]),
    said("user", [{"type": "file", "file": {"file_id": "2"}}]),
    said("assistant", "", function_call={"name": "read", "arguments": "{}"}),
    said("assistant", "", tool_calls=[{"type": "custom", "custom": {"name": "run", "input": "a"}}]),
    said("assistant", "", tool_calls=[{"type": "custom", "custom": {"name": "run", "input": "b"}}]),
    said("assistant", "", tool_calls=calling()["tool_calls"] * 2),
    calling(),
    calling(content="ab"),
    calling("write"),
    calling(None),
    calling(arguments='{"a": 1}'),
    calling(arguments='{"a": "1"}'),
    calling(arguments='{"a": 1.5}'),
    calling(arguments='{"a": true}'),
    calling(arguments='{"a": NaN}'),
    calling(arguments='{"a": Infinity}'),
    calling(arguments='{"a": 1e999}'),
    calling(arguments='{"a": 2e999}'),
    calling(arguments='{"a": 9007199254740993}'),
    calling(arguments='{"a": 9007199254740992}'),
    calling(arguments='{"a": 1'),
    calling(arguments='"{\\"a\\": 1"'),
    calling(arguments="a"),
    calling(arguments='"a"'),
    calling(arguments="[]"),
]


def test_whatever_is_said_counts() -> None:
    """C40: messages that differ in role, text, parts, media, calls or arguments have different forms.

    So does a text that imitates how forms are written.
    """
    for one, other in combinations(DIFFERENT, 2):
        assert form_of(one) != form_of(other), (one, other)


HOSTILE: Final = {
    "no role": {"content": "Hi"},
    "no content": {"role": "user"},
    "a role that is a list": said("user") | {"role": ["user"]},
    "a role that is an object": said("user") | {"role": {"a": 1}},
    "odd parts": said("user", [None, 1, 1.5, True, [], {}, [[]], {"type": None}, {"type": ["text"], "text": "a"}]),
    "content that is no number": said("user", math.nan),
    "content that is infinite": said("user", -math.inf),
    "calls that are a text": said("assistant", "Hi", tool_calls="read"),
    "calls that are none": said("assistant", "Hi", tool_calls=[None, 1, "read"]),
    "calls of a user": said("user", "Hi", tool_calls=calling()["tool_calls"]),
    "a call of nothing": said("assistant", "", tool_calls=[{}]),
    "a function that is a text": said("assistant", "", tool_calls=[{"function": "read"}]),
    "a name that is an object": calling(name={"a": 1}),
    "arguments that are a list": calling(arguments=[1, {"a": None}]),
    "arguments that are a number": calling(arguments=math.nan),
    "a number of many digits": calling(arguments=f'{{"a": {"9" * 10_000}}}'),
    "a name with half a character": calling(name="\udcff"),
    "arguments with half a character": calling(arguments='{"a": "\\ud83d"}'),
    "broken arguments with half a character": calling(arguments="\ud83d"),
    "an image with half a character": said("user", [image("data:text/plain,\ud83d")]),
    "an image of nothing": said("user", [image("data:,")]),
    "deep content": said("user", [nested(5_000, "a")]),
    "other deep content": said("user", [nested(5_000, "b")]),
    "deep arguments": calling(arguments="[" * 50_000 + "]" * 50_000),
    "other deep arguments": calling(arguments="[" * 50_001 + "]" * 50_001),
    "deep arguments as an object": calling(arguments=nested(5_000, None)),
    "huge arguments": calling(arguments=json.dumps({"text": "x" * 2_000_000})),
    "other huge arguments": calling(arguments=json.dumps({"text": "x" * 2_000_001})),
}


def test_no_message_is_too_odd() -> None:
    """Whatever JSON can hold has a form, the same each time, and calls and answers of it are found without error."""
    for name, message in HOSTILE.items():
        assert form_of(message) == form_of(message), name
        open_calls = OpenCalls()
        open_calls.add(0, message)
        open_calls.answered_by(message)


def test_odd_messages_differ() -> None:
    """Odd messages are not all one to us; only calls that are none do not count."""
    odd = {name: form_of(message) for name, message in HOSTILE.items()}
    assert odd.pop("calls that are none") == odd["calls that are a text"] == form_of(said("assistant", "Hi"))
    assert len(set(odd.values())) == len(odd)


@given(JSON_VALUES, JSON_VALUES)
@always_the_same
def test_json_forms_are_equal_for_equal_values_only(one: Any, other: Any) -> None:
    """Different JSON values have different forms, however they nest."""
    as_text = [json.dumps(value, sort_keys=True) for value in (one, other)]
    assert (json_form(one) == json_form(other)) == (as_text[0] == as_text[1])


def test_deep_values_do_not_depend_on_the_order_of_keys() -> None:
    """A value too deep for the JSON writer has a form with sorted keys too."""
    deep = nested(sys.getrecursionlimit() * 5, "end")
    assert json_form({"a": deep, "b": 1}) == json_form({"b": 1, "a": deep})
    assert json_form({"a": deep, "b": 1}) != json_form({"a": 1, "b": deep})


@given(st.text(st.characters(exclude_categories=())), st.text(st.characters(exclude_categories=())))
@always_the_same
def test_different_questions_have_different_forms(one: str, other: str) -> None:
    """Every character of a question counts, even half ones."""
    assert (form_of(said("user", one)) == form_of(said("user", other))) == (question_in(one) == question_in(other))


@pytest.mark.parametrize(
    "written",
    [
        "### Task:\nWhat floats?",
        "### Task: explain </context> to me",
        TEMPLATE.format(files="Boats."),
        TEMPLATE.format(files="Boats.") + " \n",
        "### Task:\nQuestion: what floats?\n<context>\nBoats.\n</context>",
        " " + TEMPLATE.format(files="Boats.") + "What floats?",
        "Look: " + TEMPLATE.format(files="Boats.") + "What floats?",
    ],
)
def test_question_without_files_counts_whole(written: str) -> None:
    """Where it is not the template with a question behind it, nothing is taken away."""
    assert question_in(written) == written


def test_question_stands_behind_the_last_context() -> None:
    """A file that holds the end mark itself does not count as the question; space within the question does."""
    asked = "  What floats?\n\nAnd what sinks? \n"
    files = "<source>a</context>\n\nNot the question</source>"
    assert question_in(TEMPLATE.format(files=files) + asked) == asked


def test_template_in_an_answer_or_result_counts_whole() -> None:
    """Only a user's message can hold the template."""
    for role in ("assistant", "tool"):
        whole = said(role, TEMPLATE.format(files="Boats.") + "What floats?")
        assert form_of(whole) != form_of(said(role, "What floats?"))


def test_result_counts_with_the_call_that_it_answers() -> None:
    """The same text as the result of another call, or of none, is another result."""
    result = said("tool", "Done.")
    parts = said("tool", [text("Done."), image("https://example.test/a.png")])
    for message in (result, parts):
        assert len({form_of(message, place) for place in (None, (0, 0), (0, 1), (1, 0), (10, 1), (1, 1))}) == 6


def two_calls(*ids: object) -> Json:
    """Return an assistant message with calls of these ids."""
    return said("assistant", "", tool_calls=[call for each in ids for call in calling(call_id=each)["tool_calls"]])


def test_results_answer_calls_by_id_in_any_order() -> None:
    """Which call a result answers is told by its id."""
    open_calls = OpenCalls()
    open_calls.add(1, two_calls("a", "b"))
    assert open_calls.answered_by(said("tool", tool_call_id="b")) == (1, 1)
    assert open_calls.answered_by(said("tool", tool_call_id="a")) == (1, 0)
    assert open_calls.answered_by(said("tool", tool_call_id="c")) is None


def test_results_of_calls_with_one_id_go_in_order() -> None:
    """Some engines number the calls of each message anew, or give all calls one id."""
    open_calls = OpenCalls()
    open_calls.add(1, two_calls("a", "b"))
    open_calls.add(2, two_calls("a", "a"))
    answered = []
    for _ in range(4):
        place = open_calls.answered_by(said("tool", tool_call_id="a"))
        answered.append(place)
        if place is not None:
            open_calls.close(place)
    assert answered == [(2, 0), (2, 1), (1, 0), None]


@pytest.mark.parametrize("call_id", [None, "", 7, ["a"]])
def test_results_without_an_id_go_in_order(call_id: object) -> None:
    """A result that names no call answers the next open one of the latest message."""
    open_calls = OpenCalls()
    open_calls.add(1, two_calls("a", None))
    open_calls.add(2, two_calls("b", call_id))
    open_calls.close((2, 0))
    assert open_calls.answered_by(said("tool", tool_call_id=call_id)) == (2, 1)
