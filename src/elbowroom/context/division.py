"""Divides a conversation for a compaction: what is pinned, what is old, and the tail that stays word for word."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elbowroom.context.nudge import is_nudge
from elbowroom.context.transcript import Group, Transcript

LEAST_TAIL, MOST_TAIL = 3, 5
SUMMARY_TAG = "elbowroom-summary"


@dataclass(frozen=True, slots=True)
class NumberedGroup:
    """A group with its place in the conversation, by which a prune plan names it."""

    id: int
    group: Group


@dataclass(frozen=True, slots=True)
class Division:
    """A conversation in parts, each in its order; every group is in exactly one of them.

    `system` are the system messages before the tail, wherever they stood. `pinned` are the messages before the tail
    that the running task rests on. `old` is everything that a compaction replaces; `summaries` are what earlier
    compactions left, to be carried into the next.
    """

    system: tuple[Group, ...]
    pinned: tuple[NumberedGroup, ...]
    old: tuple[NumberedGroup, ...]
    summaries: tuple[Group, ...]
    tail: tuple[Group, ...]


def divide(transcript: Transcript, *, tails_from: int, keeping: frozenset[int] = frozenset()) -> Division:
    """Divide a conversation whose tail begins at group `tails_from`; groups at the places `keeping` are pinned too.

    A system message that only repeats an earlier one, as some clients send with every turn, is old.
    """
    pinned = running_task(transcript.groups) | keeping
    system: list[Group] = []
    kept: list[NumberedGroup] = []
    old: list[NumberedGroup] = []
    summaries: list[Group] = []
    for index, group in enumerate(transcript.groups[:tails_from]):
        if group.kind == "system" and group not in system:
            system.append(group)
        elif is_summary(group):
            summaries.append(group)
        else:
            (kept if index in pinned else old).append(NumberedGroup(index, group))
    return Division(tuple(system), tuple(kept), tuple(old), tuple(summaries), transcript.groups[tails_from:])


def tail_starts(groups: tuple[Group, ...], turns: int) -> Iterator[int]:
    """Yield where the tail may begin, longest tail first: the last turns, 3 to 5 messages, 3, the last group.

    Results of tools that the model has not read yet are in every tail.
    """
    last = _start_of_unread(groups)
    starts = {
        last,
        min(last, _start_of_messages(groups, LEAST_TAIL, MOST_TAIL)),
        min(last, _start_of_messages(groups, 0, LEAST_TAIL)),
    }
    if turns > 0:
        starts.add(min(last, _start_of_turns(groups, turns)))
    yield from sorted(starts)


def running_task(groups: tuple[Group, ...]) -> frozenset[int]:
    """Return the places of the last user message and, where that is only a nudge, of the one that it nudges on."""
    users = _users(groups)
    if not users:
        return frozenset()
    opened = [index for index in users if not _is_nudge(groups[index])]
    return frozenset({users[-1], opened[-1] if opened else users[0]})


def results_being_answered(groups: tuple[Group, ...]) -> frozenset[int]:
    """Return the place of the results behind which there is nothing but the beginning of an answer."""
    place = len(groups) - 1
    while place >= 0 and groups[place].kind == "assistant":
        place -= 1
    is_begun = 0 <= place < len(groups) - 1
    return frozenset({place}) if is_begun and groups[place].kind == "tools" else frozenset()


def is_summary(group: Group) -> bool:
    """Tell whether this is the message that an earlier compaction has put in place of old groups."""
    return group.messages[0].get("role") == "user" and group.text.lstrip().startswith(f"<{SUMMARY_TAG}>")


def _is_nudge(group: Group) -> bool:
    content = group.messages[0].get("content")
    shows_more = isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") not in (None, "text") for part in content
    )
    return not shows_more and is_nudge(group.text)


def _users(groups: tuple[Group, ...]) -> list[int]:
    return [index for index, group in enumerate(groups) if group.kind == "user" and not is_summary(group)]


def _start_of_unread(groups: tuple[Group, ...]) -> int:
    """Return the place of the last group, or of the calls before it where only the user has spoken since."""
    last = max(0, len(groups) - 1)
    place = last
    while place > 0 and groups[place].kind in ("user", "system"):
        place -= 1
    return place if groups and groups[place].kind == "tools" else last


def _start_of_turns(groups: tuple[Group, ...], turns: int) -> int:
    users = _users(groups)
    return users[-turns] if len(users) >= turns else 0


def _start_of_messages(groups: tuple[Group, ...], least: int, most: int) -> int:
    """Return where the longest run of whole groups with at most this many messages begins.

    It is longer where it would have fewer than `least` messages or no group at all.
    """
    start, count = len(groups), 0
    while start > 0 and (count < max(1, least) or count + len(groups[start - 1].messages) <= most):
        start -= 1
        count += len(groups[start].messages)
    return start
