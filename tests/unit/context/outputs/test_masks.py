"""Which results of a client's own tools can be masked, in which order, and what stands in their place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from elbowroom.context.outputs import is_stub, masked, masks_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from elbowroom.context.transcript import Message

LONG = "The first line of the file says what it is.\n" + "and so on\n" * 60


def call(number: int, name: str, arguments: dict[str, Any], result: str = LONG) -> list[Message]:
    """Return a call and its result."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": f"c{number}", "function": function}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": result},
    ]


def masks(messages: Sequence[Message], until: int | None = None, pinned: Sequence[int] = ()) -> list[Any]:
    """Return the masks of a history."""
    return masks_of(messages, len(messages) if until is None else until, {}, lambda text: "abcdefghijkm", pinned)


@pytest.mark.parametrize(
    ("name", "arguments", "is_lasting"),
    [
        ("read", {"filePath": "src/a.py"}, False),
        ("Grep", {"pattern": "x"}, False),
        ("bash", {"command": "cat a.py | head"}, False),
        ("bash", {"command": "make install"}, True),
        ("write_file", {"path": "a.py", "content": "x"}, True),
        ("ask_person", {"question": "Which?"}, True),
    ],
)
def test_what_can_be_had_again(name: str, arguments: dict[str, Any], *, is_lasting: bool) -> None:
    """Calls that only read can be made again, which their line says; the words of all others last longer."""
    [mask] = masks(call(1, name, arguments))
    assert mask.is_lasting == is_lasting
    assert mask.line.endswith("call again to see it]") != is_lasting
    assert is_stub(mask.line)
    assert mask.whole == LONG


def test_the_line() -> None:
    """It says what was called, how much came, how it began, and that the same call brings it again."""
    [mask] = masks(call(1, "read", {"path": "src/a.py"}))
    assert mask.line == (
        "[tool output trimmed; ref=abcdefghijkm; read src/a.py (read); 644 characters: "
        "The first line of the file says what it is.; call again to see it]"
    )


@pytest.mark.parametrize(
    ("result", "pinned"),
    [("short", ()), ("[tool output trimmed; ref=abcdefghijkm; read a (read); 9 characters]", ()), (LONG, (0,))],
)
def test_no_mask(result: str, pinned: Sequence[int]) -> None:
    """Short results, those that are masked, and what a person has pinned stay as they are."""
    assert masks(call(1, "read", {"path": "a"}, result), pinned=pinned) == []


def test_what_is_asked_for_again() -> None:
    """What the model has called for once more since it was masked lasts; the order of arguments makes no difference."""
    first = call(1, "read", {"path": "a", "lines": 9})
    other = call(2, "read", {"path": "b"})
    history = masked(first, masks(first)) + other + call(3, "read", {"lines": 9, "path": "a"})
    assert [(mask.place, mask.is_lasting) for mask in masks(history)] == [(3, False), (5, True)]


def test_masked() -> None:
    """Only results before the place are masked, all other messages are the same objects, and again nothing changes."""
    history = [{"role": "user", "content": "Go."}, *call(1, "read", {"path": "a"}), *call(2, "read", {"path": "b"})]
    shorter = masked(history, masks(history, until=3))
    assert [new is old for new, old in zip(shorter, history, strict=True)] == [True, True, False, True, True]
    assert masks(shorter, until=3) == []


def test_an_error_keeps_its_words() -> None:
    """The words of a call that failed stand below its line."""
    failed = "Error: the file is not there\n" + "at some place\n" * 60
    found = masks(call(1, "read", {"path": "a"}, failed))
    assert all(failed in mask.line for mask in found)
