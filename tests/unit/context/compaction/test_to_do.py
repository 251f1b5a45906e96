"""What is to do, carried by code from one compaction to the next: a client's list, and what pruning agents tell."""

import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from elbowroom.context.compaction.to_do import (
    LISTED,
    ClientList,
    Thing,
    client_list,
    things_named,
    told_list,
    tool_told,
    with_client_list,
    with_news,
)
from elbowroom.context.transcript import Group, Transcript

THINGS = [{"content": "Read part 01", "status": "completed"}, {"content": "Edit it", "status": "pending"}]
INVOICE, OFFER = "Send the invoice to Dana", "Send the offer to Dana"
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
    found = client_list([calling(*arguments)], "")
    assert (list(found.things) if found is not None else []) == things


def test_a_list_that_was_refused_is_none() -> None:
    """What stands in a call that has failed is not how things stand."""
    refused = calling({"todos": THINGS}, result="Error: only one thing may be in progress")
    assert client_list([refused], "") is None
    kept = calling({"todos": THINGS[:1]})
    assert client_list([kept, refused], "") == ClientList("note", (KNOWN[0],), kept)


OTHER = calling({"plan": [{"step": "Sail", "status": "pending"}]}, tool="plan")
FULL, EMPTY = calling({"todos": THINGS}), calling({"todos": []})
TOLD = told_list(KNOWN, len, 1000, "note")


@pytest.mark.parametrize(
    ("groups", "told", "things"),
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
        ([], TOLD, None),
        ([EMPTY], TOLD, []),
        ([calling({"todos": []}, tool="search")], TOLD, None),
        ([EMPTY], "- pending: of a summary that names no tool", None),
    ],
)
def test_an_emptied_list_stands_no_more(
    groups: Sequence[Group], told: str, things: list[tuple[str, str]] | None
) -> None:
    """A later call of the same tool with an empty list empties it, also where the list itself was summarised before."""
    found = client_list(groups, told)
    assert (list(found.things) if found is not None else None) == things


TOLD_BY_PLAN = told_list([("pending", "Sail")], len, 1000, "plan")


@pytest.mark.parametrize(
    ("groups", "told", "found"),
    [
        ([FULL, FULL, OTHER], "", FULL),
        ([OTHER, OTHER, FULL], "", OTHER),
        ([FULL, OTHER], "", OTHER),  # as often: the newest
        ([OTHER, FULL, FULL, OTHER, EMPTY], "", OTHER),
        ([OTHER], TOLD, None),  # what was told stays
        ([OTHER, OTHER], TOLD, OTHER),
        ([FULL], TOLD_BY_PLAN, None),
        ([FULL, OTHER], TOLD_BY_PLAN, OTHER),
        ([EMPTY, OTHER], TOLD, OTHER),
    ],
)
def test_each_tool_keeps_a_list_of_its_own(groups: Sequence[Group], told: str, found: Group | None) -> None:
    """A tool that sets statuses now and then takes nothing from the list that another one keeps."""
    listed = client_list(groups, told)
    assert (listed.lister if listed is not None else None) is found


@pytest.mark.parametrize(("room", "first"), [(1000, 0), (64, 1), (36, 2), (5, 4)])
def test_the_end_of_a_list_has_room_first(room: int, first: int) -> None:
    """A list is worked off from its top: what is left to do stands at its end; what is told is read back."""
    things = [("completed", "Read a.py"), ("in_progress", "Edit: a.py"), ("pending", "Read b.py"), ("pending", "End")]
    told = told_list(things, len, room)
    assert len(told) <= room
    assert LISTED.findall(told) == things[first:]
    kept_by = "(note keeps this list.)\n"
    named = told_list(things, len, room + len(kept_by), "note")
    assert (LISTED.findall(named), tool_told(named)) == (things[first:], "note" if first < len(things) else "")


@pytest.mark.parametrize(
    ("before", "news", "after"),
    [
        ([("open", INVOICE)], [], [("open", INVOICE)]),  # neither repeated nor closed
        ([], [("open", INVOICE)], [("open", INVOICE)]),
        ([], [("done", INVOICE)], [("done", INVOICE)]),
        ([("open", INVOICE)], [("open", OFFER)], [("open", INVOICE), ("open", OFFER)]),  # alike, but not the same
        ([("open", INVOICE)], [("open", f"{INVOICE.lower()}.")], [("open", INVOICE)]),
        ([("open", OFFER), ("open", INVOICE)], [("done", INVOICE)], [("done", INVOICE), ("open", OFFER)]),
        (
            [("open", INVOICE), ("open", OFFER)],
            [("done", "Sent the offer to Dana")],
            [("done", OFFER), ("open", INVOICE)],
        ),
        (  # so much more may be another thing
            [("open", INVOICE)],
            [("done", "Sent the invoice to Dana, who paid")],
            [("done", "Sent the invoice to Dana, who paid"), ("open", INVOICE)],
        ),
        (
            [("open", "Write the migration of the users' table")],
            [("done", "Wrote the migration of the users' table")],
            [("done", "Write the migration of the users' table")],
        ),
        (
            [("done", "Write the parser")],
            [("open", "Write the parser tests")],
            [("done", "Write the parser"), ("open", "Write the parser tests")],
        ),
        (
            [("open", "Fix login")],
            [("open", "Fix login in the app")],
            [("open", "Fix login"), ("open", "Fix login in the app")],
        ),
        ([("pending", "Tests")], [("open", "Write tests")], [("pending", "Tests"), ("open", "Write tests")]),
        (
            [("open", "Fix issue 12")],
            [("done", "Fix issue 13")],
            [("done", "Fix issue 13"), ("open", "Fix issue 12")],
        ),
        (
            [("open", "Release v1.2 of the exporter")],
            [("done", "Release v1.3 of the exporter")],
            [("done", "Release v1.3 of the exporter"), ("open", "Release v1.2 of the exporter")],
        ),
        (
            [("open", "Add tests for user login")],
            [("done", "Add tests for user logout")],
            [("done", "Add tests for user logout"), ("open", "Add tests for user login")],
        ),
        ([("open", INVOICE)], [("done", OFFER)], [("done", OFFER), ("open", INVOICE)]),  # alike, but not the same
        ([("done", INVOICE)], [("open", INVOICE)], [("done", INVOICE)]),  # not opened again
        ([("done", INVOICE)], [("open", OFFER)], [("done", INVOICE), ("open", OFFER)]),
        ([("open", INVOICE)], [("open", INVOICE), ("done", INVOICE)], [("done", INVOICE)]),
        ([("pending", INVOICE)], [("done", INVOICE)], [("pending", INVOICE)]),  # a client's own list
    ],
)
def test_what_a_plan_tells_of_it(before: list[Thing], news: list[Thing], after: list[Thing]) -> None:
    """A plan opens and closes; what it does not name stays as it is, and what is done is not opened again."""
    assert with_news(before, news) == after


def test_long_lists_take_little_time() -> None:
    """The words of what is known are read once, however much a plan tells."""
    before = [("pending", f"Write the parser of module {at}") for at in range(20_000)]
    news = [("open", f"Look at thing {at}") for at in range(50)]
    start = time.process_time()
    assert len(with_news(before, news)) == 20_050
    assert time.process_time() - start < 1.5


def test_a_client_lists_its_own_things_alone() -> None:
    """What pruning agents have told stays beside a newer list, unless it is on that."""
    before = [("open", INVOICE), ("open", OFFER), ("completed", "Read part 00")]
    assert with_client_list(before, [*KNOWN, ("pending", OFFER)]) == [("open", INVOICE), *KNOWN, ("pending", OFFER)]
    assert with_client_list(before, []) == [("open", INVOICE), ("open", OFFER)]
    assert tool_told(told_list(before[:2], len, 1000, "note")) == ""  # nothing of a client is among them


def test_statuses_of_a_client_may_be_those_of_pruning_agents() -> None:
    """Such a list is told, shortened and emptied as any other; what pruning agents have told stays beside it."""
    listed = [{"content": INVOICE, "status": "open"}, {"content": OFFER, "status": "done"}]
    first = client_list([calling({"todos": listed})], "")
    assert first is not None
    told = told_list(with_client_list([("open", "Rest")], first.things), len, 1000, first.tool)
    assert tool_told(told) == "note"
    shorter = client_list([calling({"todos": listed[:1]})], told)
    assert shorter is not None
    for now in (
        with_client_list(LISTED.findall(told), shorter.things),
        with_news(LISTED.findall(told), [("done", "Rest")]),
    ):
        assert now[0][1] == "Rest"
        assert [what for _, what in now[1:]] == [INVOICE, OFFER][: len(now) - 1]
    assert [what for _, what in with_client_list(LISTED.findall(told), shorter.things)] == ["Rest", INVOICE]
    assert client_list([EMPTY], told) == ClientList("note")
    assert with_client_list(LISTED.findall(told), []) == [("open", "Rest")]


def test_things_are_named_one_a_line() -> None:
    """Dashes before them are no part of them, and empty lines name nothing."""
    assert things_named("- Read: it\n\n  Edit it\n-", "open") == [("open", "Read: it"), ("open", "Edit it")]
