"""What code carries through compactions: the files that calls have changed, and the newest list of what is to do."""

import json
from typing import Any

import pytest

from elbowroom.context.compaction.division import divide, summary_message
from elbowroom.context.compaction.record import Record, carried_in
from elbowroom.context.transcript import Group, Message, Summary, Transcript

WINDOW = 8192
GO_ON: Message = {"role": "user", "content": "Go on."}


def called(tool: str, arguments: Any, call_id: str) -> list[Message]:
    """Return a call with its result."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    first = {"role": "assistant", "content": None, "tool_calls": [{"id": call_id, "function": function}]}
    return [first, {"role": "tool", "tool_call_id": call_id, "content": "ok"}]


def edited(number: int) -> list[Message]:
    """Return a call that has changed a file, with its result."""
    return called("edit", {"path": f"src/{number:02}.py", "text": "x"}, f"e{number}")


def listed(*things: str) -> list[Message]:
    """Return a call that lists what is to do, with its result."""
    return called("note", {"things": [{"content": each, "status": "pending"} for each in things]}, "list")


def summary_of(messages: list[Message], *, is_known: bool, files: str = "", to_do: str = "") -> Group:
    """Return a summary of messages with these lines, which may be all that is known of them."""
    text = summary_message("", "They worked.", (), "in progress", files=files, to_do=to_do)
    return Group((Summary(role="user", content=text),), unshortened=tuple(messages) if is_known else ())


@pytest.mark.parametrize(
    ("is_known", "files", "to_do"),
    [
        (
            True,
            "- written in `src/`: `00.py`, `01.py`, `02.py`, `07.py`",
            "- pending: Launch her\n- pending: Rest\n(note keeps this list.)",
        ),
        (False, "- written in `src/`: `02.py`, `07.py`", "- pending: Rest"),
    ],
)
def test_what_a_summary_had_no_room_for_is_told_again(*, is_known: bool, files: str, to_do: str) -> None:
    """The calls that a summary stands for are read anew while the client sends them; else its own lines tell."""
    before = [*edited(0), *edited(1), *edited(2), *listed("Launch her", "Rest")]
    told = summary_of(before, is_known=is_known, files="- written: `src/02.py`", to_do="- pending: Rest")
    groups = (told, *Transcript.of([*edited(7), GO_ON]).groups)
    division = divide(Transcript(groups), tails_from=2)
    record = Record(division, len, WINDOW, {})
    removed = [*division.summaries, *(each.group for each in division.old)]
    assert record.files(removed, 1000) == files
    assert record.to_do((), [], 1000) == to_do


def test_what_is_carried_is_no_more_than_needed() -> None:
    """What the last call shows needs no carrying, nor what can be read again; nothing takes no room."""
    read = called("read", {"path": "src/a.py"}, "r")

    def carried(*messages: Message) -> str:
        return carried_in(Transcript.of([GO_ON, *messages]), len, WINDOW, {})

    assert carried(*read, *read) == carried(*edited(1)) == carried(*read, *listed("Rest")) == ""
    told = carried(*read, *edited(1), *listed("Rest"), *read)
    assert "- written: `src/01.py`\n" in told
    assert "- pending: Rest\n" in told
    assert "a.py" not in told
    assert "To do" not in carried(*edited(1), *listed("Rest"))
