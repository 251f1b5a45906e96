"""What is to do: a client's list, of which the newest is how things stand, and what pruning agents have told as open.

A summary carries both. Of its own things a pruning agent may close one, but none goes because it is not named again.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.context.compaction.coverage import words_of
from elbowroom.context.outputs import error_in, one_line
from elbowroom.context.transcript import Group, object_in, uses_in

Thing = tuple[str, str]
"""The status of a thing on such a list, and what it is."""
OPEN, DONE = "open", "done"
"""The statuses of what a pruning agent has told; a client's are in quotation marks where they are the same."""
ALIKE: Final = 0.6
"""The share of letters that a thing has in common with what is told as done; with fewer it may be another thing."""
STATUS: Final = "status"
LONGEST: Final = 160
"""Characters of a thing."""
EMPTY: Final = re.compile(r"\[\s*\]")
KEPT_BY: Final = "({tool} keeps this list.)"
KEEPER: Final = re.compile(r"^\((\S+) keeps this list\.\)$", re.MULTILINE)
LISTED: Final = re.compile(r"^- ([^:\n]+): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ClientList:
    """A client's list as its calls leave it: the `tool` that keeps it, and the things on it.

    `lister` is the group whose call it stands in; None where it was emptied.
    """

    tool: str
    things: tuple[Thing, ...] = ()
    lister: Group | None = None


def client_list(groups: Sequence[Group], told: str) -> ClientList | None:
    """Return the list that a client has set, or emptied, in these groups; None where it has done neither.

    It is known by its form, whatever the client calls it: one list of things that have a status each. A later call of
    the same tool with an empty list empties it, also where the list itself stands in what an earlier summary has
    `told`. A call that has failed changes nothing. Of several tools that keep one, that counts which was called most,
    where to be told before is as good as a call; then the told one, and the newest.
    """
    tool = tool_told(told)
    lists: dict[str, ClientList | None] = {tool: None} if tool else {}
    calls = Counter([tool])
    for group in groups:
        for use in uses_in(group.messages):
            given = _lists_in(use.arguments)
            if not given or error_in(use.text) is not None:
                continue
            if things := _things_in(given):
                lists.pop(use.name, None)
                lists[use.name] = ClientList(use.name, tuple(things), group)
                calls[use.name] += 1
            elif use.name in lists and not any(given):
                lists[use.name] = ClientList(use.name)
    standing = [name for name, each in lists.items() if each is None or each.things] or [*lists]
    return lists[max(reversed(standing), key=lambda name: (calls[name], name == tool))] if standing else None


def _lists_in(arguments: str) -> list[list[Any]]:
    """Return the lists in the arguments of a call that may set a list, or empty one; none for all others."""
    if f'"{STATUS}"' not in arguments and EMPTY.search(arguments) is None:
        return []
    return [value for value in (object_in(arguments) or {}).values() if isinstance(value, list)]


def _things_in(given: Sequence[list[Any]]) -> list[Thing]:
    lists = list(filter(None, given))
    if len(lists) != 1 or not all(isinstance(each, dict) and isinstance(each.get(STATUS), str) for each in lists[0]):
        return []
    return [(_clients_status(each[STATUS]), one_line(_told(each), LONGEST)) for each in lists[0]]


def _clients_status(status: str) -> str:
    """Return a client's status as a summary tells it: never one that says that a pruning agent has told the thing."""
    told = one_line(status, LONGEST).replace(":", "")
    return f'"{told}"' if told in (OPEN, DONE) else told


def _told(thing: Mapping[str, Any]) -> str:
    """Return the longest text of a thing, which says what it is."""
    return max((value for key, value in thing.items() if key != STATUS and isinstance(value, str)), key=len, default="")


def things_named(value: Any, status: str) -> list[Thing]:
    """Return the things that a pruning agent names with this status: one in each line of a text, and in each object.

    An object names it with its longest text, and may have a status of its own; without one it can also hold the things.
    """
    if isinstance(value, list):
        return [thing for each in value for thing in (_thing_of(each, status) or things_named(each, status))]
    if isinstance(value, dict):
        own = _thing_of(value, status) if STATUS in value else []
        return own or things_named([*value.values()], status)
    if not isinstance(value, str):
        return []
    lines = (one_line(line.strip("- \t"), LONGEST) for line in value.splitlines())
    return [(status, what) for what in lines if what]


def _thing_of(value: Any, status: str) -> list[Thing]:
    """Return the thing that an object is; none for all else."""
    what = one_line(_told(value), LONGEST) if isinstance(value, dict) else ""
    is_done = what and str(value.get(STATUS)).casefold() in (DONE, "completed")
    return [(DONE if is_done else status, what)] if what else []


def with_client_list(before: Sequence[Thing], listed: Sequence[Thing]) -> list[Thing]:
    """Return what is to do once a client has listed what it knows of, which it then tells alone."""
    known = {frozenset(words_of(what)) for _, what in listed}
    return [*(each for each in before if each[0] in (OPEN, DONE) and words_of(each[1]) not in known), *listed]


def with_news(before: Sequence[Thing], news: Sequence[Thing]) -> list[Thing]:
    """Return what is to do after what a plan tells of it; nothing goes, and what is done comes first.

    What is done is not opened again in the same words. What a client has listed stays as it is.
    """
    things = list(before)
    known = [words_of(what) for _, what in things]
    for status, what in news:
        words = words_of(what)
        meant = known.index(words) if words in known else _most_alike(words, known) if status == DONE else None
        if meant is None:
            things.append((status, what))
            known.append(words)
        elif (status, things[meant][0]) == (DONE, OPEN):
            things[meant] = DONE, things[meant][1]
    return sorted(things, key=lambda thing: thing[0] != DONE)


def _most_alike(words: Set[str], known: Sequence[Set[str]]) -> int | None:
    """Return which thing has the largest share of its letters in common with these words; None where none is alike."""
    letters = _letters(words)
    shares = [_share(words, letters, each) for each in known]
    alike = max(range(len(known)), key=shares.__getitem__, default=None)
    return alike if alike is not None and shares[alike] >= ALIKE else None


def _share(words: Set[str], letters: int, other: Set[str]) -> float:
    """Return which share of all letters two things have in common; 0 where it is small, or their numbers differ."""
    common = _letters(words & other)
    if common < ALIKE * letters or any(char.isdigit() for word in words ^ other for char in word):
        return 0
    return common / (letters + _letters(other) - common)


def _letters(words: Set[str]) -> int:
    return sum(map(len, words))


def tool_told(text: str) -> str:
    """Return the name of the tool that keeps a client's list in an earlier summary; empty where none is told."""
    found = KEEPER.search(text)
    return found[1] if found is not None else ""


def in_a_line(thing: Thing) -> str:
    """Return a thing as a summary tells it."""
    return f"- {thing[0]}: {thing[1]}"


def told_list(things: Sequence[Thing], size: Callable[[str], int], room: int, tool: str = "") -> str:
    """Return a line for each thing, and one that names the tool of a client whose list is among them.

    Where not all have room, the last have, since a list is worked off from its top.
    """
    is_of_client = bool(tool) and any(status not in (OPEN, DONE) for status, _ in things)
    kept_by = [KEPT_BY.format(tool=tool)] if is_of_client else []
    room -= sum(size(f"{line}\n") for line in kept_by)
    lines: list[str] = []
    for thing in reversed(things):
        line = in_a_line(thing)
        room -= size(f"{line}\n")
        if room < 0:
            break
        lines.insert(0, line)
    return "\n".join([*lines, *kept_by] if lines else ())
