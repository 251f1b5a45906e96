"""The list of what is to do that a client keeps by calls, carried by code from one compaction to the next."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from elbowroom.context.compaction.to_do import ToDo, list_after, told_list
from elbowroom.context.transcript import Group, Transcript

THINGS = [{"content": "Read part 01", "status": "completed"}, {"content": "Edit it", "status": "pending"}]
KNOWN = [("completed", "Read part 01"), ("pending", "Edit it")]


def calling(*arguments: Any, result: str = "ok", tool: str = "note") -> Group:
    """Return a group of calls with these arguments, and their results."""
    given = [each if isinstance(each, str) else json.dumps(each) for each in arguments]
    calls = [{"id": f"c{at}", "function": {"name": tool, "arguments": each}} for at, each in enumerate(given)]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls]
    return Transcript.of([{"role": "assistant", "content": None, "tool_calls": calls}, *results]).groups[0]


@pytest.mark.parametrize(
    ("arguments", "things"),
    [
        ([{"todos": THINGS}], KNOWN),
        ([{"explanation": "So far", "plan": [{"step": "Read", "status": "in_progress"}]}], [("in_progress", "Read")]),
        ([{"path": "a.py"}, {"todos": THINGS}, {"path": "b.py"}], KNOWN),  # beside other calls
        ([{"todos": THINGS[:1]}, {"todos": THINGS}], KNOWN),
        ([{"todos": [{"id": 7, "status": "a:b", "text": "One\nand two"}]}], [("ab", "One and two")]),
        ([{"todos": []}], []),
        ([{"todos": [*THINGS, {"content": "no status"}]}], []),
        ([{"todos": [{"content": "a", "status": 3}]}], []),
        ([{"status": "open", "ids": [1, 2]}], []),
        ([[{"status": "open"}]], []),
        (['{"todos": [{"status"'], []),
    ],
)
def test_lists_are_known_by_their_form(arguments: Sequence[Any], things: list[tuple[str, str]]) -> None:
    """A call with one list of things that have a status each is one, whatever the client calls it."""
    assert list(list_after([calling(*arguments)], "").things) == things


def test_a_list_that_was_refused_is_none() -> None:
    """What stands in a call that has failed is not how things stand."""
    refused = calling({"todos": THINGS}, result="Error: only one thing may be in progress")
    assert list_after([refused], "") == ToDo()
    kept = calling({"todos": THINGS[:1]})
    assert list_after([kept, refused], "") == ToDo("note", (KNOWN[0],), kept)


OTHER = calling({"plan": [{"step": "Sail", "status": "pending"}]}, tool="plan")
FULL, EMPTY = calling({"todos": THINGS}), calling({"todos": []})
CARRIED = told_list(ToDo("note", tuple(KNOWN)), len, 1000)


@pytest.mark.parametrize(
    ("groups", "carried", "things"),
    [
        ([FULL, EMPTY], "", []),
        ([calling({"todos": THINGS}, {"todos": []})], "", []),
        ([FULL, calling('{"todos": [\n]}')], "", []),
        ([FULL, EMPTY, FULL], "", KNOWN),
        ([FULL, calling({"todos": []}, tool="search")], "", KNOWN),  # another tool
        ([FULL, calling({"todos": []}, result="Error: there is no such list")], "", KNOWN),
        ([FULL, calling({"todos": [], "done": [{"id": 1}]})], "", KNOWN),
        ([FULL, calling({"path": "a.py"})], "", KNOWN),
        ([FULL, OTHER, EMPTY], "", [("pending", "Sail")]),
        ([], CARRIED, KNOWN),
        ([EMPTY], CARRIED, []),
        ([calling({"todos": []}, tool="search")], CARRIED, KNOWN),
        ([EMPTY], "- pending: of a summary that names no tool", [("pending", "of a summary that names no tool")]),
        ([FULL], "As plan has it:\n- pending: Sail", KNOWN),
    ],
)
def test_an_emptied_list_is_carried_no_more(
    groups: Sequence[Group], carried: str, things: list[tuple[str, str]]
) -> None:
    """A later call of the same tool with an empty list clears it, also where the list itself was summarised before."""
    assert list(list_after(groups, carried).things) == things


@pytest.mark.parametrize(("room", "first"), [(1000, 0), (80, 1), (52, 2), (21, 4)])
def test_the_end_of_a_list_has_room_first(room: int, first: int) -> None:
    """A list is worked off from its top: what is left to do stands at its end; what is told is read back."""
    things = [("completed", "Read a.py"), ("in_progress", "Edit: a.py"), ("pending", "Read b.py"), ("pending", "End")]
    told = told_list(ToDo("note", tuple(things)), len, room)
    assert len(told) <= room
    assert list(list_after([], told).things) == things[first:]
    assert bool(told) is (first < len(things))
