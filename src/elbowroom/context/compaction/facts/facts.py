"""Finds what a summary must not lose: the user's conditions, what has changed, and identifiers."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from elbowroom.context.compaction.division import carried_by, is_summary
from elbowroom.context.compaction.facts.held import Fact, Weight
from elbowroom.context.compaction.facts.identifiers import KINDS, Identifier, find_identifiers
from elbowroom.context.compaction.facts.sentences import (
    LIST_MARK,
    LONGEST_CONDITION,
    Change,
    find_changes,
    find_conditions,
)
from elbowroom.context.outputs import news_in
from elbowroom.context.transcript import Group, Message, text_of

SAID = frozenset(KINDS)
TOUCHED = frozenset({"link", "mail", "uuid", "address", "path", "name", "hash"})
"""Kinds that count in calls and results: figures and quotes there are data, and the whole can be read again."""
CLAUSE = re.compile(r"[^.,;:!?()\[\]|\n\"]*$")
WORDS_BEFORE = 4
LONGEST_CLAUSE = 80
OF_OTHERS = re.compile(r"- (?:The assistant said: |It (?:used |read \d|ran \d|\d))")
"""How a digest's lines begin that quote the assistant or a tool: what must hold there is no condition of the user's."""
QUOTING = re.compile(rf"{OF_OTHERS.pattern}|- The (?:user|system) said: |\(\d+ steps? (?:is|are) not listed")
"""How the lines of a digest begin, which no pruning agent has written."""
OF_OURS = re.compile(
    r"\btool_output_cache\w*(?:\([^()\n]*\))?|\bref(?:_id)?=\"?\w{12}\b\"?|\b[\d,]+ (?:characters|bytes)\b"
)
"""What elbowroom itself writes beside shortened results: it is nobody's fact."""
MOST_RULES = 16
"""Lines of an earlier summary that must hold, as a pruning agent has worded them: each words them anew."""
SHORTEST_RULE = 4  # characters
SENTENCE_ENDS = (".", "!", "。", "！")
TO_DO = re.compile(r"\W*(?:to[- ]?dos?\b|open\b|pending\b|next\b|noch\b|offen\b|まだ|未)", re.IGNORECASE)
"""A to-do may be done since: whether it is open, only the pruning agent can tell."""

NAMED = re.compile(
    r"(?:^(?:[-*] )?|(?<=[.!?] )|(?<=[。！？]))(?P<name>[^\W\d][^:：.!?。！？\n]{1,48}?)(?:: |：)"
    r"(?P<value>[^:：.!?。！？\n]{2,60})(?=[.。]|$)",
    re.MULTILINE,
)
"""A name and what it stands for, in a line or sentence of their own."""
MOST_NAMED = 40
LONGEST_LISTED = 16_000


def facts_of(group: Group) -> Iterator[Fact | None]:
    """Yield the facts of a group, and None after each stretch of work of a few milliseconds at most.

    Of a very long message only beginning and end are read, of a summary the facts that it carried.
    """
    if is_summary(group):
        yield from _carried(group)
    elif group.kind == "user":
        yield from map(_condition, find_conditions(group.text))
        yield from map(_changed, find_changes(group.text))
        yield None
        yield from _named(group.text, Weight.OF_USER)
        yield from _identified(group.text, SAID, Weight.OF_USER)
    elif group.kind != "system":
        for message in group.messages:
            if message.get("role") == "assistant":
                yield from map(_changed, find_changes(text_of(message)))
                yield from _identified(text_of(message), SAID, Weight.OF_ASSISTANT)
                yield from _identified("\n".join(_arguments(message)), TOUCHED, Weight.OF_CALL)
            elif message.get("role") == "tool":
                yield from map(_changed, _changes_in_result(text_of(message)))
                yield from _identified(text_of(message), TOUCHED, Weight.OF_RESULT)


def _carried(summary: Group) -> Iterator[Fact | None]:
    """Yield the facts of a summary: what must hold, line by line, and identifiers, those of its own words at first."""
    carried = carried_by([summary])
    told, listed = f"{carried.retain}\n{carried.summary}", carried.facts
    for line in f"{told}\n{listed}".split("\n"):  # a tool's text may have other breaks
        if line.startswith("- ") and not OF_OTHERS.match(line):
            yield from map(_condition, find_conditions(line))
    yield from map(_changed, find_changes(f"{told}\n{listed}"))
    yield None
    rules = [*carried.retain.split("\n"), *(line for line in listed.split("\n") if line.endswith(SENTENCE_ENDS))]
    for rule in islice(filter(None, (LIST_MARK.sub("", line, count=1).strip() for line in rules)), MOST_RULES):
        if SHORTEST_RULE <= len(rule) <= LONGEST_CONDITION and not TO_DO.match(rule) and not any(find_changes(rule)):
            yield Fact(rule, rule, rule, Weight.RULE)
    own = [line for line in told.split("\n") if not QUOTING.match(line)]
    yield from _named("\n".join(own), Weight.OF_AGENT)
    yield from _identified("\n".join(own), SAID, Weight.OF_AGENT)
    yield from _named(listed, Weight.OF_SUMMARY)
    yield from _identified(f"{told}\n{listed}", SAID, Weight.OF_SUMMARY)


def _condition(sentence: str) -> Fact:
    return Fact(sentence, sentence, sentence, Weight.CONDITION)


def _changed(change: Change) -> Fact:
    return Fact(change.newest, change.sentence, change.sentence, Weight.CHANGE, change.outdated)


def _changes_in_result(text: str) -> Iterator[Change]:
    """Yield the changes with a value that a result tells; of a long one both ends are read."""
    _, beginning, end = READ[Weight.OF_RESULT]
    if len(text) > beginning + end:
        text = f"{text[:beginning]}\n{text[-end:]}"
    yield from (change for change in find_changes(news_in(text) or text) if change.newest != change.sentence)


def _named(text: str, weight: Weight) -> Iterator[Fact]:
    """Yield the lines that give something a name in plain words, as "- main dish: trout" does."""
    for line in islice(NAMED.finditer(text[:LONGEST_LISTED]), MOST_NAMED):
        value = line["value"].rstrip(".。 ")
        if value and not any(find_identifiers(value)) and not TO_DO.match(line["name"]):
            yield Fact(value, value, f"{line['name']}: {value}", weight)


def _arguments(message: Message) -> Iterator[str]:
    """Yield the texts that a message passes to tools."""
    for call in message.get("tool_calls") or ():
        arguments = (call.get("function") or {}).get("arguments") or ""
        try:
            yield from _strings(json.loads(arguments) if isinstance(arguments, str) else arguments)
        except (ValueError, RecursionError):
            yield str(arguments)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _identified(text: str, kinds: frozenset[str], weight: Weight) -> Iterator[Fact | None]:
    """Yield the first identifiers of a text; those in an assistant's words have to stand out."""
    if not text:
        return
    most, beginning, end = READ[weight]
    if len(text) > beginning + end:
        text = f"{text[:beginning]}\n{text[-end:]}"
    if weight in (Weight.OF_SUMMARY, Weight.OF_AGENT, Weight.OF_RESULT):
        text = OF_OURS.sub(" ", text)
    found = find_identifiers(text, kinds)
    distinctive = (each for each in found if each.is_distinctive or weight is not Weight.OF_ASSISTANT)
    for identifier in islice(distinctive, most):
        yield Fact(identifier.core, identifier.text, _in_context(identifier, text), weight)
    yield None


def _in_context(identifier: Identifier, text: str) -> str:
    """Return an identifier; a figure, which alone would say nothing, with the few words before it."""
    if identifier.kind != "number":
        return identifier.text
    clause = CLAUSE.search(text[max(0, identifier.start - LONGEST_CLAUSE) : identifier.start])
    words = [word for word in clause[0].split() if word.isalnum()] if clause else []
    return " ".join([*words[-WORDS_BEFORE:], identifier.text])


READ = {
    Weight.OF_USER: (200, 12_000, 4000),
    Weight.OF_AGENT: (200, 12_000, 4000),
    Weight.OF_SUMMARY: (400, 30_000, 10_000),
    Weight.OF_ASSISTANT: (60, 6000, 2000),
    Weight.OF_CALL: (30, 3000, 500),
    Weight.OF_RESULT: (30, 3000, 500),
}
"""How many identifiers are taken from a text, and how many characters are read at its beginning and at its end."""
