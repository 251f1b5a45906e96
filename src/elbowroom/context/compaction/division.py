"""Divides a conversation into what stays and what a summary replaces, and builds the shorter one.

The summary is a message of the user between tags, from which the next compaction reads what this one has told.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from elbowroom.caches import HISTORIES
from elbowroom.context.compaction.nudges import is_nudge
from elbowroom.context.divisible import LEAST, Divided, divided
from elbowroom.context.transcript import (
    Group,
    Message,
    Summary,
    Transcript,
    as_json,
    messages_of,
    size_in_bytes,
    text_of,
    with_text,
    written_size,
)

LEAST_TAIL, MOST_TAIL = 3, 5
SUMMARY_TAG = "elbowroom-summary"

Rung = Literal["plan", "retry", "digest", "last messages"]
SUMMARISES: frozenset[Rung] = frozenset({"plan", "retry", "digest"})
"""The rungs that put a summary in place of what they remove."""
TaskState = Literal["in progress", "waiting for the user", "done"]
CONTINUATIONS: dict[TaskState, str] = {
    "in progress": "The user's latest request is being worked on: go on from what follows, not anew.",
    "waiting for the user": "The assistant has asked something: go on once the user has answered, not before.",
    "done": "All of that is done: attend only to what the user asks after this.",
}
INTRODUCTION = "Earlier conversation, shortened; its requests are dealt with. Quotes without a name are the user's."
FROM_MIDDLE = "The answer that follows is shown from its middle on: what came before is told above."
RECALLED = "The messages that it stands for can be searched and read word for word with {tool}."
RETAIN, SUMMARY, WORDS_KEPT, FILES = "What must hold", "What happened", "Word for word", "Files"
TO_DO, RESULTS = "To do", "Results of tools"
LISTED = "Also mentioned"  # summaries of older versions have lists
HEADING = re.compile(rf"^## ({RETAIN}|{SUMMARY}|{WORDS_KEPT}|{LISTED}|{FILES}|{TO_DO}|{RESULTS})$", re.MULTILINE)
TAG = re.compile(rf"<(?=\s*/?\s*{SUMMARY_TAG})", re.IGNORECASE)
QUESTION = re.compile(r"[?？؟][\"'”’»」』)*_\s]*$", re.MULTILINE)
LAST_WORDS = 300
Speaker = Literal["user", "assistant", "tool", "call"]
NAMES: dict[Speaker, str] = {"assistant": "Assistant: ", "tool": "Tool: ", "call": "Call: ", "user": ""}
QUOTING = (WORDS_KEPT, LISTED)
"""The headings that quotations stand under."""


@dataclass(frozen=True, slots=True)
class NumberedGroup:
    """A group with its place in the conversation: the id by which a plan names it.

    One that `is_part` is what does not stay of a message of which the rest does.
    """

    id: int
    group: Group
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """What stays word for word of the `whole` message of a group, `message`; the groups with that and with the rest."""

    whole: Message
    message: Message
    shown: Group
    rest: Group

    @classmethod
    def of(cls, group: Group, parts: Divided) -> "Excerpt":
        """Return the part of a group that stays where one of its messages was divided so."""
        messages = tuple(parts.shown if each is parts.whole else each for each in group.messages)
        return cls(parts.whole, parts.shown, replace(group, messages=messages), Group((parts.rest,)))


@dataclass(frozen=True, slots=True)
class Division:
    """A conversation in parts, each in its order; every group is in exactly one of them.

    `system` are the system messages before the tail, wherever they stood. `pinned` are the groups before the tail that
    stay whatever happens: what the running task rests on, the first request, and what a person has pinned. `old` is
    everything that a compaction replaces; `summaries` are the messages that earlier compactions left, to be carried
    into the next, and `summarised_from` is the place of the first of them, None without any. `parts` are what stays of
    messages by their places, where not all of a message does. `oldest` are old groups that are so many that they are
    looked at no more: the last of the summaries quotes them.
    """

    system: tuple[Group, ...]
    pinned: tuple[NumberedGroup, ...]
    old: tuple[NumberedGroup, ...]
    summaries: tuple[Group, ...]
    tail: tuple[Group, ...]
    summarised_from: int | None = None
    parts: Mapping[int, Excerpt] = field(default_factory=dict)
    oldest: tuple[NumberedGroup, ...] = ()

    @property
    def untouched(self) -> int:
        """Return how many messages stand whole at the end of the tail."""
        shown = {id(part.shown) for part in self.parts.values()}
        count = 0
        for group in reversed(self.tail):
            if id(group) in shown:
                break
            count += len(group.messages)
        return count

    def showing(self, id_: int, part: Excerpt) -> "Division":
        """Return the division in which a part of an old group stays."""
        rest = [NumberedGroup(id_, part.rest, is_part=True) if each.id == id_ else each for each in self.old]
        pinned = sorted((*self.pinned, NumberedGroup(id_, part.shown)), key=lambda each: each.id)
        return replace(self, pinned=tuple(pinned), old=tuple(rest), parts={**self.parts, id_: part})

    @property
    def begins_in_answer(self) -> bool:
        """Tell whether an answer stays of which the beginning does not."""
        return any(part.shown.kind == "assistant" for part in self.parts.values())

    @property
    def removed(self) -> list[Group]:
        """Return what the next summary replaces: earlier summaries, and the old groups."""
        return [*self.summaries, *(each.group for each in self.old)]

    @property
    def messages(self) -> list[Message]:
        """Return all messages: those of the system first, earlier summaries before what they do not tell."""
        groups = (*self.system, *self.summaries, *(each.group for each in (*self.pinned, *self.old)), *self.tail)
        return messages_of(groups)


def divide(
    transcript: Transcript,
    *,
    tails_from: int,
    keeping: frozenset[int] = frozenset(),
    parts: Mapping[int, Excerpt] | None = None,
) -> Division:
    """Divide a conversation whose tail begins at group `tails_from`; groups at the places `keeping` are pinned too.

    Of the groups with `parts` only these stay. A system message that repeats an earlier one, as some clients send with
    every turn, is old.
    """
    parts = parts or {}
    pinned = running_task(transcript.groups) | keeping
    system: list[Group] = []
    kept: list[NumberedGroup] = []
    old: list[NumberedGroup] = []
    tail: list[Group] = []
    summaries: dict[int, Group] = {}
    for index, group in enumerate(transcript.groups):
        shown = group
        if index in parts:
            old.append(NumberedGroup(index, parts[index].rest, is_part=True))
            shown = parts[index].shown
        if index >= tails_from:
            tail.append(shown)
        elif group.kind == "system" and group not in system:
            system.append(group)
        elif is_summary(group):
            summaries[index] = group
        else:
            (kept if index in pinned or group.is_pinned else old).append(NumberedGroup(index, shown))
    from_ = min(summaries, default=None)
    return Division(tuple(system), tuple(kept), tuple(old), tuple(summaries.values()), tuple(tail), from_, parts)


def first_request(groups: tuple[Group, ...]) -> frozenset[int]:
    """Return the place of the first message of the user that is no summary; nothing where there is none."""
    return frozenset(_users(groups)[:1])


def running_task(groups: tuple[Group, ...]) -> frozenset[int]:
    """Return the place of the last user message and, where that is a nudge, of the request that it nudges on."""
    users = _users(groups)
    if not users:
        return frozenset()
    opened = (index for index in reversed(users) if not _is_nudge(groups[index]))
    return frozenset({users[-1], next(opened, users[0])})


def _users(groups: tuple[Group, ...]) -> list[int]:
    return [index for index, group in enumerate(groups) if group.kind == "user" and not is_summary(group)]


def _is_nudge(group: Group) -> bool:
    content = group.messages[0].get("content")
    shows_more = isinstance(content, list) and any(
        isinstance(part, Mapping) and part.get("type") not in (None, "text") for part in content
    )
    return not shows_more and is_nudge(group.text)


def is_summary(group: Group) -> bool:
    """Tell whether a group is the message that an earlier compaction has put in place of old groups."""
    return is_summary_message(group.messages[0])


def is_summary_message(message: Message) -> bool:
    """Tell whether an earlier compaction has put a message in place of others."""
    return isinstance(message, Summary)


def is_of_person(message: Message) -> bool:
    """Tell whether a person has said this: it is the user's, and no summary."""
    return message.get("role") == "user" and not is_summary_message(message)


def marked(kept: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return messages that were kept with a summary, perhaps by an older version without its mark: the text decides."""
    if any(map(is_summary_message, kept)):
        return kept
    begun = (at for at, each in enumerate(kept) if text_of(each).lstrip().startswith(f"<{SUMMARY_TAG}>"))
    first = next(begun, -1)
    return tuple(Summary(each) if at == first else each for at, each in enumerate(kept))


def usual_turn(messages: Sequence[Message], tokens: int, tools: Sequence[Mapping[str, Any]]) -> int:
    """Return how many tokens a turn takes, from a person's message to the last answer to it: the median; 0 without one.

    A turn has the share of a prompt's `tokens` that it has of its bytes, those of the tools on offer included.
    """
    turns: list[int] = []
    whole = size_in_bytes(as_json(list(tools)))
    sizes = HISTORIES.of(messages).each(written_size)
    for message, size in zip(messages, sizes, strict=True):
        whole += size
        if is_of_person(message):
            turns.append(0)
        if turns:
            turns[-1] += size
    return max(1, round(median(turns) * tokens / whole)) if turns else 0


def tail_starts(groups: tuple[Group, ...], turns: int | None) -> Iterator[int]:
    """Yield where the tail may begin, longest first: the last turns or fewer of them, 3 to 5 messages, 3, the last one.

    Where `turns` is None, no more than 3 messages and the groups that these are part of. Results of tools that the
    model has not read yet are in every tail.
    """
    last = _start_of_unread(groups)
    most = LEAST_TAIL if turns is None else MOST_TAIL
    starts = {
        last,
        min(last, _start_of_messages(groups, LEAST_TAIL, most)),
        min(last, _start_of_messages(groups, 0, LEAST_TAIL)),
    }
    starts.update(min(last, start_of_turns(groups, fewer)) for fewer in range(1, (turns or 0) + 1))
    yield from sorted(starts)


def _start_of_unread(groups: tuple[Group, ...]) -> int:
    """Return the place of the last group, or of the calls before it where only the user has spoken since.

    Answers in a row at the end are one.
    """
    last = min([max(0, len(groups) - 1), *last_words(groups)])
    place = last
    while place > 0 and groups[place].kind in ("user", "system"):
        place -= 1
    return place if groups and groups[place].kind == "tools" else last


def _start_of_messages(groups: tuple[Group, ...], least: int, most: int) -> int:
    """Return where the longest run of whole groups at the end with at most `most` messages begins.

    The run is longer than that where it would have fewer than `least` messages or no group at all.
    """
    start, count = len(groups), 0
    while start > 0 and (count < max(1, least) or count + len(groups[start - 1].messages) <= most):
        start -= 1
        count += len(groups[start].messages)
    return start


def start_of_turns(groups: tuple[Group, ...], turns: int) -> int:
    """Return where the last so many turns begin; a turn begins with a message of the user."""
    users = _users(groups)
    if turns == 0:
        return len(groups)
    return users[-turns] if len(users) >= turns else 0


def results_being_answered(groups: tuple[Group, ...]) -> frozenset[int]:
    """Return the place of the last results if the conversation ends with the beginning of an answer to them."""
    place = len(groups) - 1
    while place >= 0 and groups[place].kind == "assistant":
        place -= 1
    is_begun = 0 <= place < len(groups) - 1
    return frozenset({place}) if is_begun and groups[place].kind == "tools" else frozenset()


def build(division: Division, summary: str, kept: Sequence[NumberedGroup]) -> list[Message]:
    """Return system, the summary, the groups that stay in their order, and the tail.

    What stood before everything that is summarised stands before the summary: the request that opened the conversation,
    mostly. All else comes after it, so that the user's last request is the last one for the model and for the next
    compaction too.
    """
    staying = sorted([*kept, *division.pinned], key=lambda numbered: numbered.id)
    present = {numbered.id for numbered in kept}
    going = (*division.oldest, *division.old)
    removed = [each.id for each in going if each.id not in present and not each.is_part]
    removed += [id_ for id_, part in division.parts.items() if part.shown.kind == "assistant"]
    removed += [] if division.summarised_from is None else [division.summarised_from]
    first = min(removed, default=1 + max((each.id for each in staying), default=0))
    opening = [numbered.group for numbered in staying if numbered.id < first]
    note: list[Message] = [Summary(role="user", content=summary)] if summary else []
    return [
        *messages_of(division.system),
        *messages_of(opening),
        *note,
        *messages_of([numbered.group for numbered in staying[len(opening) :]]),
        *messages_of(division.tail),
    ]


def smallest(transcript: Transcript, *, with_first: bool = False) -> list[Message]:
    """Return the part of a history that no compaction can free: system messages, pins, running task, last group.

    Of an answer at the end that is its last words. `with_first` adds the first request, which goes last of all others.
    """
    groups = transcript.groups
    *_, shortest = tail_starts(groups, 0)
    keeping = first_request(groups) if with_first else frozenset()
    return build(divide(transcript, tails_from=shortest, keeping=keeping, parts=last_words(groups)), "", ())


def last_words(groups: Sequence[Group]) -> dict[int, Excerpt]:
    """Return the last words of each answer in a row at the end of a conversation, by its place, the last one first.

    Those that are not longer, and those that a person has pinned, are not among them.
    """
    found: dict[int, Excerpt] = {}
    for place in range(len(groups) - 1, -1, -1):
        if groups[place].kind != "assistant":
            break
        parts = None if groups[place].is_pinned else divided(groups[place].messages[0], LEAST)
        if parts is not None:
            found[place] = Excerpt.of(groups[place], parts)
    return found


def last_answer(groups: Sequence[Group]) -> int | None:
    """Return the place of the answer that ends a conversation, or that the user's last message follows."""
    for place in (len(groups) - 1, len(groups) - 2):
        if place < 0 or groups[place].kind not in ("user", "assistant"):
            return None
        if groups[place].kind == "assistant":
            return place
    return None


def summary_message(
    retain: str,
    summary: str,
    quoted: Sequence[str],
    state: TaskState,
    results: str = "",
    files: str = "",
    carried: str = "",
    to_do: str = "",
    *,
    begins_in_answer: bool = False,
) -> str:
    """Return the message that stands for the removed groups, between tags that mark it as information.

    `quoted` are lines that stand word for word. `carried` is what stays of the body of earlier summaries: what is new
    stands below it, so that an engine need not read it again. `results` says where the results of removed tool calls
    can be read, `files` which files they have read and changed, `to_do` what a client's list says. With
    `begins_in_answer` the end of an answer follows of which the beginning is told here.
    """
    blocks = [carried] if carried else []
    last = next(reversed(HEADING.findall(carried)), "")
    told = (
        (RETAIN, retain),
        (SUMMARY, summary),
        (WORDS_KEPT, "\n".join(quoted)),
        (FILES, files),
        (TO_DO, to_do),
        (RESULTS, results),
    )
    for title, text in told:
        said = HEADING.sub(r"\1", "\n".join(line for line in text.split("\n") if line.strip())).strip("\n")
        if said and title == last:
            blocks[-1] += f"\n{said}"
        elif said:
            blocks.append(f"## {title}\n{said}")
        last = title if said else last
    body = TAG.sub("<\\\\", "\n\n".join(blocks))
    below = f"{CONTINUATIONS[state]}\n{FROM_MIDDLE}" if begins_in_answer else CONTINUATIONS[state]
    return f"<{SUMMARY_TAG}>\n{INTRODUCTION}\n\n{body}\n</{SUMMARY_TAG}>\n{below}"


@dataclass(frozen=True, slots=True)
class Carried:
    """What earlier summaries tell: the body in its order, with its headings, and the sections that code carries."""

    body: str = ""
    files: str = ""
    results: str = ""
    to_do: str = ""


def carried_by(summaries: Sequence[Group]) -> Carried:
    """Return what earlier summaries tell, one after the other."""
    blocks: list[str] = []
    listed: dict[str, list[str]] = {FILES: [], RESULTS: [], TO_DO: []}
    for group in summaries:
        before, *rest = HEADING.split(inner_summary(group.text))
        blocks.append(before.strip())
        for title, text in zip(rest[::2], (text.strip("\n") for text in rest[1::2]), strict=True):
            if title in listed:
                listed[title].append(text)
            else:
                blocks.append(f"## {title}\n{text}".rstrip() if text.strip() else "")
    files, results, to_do = ("\n".join(filter(None, texts)) for texts in listed.values())
    return Carried("\n\n".join(filter(None, blocks)), files, results, to_do)


def said_in(body: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a summary's body with the heading that it stands under, "" for none."""
    heading = ""
    for line in body.split("\n"):
        if found := HEADING.fullmatch(line):
            heading = found[1]
        elif line.strip():
            yield heading, line


def body_of(lines: Iterable[tuple[str, str]]) -> str:
    """Return the body of these lines, each with the heading that it stands under."""
    blocks: list[str] = []
    last = None
    for heading, line in lines:
        if heading == last:
            blocks[-1] += f"\n{line}"
        else:
            blocks.append(f"## {heading}\n{line}" if heading else line)
        last = heading
    return "\n\n".join(blocks)


def quotation(speaker: Speaker, text: str) -> str:
    """Return the line that quotes a text: who speaks is named, but for the user."""
    return f"- {NAMES[speaker]}{text}"


def speaker_in(line: str) -> tuple[Speaker, str]:
    """Return who speaks in a line that quotes, and the text."""
    text = line.removeprefix("- ")
    speaker: Speaker = next((each for each, name in NAMES.items() if name and text.startswith(name)), "user")
    return speaker, text.removeprefix(NAMES[speaker])


def naming_tool(messages: Sequence[Message], tool: str) -> list[Message]:
    """Return messages in which each summary says with which tool the model finds what it stands for."""
    named = RECALLED.format(tool=tool)
    return [with_text(each, f"{text_of(each)}\n{named}") if is_summary_message(each) else each for each in messages]


def inner_summary(message: str) -> str:
    """Return the text that a compaction wrote in its message, without fence, introduction and continuation."""
    inner, fence, rest = message.partition(f"<{SUMMARY_TAG}>")[2].rpartition(f"</{SUMMARY_TAG}>")
    text = inner if fence else rest
    return (text.partition("\n\n")[2] or text).strip()


def with_words(message: str, words: str) -> str:
    """Return a compaction's message with a person's words in the place of its own, between the same tags."""
    goes_on = message.rpartition(f"</{SUMMARY_TAG}>")[2]
    told = TAG.sub("<\\\\", words.strip())
    return f"<{SUMMARY_TAG}>\n{INTRODUCTION}\n\n{told}\n</{SUMMARY_TAG}>{goes_on}"


def with_whole_answer(summary: Message) -> Message:
    """Return a compaction's message without the words that only the end of the answer after it is shown."""
    return with_text(summary, text_of(summary).removesuffix(f"\n{FROM_MIDDLE}"))


def state_of(tail: Sequence[Group]) -> TaskState:
    """Return how the running task stands, by the end of the conversation.

    After a user's message or a tool's result the work is in progress. An assistant's words are a question to the user
    or the end of the work.
    """
    said = [group for group in tail if group.kind != "system"]
    if not said or said[-1].kind != "assistant":
        return "in progress"
    return "waiting for the user" if QUESTION.search(said[-1].text.rstrip()[-LAST_WORDS:]) else "done"
