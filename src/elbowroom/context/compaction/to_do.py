"""What is to do: a client's list, of which the newest is how things stand, and what pruning agents have told as open.

A summary carries both. Of its own things a pruning agent may close one, but none goes because it is not named again.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, Final

from elbowroom.context.compaction.coverage import words_of
from elbowroom.context.outputs import error_in, one_line
from elbowroom.context.transcript import Group, uses_in

Thing = tuple[str, str]
"""The status of a thing on such a list, and what it is."""
OPEN, DONE = "open", "done"
"""The statuses of what a pruning agent has told; a client may have any other."""
ALIKE: Final = 0.75
"""The share of a thing's letters that are told where it is done; with fewer it may be another thing."""
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


def things_named(text: str, status: str) -> list[Thing]:
    """Return the things that a text names, one in each line, with this status."""
    lines = (one_line(line.strip("- \t"), LONGEST) for line in text.splitlines())
    return [(status, what) for what in lines if what]


def with_client_list(before: Sequence[Thing], listed: Sequence[Thing]) -> list[Thing]:
    """Return what is to do once a client has listed what it knows of, which it then tells alone."""
    known = [words_of(what) for _, what in listed]
    return [*(each for each in before if each[0] in (OPEN, DONE) and words_of(each[1]) not in known), *listed]


def with_news(before: Sequence[Thing], news: Sequence[Thing]) -> list[Thing]:
    """Return what is to do after what a plan tells of it; nothing goes, and what is done comes first.

    What is done is not opened again in the same words. What a client has listed stays as it is.
    """
    things = list(before)
    for status, what in news:
        meant = _meant(words_of(what), [words_of(told) for _, told in things], least=ALIKE if status == DONE else 1)
        if meant is None:
            things.append((status, what))
        elif (status, things[meant][0]) == (DONE, OPEN):
            things[meant] = DONE, things[meant][1]
    return sorted(things, key=lambda thing: thing[0] != DONE)


def _meant(words: Set[str], known: Sequence[Set[str]], least: float) -> int | None:
    """Return which thing is meant: the most alike, if these words have this share of its letters; None without one."""
    shares = [sum(map(len, words & each)) / max(1, sum(map(len, each))) for each in known]
    alike = max(range(len(known)), key=lambda at: (known[at] == words, shares[at]), default=None)
    return alike if alike is not None and shares[alike] >= least else None


def list_told(text: str) -> list[Thing]:
    """Return the list that an earlier summary carries."""
    return LISTED.findall(text)


def in_a_line(thing: Thing) -> str:
    """Return a thing as a summary tells it."""
    return f"- {thing[0]}: {thing[1]}"


def told_list(things: Sequence[Thing], size: Callable[[str], int], room: int) -> str:
    """Return a line for each thing; where not all have room, the last, since a list is worked off from its top."""
    lines: list[str] = []
    for thing in reversed(things):
        line = in_a_line(thing)
        room -= size(f"{line}\n")
        if room < 0:
            break
        lines.insert(0, line)
    return "\n".join(lines)
