"""Builds the shorter conversation from what was kept and told, and reads the summary that an earlier one left."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from elbowroom.context.division import SUMMARY_TAG, Division, NumberedGroup, divide, tail_starts
from elbowroom.context.transcript import Group, Message, Transcript, messages_of

Rung = Literal["plan", "retry", "digest", "last messages"]
TaskState = Literal["in progress", "waiting for the user", "done"]
CONTINUATIONS: dict[TaskState, str] = {
    "in progress": (
        "When this was written, the user's latest request was being worked on. Go on from the messages that follow; "
        "do not begin anew, and do not take up requests from above that are done."
    ),
    "waiting for the user": (
        "When this was written, the assistant had asked the user something. Do nothing before the answer; when it is "
        "there, go on with it, and do not take up requests from above that are done."
    ),
    "done": (
        "When this was written, everything asked for above was done. Do not take it up again; attend only to what the "
        "user asks after this."
    ),
}
INTRODUCTION = (
    "The earlier part of this conversation, shortened. It is information about what was said and done, not a new "
    "request."
)
RETAIN, SUMMARY, FACTS, RESULTS = "What must hold", "What happened", "Also mentioned", "Results of tools"
HEADING = re.compile(rf"^## ({RETAIN}|{SUMMARY}|{FACTS}|{RESULTS})$", re.MULTILINE)
TAG = re.compile(rf"<(?=\s*/?\s*{SUMMARY_TAG})", re.IGNORECASE)
QUESTION = re.compile(r"[?？؟][\"'”’»」』)*_\s]*$", re.MULTILINE)
LAST_WORDS = 300


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation made shorter: its messages, which rung of the ladder did it, sizes in tokens before and after.

    The last `tail` messages are those at the conversation's end, untouched. `groups_kept` are all that stay word for
    word, those included, but for system messages; `seconds` is how long it took, for who keeps time.
    """

    messages: tuple[Message, ...]
    rung: Rung
    before: int
    after: int
    replaced_groups: int
    summary: str
    tail: int
    groups_kept: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Carried:
    """What an earlier summary says, by its sections."""

    retain: str = ""
    summary: str = ""
    facts: str = ""
    results: str = ""

    @property
    def text(self) -> str:
        """Return what it tells of the conversation."""
        return "\n\n".join(filter(None, (self.retain, self.summary, self.facts)))


def build(division: Division, summary: str, kept: Sequence[NumberedGroup]) -> list[Message]:
    """Return system, the message that opened the task, the summary, kept groups in their order, and the tail.

    Where groups older than the running task are kept, that stands behind them: the user's last request has to be the
    last for the model and for the next compaction too.
    """
    is_first = bool(division.pinned) and all(each.id > division.pinned[0].id for each in kept)
    opening, others = division.pinned[:is_first], division.pinned[is_first:]
    middle = sorted([*kept, *others], key=lambda numbered: numbered.id)
    note: list[Message] = [{"role": "user", "content": summary}] if summary else []
    return [
        *messages_of(division.system),
        *messages_of([numbered.group for numbered in opening]),
        *note,
        *messages_of([numbered.group for numbered in middle]),
        *messages_of(division.tail),
    ]


def smallest(messages: Sequence[Message]) -> list[Message]:
    """Return what of a history no compaction can free: system messages, the running task, and the last group."""
    transcript = Transcript.of(messages)
    *_, shortest = tail_starts(transcript.groups, 0)
    return build(divide(transcript, tails_from=shortest), "", ())


def summary_message(retain: str, summary: str, facts: Sequence[str], state: TaskState, results: str = "") -> str:
    """Return the text that stands for what was removed: fenced, so that it is read as information.

    `results` says where the results of tools that were removed can be read.
    """
    listed = "\n".join(f"- {fact}" for fact in facts)
    sections = ((RETAIN, retain), (SUMMARY, summary), (FACTS, listed), (RESULTS, results))
    body = "\n\n".join(f"## {title}\n{_fenced(text)}" for title, text in sections if text)
    return f"<{SUMMARY_TAG}>\n{INTRODUCTION}\n\n{body}\n</{SUMMARY_TAG}>\n{CONTINUATIONS[state]}"


def carried_by(summaries: Sequence[Group]) -> Carried:
    """Return what earlier summaries say, joined section by section."""
    found: dict[str, list[str]] = {RETAIN: [], SUMMARY: [], FACTS: [], RESULTS: []}
    for group in summaries:
        before, *rest = HEADING.split(inner_summary(group.text))
        found[SUMMARY].append(before.strip())
        for title, text in zip(rest[::2], rest[1::2], strict=True):
            found[title].append(text.strip())
    return Carried(*("\n".join(filter(None, texts)) for texts in found.values()))


def inner_summary(message: str) -> str:
    """Return what a compaction wrote in its message, without fence, introduction and continuation."""
    inner, fence, rest = message.partition(f"<{SUMMARY_TAG}>")[2].rpartition(f"</{SUMMARY_TAG}>")
    text = inner if fence else rest
    return (text.partition("\n\n")[2] or text).strip()


def state_of(tail: Sequence[Group]) -> TaskState:
    """Return how the running task stands, by the end of the conversation.

    A user's message or a tool's result at the end has not been answered: the work is in progress. An assistant's
    words at the end are a question to the user or the end of the work.
    """
    said = [group for group in tail if group.kind != "system"]
    if not said or said[-1].kind != "assistant":
        return "in progress"
    return "waiting for the user" if QUESTION.search(said[-1].text.rstrip()[-LAST_WORDS:]) else "done"


def _fenced(text: str) -> str:
    """Keep a text from opening or closing the tags that stand around it."""
    return TAG.sub("<\\\\", text.strip())
