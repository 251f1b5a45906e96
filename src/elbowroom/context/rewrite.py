"""Reads a conversation that a pruning agent has rewritten as a plan: what it left unchanged stays, the rest is told.

A rewritten message never stands in the conversation as if its role had said it. Otherwise a pruning agent, or a text
that it was tricked by, could put words into the mouths of user and system. What it changed or added is information
and goes where a summary goes.
"""

from elbowroom.context.compaction import carried_by
from elbowroom.context.division import Division, is_summary
from elbowroom.context.prune_answer import Plan, Rewrite, Unusable
from elbowroom.context.readable import called, readable, written
from elbowroom.context.transcript import SYSTEM_ROLES, Group, Message

Said = tuple[str, str, tuple[tuple[str, str], ...]]
NOTHING_TOLD = Unusable("Messages were left out, and no summary said what was in them.")


def as_plan(rewrite: Rewrite, division: Division) -> Plan | Unusable:
    """Return the plan: old groups all of whose messages are there unchanged are kept, other messages become words."""
    theirs = {_said(message) for message in rewrite.messages}
    kept = [each for each in division.old if theirs.issuperset(map(_said, each.group.messages))]
    ours = [*(each.group for each in (*kept, *division.pinned)), *division.tail]
    settled = {_said(message) for group in ours for message in group.messages}
    told = [_told(message) for message in rewrite.messages if _said(message) not in settled and _is_content(message)]
    summary = "\n".join(filter(None, [rewrite.summary, *told]))
    if not summary and len(kept) < len(division.old):
        return NOTHING_TOLD
    return Plan("", summary, tuple(each.id for each in kept))


def _said(message: Message) -> Said:
    """Return what makes a message the same: who says and calls what; ids may have been written anew."""
    return str(message.get("role")), readable(message).strip(), tuple(called(message))


def _is_content(message: Message) -> bool:
    return message.get("role") not in SYSTEM_ROLES


def _told(message: Message) -> str:
    group = Group((message,))
    return carried_by([group]).text if is_summary(group) else written(message)
