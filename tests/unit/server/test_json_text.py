"""A body is parsed as the standard library parses it, however large it is, and refused before it becomes objects."""

import gc
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elbowroom.errors import BodyTooLarge, RequestError
from elbowroom.server.request import json_text
from elbowroom.server.request.json_text import MAX_VALUES, parsed

TEXTS = st.lists(
    st.sampled_from(["a", '"', "\\", "\n", "\u4e2d", "\U0001f600", "é", "/", "\x7f", "\u2028", ",[{"])
).map("".join)
NUMBERS = st.integers() | st.integers(-(2**80), 2**80) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


@contextmanager
def everything_large() -> Iterator[None]:
    """Take every value for a large one, in pieces of a few bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_text, "LARGE", 3)
        patch.setattr(json_text, "PIECE", 5)
        yield


def size_of(value: Any) -> int:
    """Return how many values a value is made of."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(size_of, inner))


def in_parts(body: bytearray) -> Any:
    """Parse a body as if it were large."""
    with everything_large():
        return parsed(body)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_large_and_small_values_are_read_alike(
    value: Any, ascii_only: bool, indent: int | None
) -> None:  # hypothesis passes it
    """Whole and in parts, each value comes out as it was, floats as floats and integers with every digit."""
    body = bytearray(json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode())
    assert repr(parsed(body)) == repr(value)
    assert repr(in_parts(body)) == repr(value)


@given(VALUES, st.booleans())
def test_values_are_counted_outside_of_texts(value: Any, ascii_only: bool) -> None:  # hypothesis passes it
    """Signs in texts are no values; an empty list or object counts twice at most."""
    body = bytearray(json.dumps(value, ensure_ascii=ascii_only).encode())
    with everything_large():
        counted = json_text._values_in(body)
    assert size_of(value) <= counted <= 2 * size_of(value)


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"', '{"a": "x\\udfff"}', "-0", "-0.0", "1e-400", "1E5", "1.0", "0.1", "18446744073709551616", "1e16",
        '{"a": 1, "b": 2, "a": 3}', " [1]\r\n", '"\\u2028\\/"', "9" * 4000, '"\\ud83d\\ude00"',
    ],
)  # fmt: skip
def test_rare_values_are_what_they_were(text: str) -> None:
    """Halves of pairs, large integers, zeros below zero and duplicate keys are read as the standard library does."""
    body = bytearray(text.encode())
    assert repr(parsed(body)) == repr(json.loads(text))
    assert repr(in_parts(body)) == repr(json.loads(text))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"a": [1, 2', "Expecting ',' delimiter: line 1 column 12 (char 11)."),
        (b'{"a": 1e999}', "1e999 is too large a number."),
        (b"[NaN]", "NaN is not a JSON number."),
        (b'["\xed\xa0\x80"]', "it is not UTF-8 at byte 2."),
        (b'["\\x"]', "Invalid \\escape: line 1 column 3 (char 2)."),
        (b"[" * 200 + b"]" * 200, "128 levels"),
    ],
)
def test_mistakes_are_told_in_the_same_words_at_any_size(body: bytes, says: str) -> None:
    """What is wrong, and where, does not depend on which parser met it first."""
    for parse in (parsed, in_parts):
        with pytest.raises(RequestError) as refused:
            parse(bytearray(body))
        assert says in refused.value.message


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b",".join([b"[]"] * (MAX_VALUES + 1)) + b"]",
        b"[" + b",".join([b"1"] * (MAX_VALUES + 2)) + b"]",
        b"[" * (2 * MAX_VALUES + 2),
        b"{" + b'"a":1,' * (MAX_VALUES + 2),
    ],
)
def test_too_many_values_are_refused_before_they_are_made(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser never sees them."""
    monkeypatch.setattr(json_text, "_quickly", None)
    with pytest.raises(BodyTooLarge) as refused:
        parsed(bytearray(body))
    assert "300,000 values" in refused.value.message


def test_a_text_full_of_signs_is_one_value() -> None:
    """A million commas and brackets in a text are no values, with quotes and backslashes between them."""
    text = ',[{"\\' * MAX_VALUES
    assert parsed(bytearray(json.dumps([text]).encode())) == [text]


@pytest.mark.slow
def test_a_hundred_thousand_messages_are_taken() -> None:
    """As many messages of one text each as the limit speaks of are below it."""
    messages = [{"role": "user", "content": "a"}] * 99_990
    assert len(parsed(bytearray(json.dumps({"model": "m", "messages": messages}).encode()))["messages"]) == 99_990


def test_a_float_beyond_all_is_no_infinity() -> None:
    """No number that is read is infinite."""
    assert math.isfinite(parsed(bytearray(b"1.7976931348623157e308")))


def test_the_collector_is_on_again_once_all_bodies_are_parsed() -> None:
    """Two bodies that are parsed at the same time keep the garbage collector off until both are, and no longer."""
    one, other = json_text._collector_off(), json_text._collector_off()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert not gc.isenabled()
    other.__exit__(None, None, None)
    assert gc.isenabled()
