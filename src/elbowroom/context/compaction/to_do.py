"""The list of what is to do that a client keeps by calls: the newest is how things stand, which a summary carries."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from elbowroom.context.outputs import error_in, one_line
from elbowroom.context.transcript import Group, uses_in

Thing = tuple[str, str]
"""The status of a thing on such a list, and what it is."""
STATUS: Final = "status"
LONGEST: Final = 160
"""Characters of a thing."""
LISTED: Final = re.compile(r"^- ([^:\n]+): (.+)$", re.MULTILINE)


def list_in(group: Group) -> list[Thing]:
    """Return the last list of what is to do among the calls of a group; nothing where none is one, or it has failed.

    It is known by its form, whatever the client calls it: one list of things that have a status each.
    """
    for use in reversed([*uses_in(group.messages)]):
        if (things := _things_in(use.arguments)) and error_in(use.text) is None:
            return things
    return []


def _things_in(arguments: str) -> list[Thing]:
    if f'"{STATUS}"' not in arguments:
        return []
    try:
        given = json.loads(arguments)
    except (ValueError, RecursionError):
        return []
    lists = [value for value in given.values() if isinstance(value, list) and value] if isinstance(given, dict) else []
    if len(lists) != 1 or not all(isinstance(each, dict) and isinstance(each.get(STATUS), str) for each in lists[0]):
        return []
    return [(one_line(each[STATUS], LONGEST).replace(":", ""), one_line(_told(each), LONGEST)) for each in lists[0]]


def _told(thing: Mapping[str, Any]) -> str:
    """Return the longest text of a thing, which says what it is."""
    return max((value for key, value in thing.items() if key != STATUS and isinstance(value, str)), key=len, default="")


def list_told(text: str) -> list[Thing]:
    """Return the list that an earlier summary carries."""
    return LISTED.findall(text)


def told_list(things: Sequence[Thing], size: Callable[[str], int], room: int) -> str:
    """Return a line for each thing; where not all have room, the last, since a list is worked off from its top."""
    lines: list[str] = []
    for status, what in reversed(things):
        line = f"- {status}: {what}"
        room -= size(f"{line}\n")
        if room < 0:
            break
        lines.insert(0, line)
    return "\n".join(lines)
