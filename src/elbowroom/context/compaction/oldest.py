"""Puts a digest made by code in place of the oldest groups of a conversation that has too many to be looked at."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.compaction.calls import RemovedCalls
from elbowroom.context.compaction.digest import digest
from elbowroom.context.compaction.division import is_nudge, is_summary, running_task, summary_message
from elbowroom.context.compaction.facts import Fact, facts_of, lost
from elbowroom.context.transcript import Group, Transcript

MOST_GROUPS: Final = 500
"""Groups that a ladder looks at one by one; a pruning agent is shown a list of no more than 120."""
DIGESTED: Final = 200
"""The newest of the groups that go; more lines than these have no room in a digest."""
DIGEST_SHARE, FACTS_SHARE = 16, 12  # one part in so many of the window


@dataclass(frozen=True, slots=True)
class Condensed:
    """A conversation whose oldest `groups` are told by the message of an earlier compaction that it has now."""

    transcript: Transcript
    groups: int = 0


def condensed(
    transcript: Transcript,
    size: Callable[[str], int],
    window: int,
    removed: RemovedCalls,
) -> Condensed:
    """Return the conversation with a digest in place of its oldest groups; unchanged where it is not that long.

    System messages, pinned messages, earlier summaries, the first request and what the running task rests on stay. The
    digest has the form of a summary, so that the next one carries it over, and lists the conditions and identifiers of
    what goes. `size` counts a text.
    """
    older, newer = transcript.groups[:-MOST_GROUPS], transcript.groups[-MOST_GROUPS:]
    if not older:
        return Condensed(transcript)
    staying, going, facts = _looked_through(older, newer)
    telling = digest(
        going[-DIGESTED:],
        size,
        window // DIGEST_SHARE,
        removed.most_tokens,
        removed.kinds,
        keeps_errors=removed.keeps_errors,
        older=max(0, len(going) - DIGESTED),
    )
    listed = list(_fitting(lost(facts, ()), size, window // FACTS_SHARE))
    told = Group(({"role": "user", "content": summary_message("", telling, listed, "in progress")},))
    opening = next((at for at, group in enumerate(staying) if group.kind == "user" and not is_summary(group)), None)
    place = len(staying) if opening is None else opening + 1
    return Condensed(Transcript((*staying[:place], told, *staying[place:], *newer)), len(going))


def _looked_through(older: Sequence[Group], newer: Sequence[Group]) -> tuple[list[Group], list[Group], list[Fact]]:
    """Return the older groups that stay, those that go, and the facts of these; a repeated text is read once."""
    pinned = {0, *_opening(older, newer)}
    staying: list[Group] = []
    going: list[Group] = []
    facts: list[Fact] = []
    read: set[str] = set()
    users = 0
    for group in older:
        is_request = group.kind == "user" and not is_summary(group)
        is_kept = group.is_pinned or group.kind == "system" or (group.kind == "user" and not is_request)
        if is_kept or (is_request and users in pinned):
            staying.append(group)
        else:
            going.append(group)
            if (text := group.text) not in read or group.kind == "tools":
                read.add(text)
                facts += (fact for fact in facts_of(group) if fact is not None)
        users += is_request
    return staying, going, facts


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


def _fitting(facts: Sequence[Fact], size: Callable[[str], int], room: int) -> Iterator[str]:
    for fact in facts:
        room -= size(f"- {fact.text}\n")
        if room < 0:
            return
        yield fact.text
