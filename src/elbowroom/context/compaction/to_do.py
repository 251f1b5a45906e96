"""The list of what is to do that a client keeps by calls: the newest is how things stand, which a summary carries."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.context.outputs import error_in, one_line
from elbowroom.context.transcript import Group, calls_of, readable

Thing = tuple[str, str]
"""The status of a thing on such a list, and what it is."""
STATUS: Final = "status"
LONGEST: Final = 160
"""Characters of a thing."""
KEPT_BY: Final = re.compile(r"^As (\S+) has it:$", re.MULTILINE)
EMPTY: Final = re.compile(r"\[\s*\]")
LISTED: Final = re.compile(r"^- ([^:\n]+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ToDo:
    """The list as it stands: the `tool` that keeps it, empty where that is not known, and the things on it.

    `lister` is the group whose call it stands in; None where an earlier summary carries it, or nothing is on it.
    """

    tool: str = ""
    things: tuple[Thing, ...] = ()
    lister: Group | None = None


def list_after(groups: Sequence[Group], carried: str) -> ToDo:
    """Return the list of what is to do after these groups, where earlier summaries carry one in this text.

    It is known by its form, whatever the client calls it: a call with one list of things that have a status each. A
    later call of the same tool with an empty list in its place clears it. A call that has failed changes nothing.
    """
    emptied: set[str] = set()
    for group in reversed(groups):
        for tool, arguments in reversed(_made(group)):
            if things := _things_in(arguments):
                return ToDo(tool) if tool in emptied else ToDo(tool, tuple(things), group)
            if _empties(arguments):
                emptied.add(tool)
    by = KEPT_BY.search(carried)
    tool = by[1] if by is not None else ""
    return ToDo(tool) if tool in emptied else ToDo(tool, tuple(LISTED.findall(carried)))


def _made(group: Group) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls of a group that may have set a list and have not failed: tool and arguments."""
    results = {str(each.get("tool_call_id")): each for each in group.messages[1:]}
    found = []
    for call in calls_of(group.messages[0]):
        function = call.get("function")
        function = function if isinstance(function, Mapping) else {}
        given = _parsed(function.get("arguments"))
        result = results.get(str(call.get("id")))
        if given is not None and (result is None or error_in(readable(result)) is None):
            found.append((str(function.get("name")), given))
    return found


def _parsed(arguments: object) -> dict[str, Any] | None:
    """Return the arguments of a call that may set a list, or clear one; None for all others."""
    if not isinstance(arguments, str) or not (f'"{STATUS}"' in arguments or EMPTY.search(arguments)):
        return None
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _lists_in(arguments: Mapping[str, Any]) -> list[list[Any]]:
    return [value for value in arguments.values() if isinstance(value, list)]


def _things_in(arguments: Mapping[str, Any]) -> list[Thing]:
    lists = list(filter(None, _lists_in(arguments)))
    if len(lists) != 1 or not all(isinstance(each, dict) and isinstance(each.get(STATUS), str) for each in lists[0]):
        return []
    return [(one_line(each[STATUS], LONGEST).replace(":", ""), one_line(_told(each), LONGEST)) for each in lists[0]]


def _empties(arguments: Mapping[str, Any]) -> bool:
    """Tell whether all lists in a call are empty, of which it has one at least."""
    lists = _lists_in(arguments)
    return bool(lists) and not any(lists)


def _told(thing: Mapping[str, Any]) -> str:
    """Return the longest text of a thing, which says what it is."""
    return max((value for key, value in thing.items() if key != STATUS and isinstance(value, str)), key=len, default="")


def told_list(to_do: ToDo, size: Callable[[str], int], room: int) -> str:
    """Return a line for each thing, below one that names the tool.

    Where not all have room, the last have, since a list is worked off from its top.
    """
    head = f"As {to_do.tool} has it:\n" if to_do.tool else ""
    room -= size(head) if head else 0
    lines: list[str] = []
    for status, what in reversed(to_do.things):
        line = f"- {status}: {what}"
        room -= size(f"{line}\n")
        if room < 0:
            break
        lines.insert(0, line)
    return head + "\n".join(lines) if lines else ""
