"""Puts quotations in place of the oldest groups of a conversation that has too many to be looked at."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.compaction.coverage import quoted
from elbowroom.context.compaction.division import is_nudge, is_summary, running_task, summary_message
from elbowroom.context.transcript import Group, Summary, Transcript

MOST_GROUPS: Final = 500
"""Groups that a ladder looks at one by one; a pruning agent is shown a list of no more than 120."""
QUOTED_SHARE: Final = 7
"""One part in so many of the window is for what the oldest groups are told by."""


@dataclass(frozen=True, slots=True)
class Condensed:
    """A conversation whose oldest `groups` are told by the message of an earlier compaction that it has now."""

    transcript: Transcript
    groups: int = 0


def condensed(
    transcript: Transcript,
    size: Callable[[str], int],
    window: int,
) -> Condensed:
    """Return the conversation with quotations in place of its oldest groups; unchanged where it is not that long.

    System messages, pinned messages, earlier summaries, the first request and what the running task rests on stay. The
    quotations have the form of a summary, so that the next one carries them over. `size` counts a text.
    """
    older, newer = transcript.groups[:-MOST_GROUPS], transcript.groups[-MOST_GROUPS:]
    if not older:
        return Condensed(transcript)
    staying, going, number = _looked_through(older, newer)
    lines = quoted(going, size, window // QUOTED_SHARE)
    told = Group((Summary(role="user", content=summary_message("", "", lines, "in progress")),))
    opening = next((at for at, group in enumerate(staying) if group.kind == "user" and not is_summary(group)), None)
    place = len(staying) if opening is None else opening + 1
    return Condensed(Transcript((*staying[:place], told, *staying[place:], *newer)), number)


def _looked_through(older: Sequence[Group], newer: Sequence[Group]) -> tuple[list[Group], list[Group], int]:
    """Return the older groups that stay, those that go, each text once, and how many go."""
    pinned = {0, *_opening(older, newer)}
    staying: list[Group] = []
    going: list[Group] = []
    read: set[str] = set()
    users = number = 0
    for group in older:
        kind = group.kind
        is_request = kind == "user" and not is_summary(group)
        is_kept = group.is_pinned or kind == "system" or (kind == "user" and not is_request)
        if is_kept or (is_request and users in pinned):
            staying.append(group)
        else:
            number += 1
            if (text := group.text) not in read or kind == "tools":
                read.add(text)
                going.append(group)
        users += is_request
    return staying, going, number


def _opening(older: Sequence[Group], newer: Sequence[Group]) -> Sequence[int]:
    """Return which of the older requests, by their number, the running task rests on."""
    task = running_task(tuple(newer))
    if any(not is_nudge(newer[place].text) for place in task):
        return ()
    number, opened, last = 0, 0, 0
    for group in older:
        if group.kind == "user" and not is_summary(group):
            last = number
            opened = opened if is_nudge(group.text) else number
            number += 1
    return (opened,) if task else (opened, last)
