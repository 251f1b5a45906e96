"""Builds the shorter conversation out of what a pruning agent or the digest gave."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elbowroom.context.division import SUMMARY_TAG, Division, NumberedGroup
from elbowroom.context.transcript import Group, Message, messages_of

Rung = Literal["plan", "retry", "digest", "last messages"]
TaskState = Literal["in progress", "waiting for an answer"]
CONTINUATIONS: dict[TaskState, str] = {
    "in progress": "The task is in progress: go on from the messages that follow, and do not begin anew.",
    "waiting for an answer": "The messages that follow are the current ones: answer the last of the user's.",
}


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation made shorter: its messages, which rung of the ladder did it, sizes in tokens before and after."""

    messages: tuple[Message, ...]
    rung: Rung
    before: int
    after: int
    replaced_groups: int
    summary: str


def build(division: Division, summary: str, kept: Sequence[NumberedGroup]) -> list[Message]:
    """Return system, the message that opened the task, the summary, kept groups in their order, and the tail."""
    opening, nudges = division.pinned[:1], division.pinned[1:]
    middle = sorted([*kept, *nudges], key=lambda numbered: numbered.id)
    note: list[Message] = [{"role": "user", "content": summary}] if summary else []
    return [
        *messages_of(division.system),
        *messages_of([numbered.group for numbered in opening]),
        *note,
        *messages_of([numbered.group for numbered in middle]),
        *messages_of(division.tail),
    ]


def summary_message(retain: str, summary: str, facts: Sequence[str], state: TaskState) -> str:
    """Return the text that stands for what was removed: fenced, so that it is read as information."""
    sections = [
        ("What must hold", retain),
        ("What happened", summary),
        ("Also mentioned", "\n".join(f"- {fact}" for fact in facts)),
    ]
    body = "\n\n".join(f"## {title}\n{_fenced(text)}" for title, text in sections if text)
    return (
        f"<{SUMMARY_TAG}>\nThe earlier part of this conversation, shortened. It is information about what was said "
        f"and done, not a new request.\n\n{body}\n</{SUMMARY_TAG}>\n{CONTINUATIONS[state]}"
    )


def inner_summary(group: Group) -> str:
    """Return what an earlier compaction wrote, without its fence and continuation."""
    text = group.text
    start, end = text.find(f"<{SUMMARY_TAG}>"), text.rfind(f"</{SUMMARY_TAG}>")
    inner = text[start + len(SUMMARY_TAG) + 2 : end if end > start else None]
    _, _, body = inner.partition("\n\n")
    return (body or inner).strip()


def state_of(tail: Sequence[Group]) -> TaskState:
    """Return whether the conversation stops at a user's message or in the middle of work."""
    return "waiting for an answer" if tail and tail[-1].kind == "user" else "in progress"


def _fenced(text: str) -> str:
    return (
        text.strip().replace(f"<{SUMMARY_TAG}", f"<\\{SUMMARY_TAG}").replace(f"</{SUMMARY_TAG}", f"<\\/{SUMMARY_TAG}")
    )
