"""What a summary must not lose: the user's conditions and identifiers, found and carried over by code."""

import json
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from elbowroom.context.compaction import inner_summary
from elbowroom.context.constraints import find_constraints
from elbowroom.context.division import is_summary
from elbowroom.context.identifiers import KINDS, Identifier, find_identifiers
from elbowroom.context.transcript import Group, Message, text_of

MOST_FACTS = 400
MOST_OF_USER, MOST_OF_ASSISTANT, MOST_OF_TOOL = 200, 60, 30
READ = {"user": (12_000, 4000), "assistant": (6000, 2000), "tool": (3000, 500)}
"""How many characters of a message are read at its beginning and at its end."""
SAID = frozenset(KINDS)
TOUCHED = frozenset({"link", "mail", "uuid", "address", "path", "name", "hash"})
"""Kinds that count in calls and results: figures and quotes there are data, and the whole can be read again."""
CLAUSE = re.compile(r"[^.,;:!?()\[\]|\n\"]*$")
WORD = re.compile(r"[A-Za-z0-9]+")
WORDS_BEFORE = 4
LONGEST_CLAUSE = 80


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that has to be told: `text` is how, `core` what a text must hold to have told it.

    `is_condition` says that it is a sentence in which the user sets a condition.
    """

    core: str
    text: str
    is_condition: bool = False


def lost_facts(removed: Sequence[Group], remaining: str) -> list[str]:
    """Return what the removed groups held and the remaining text does not, the user's own words first.

    Conditions come as whole sentences, then identifiers, figures with the words before them. Each comes once and none
    that another has in it; earlier summaries pass on what they carried. The list is bounded, and the time linear in
    the length of the text.
    """
    finding = found_facts(removed)
    try:
        while True:
            next(finding)
    except StopIteration as done:
        return [fact.text for fact in lost(done.value, remaining)]


def found_facts(groups: Sequence[Group]) -> Generator[None, None, list[Fact]]:
    """Find what groups hold, most important first, each core once.

    It is a generator so that its work can be done bit by bit, with other things in between: it yields after each
    message, of which no more than a bounded part is read, and returns the facts.
    """
    facts: dict[str, Fact] = {}
    for fact in _facts_in(groups):
        if fact is None:
            yield
        elif len(facts) < 4 * MOST_FACTS:
            facts.setdefault(fact.core, fact)
    return list(facts.values())


def lost(facts: Iterable[Fact], remaining: str) -> list[Fact]:
    """Return those facts that the remaining text does not hold, and none that stands in another before it."""
    told, listed = Held([remaining]), Held([])
    missing: list[Fact] = []
    for fact in facts:
        if len(missing) >= MOST_FACTS:
            break
        if not told.holds(fact.core) and not listed.holds(fact.core):
            missing.append(fact)
            listed.add(fact.text)
    return missing


class Held:
    """Texts that can be asked whether they hold something, fast where they do not."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts: list[str] = []
        self._with_word: dict[str, list[str]] = {}
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Add a text."""
        text = " ".join(text.split())
        self._texts.append(text)
        for word in set(WORD.findall(text)):
            self._with_word.setdefault(word, []).append(text)

    def holds(self, core: str) -> bool:
        """Tell whether this stands in one of the texts, and not merely in something longer."""
        core = " ".join(core.split())
        texts = self._texts
        for word in WORD.findall(core):
            texts = min(texts, self._with_word.get(word, []), key=len)
        return any(_stands_in(core, text) for text in texts)


def _facts_in(groups: Sequence[Group]) -> Iterator[Fact | None]:
    """Yield the facts of groups in order of their weight, and None after each message."""
    summaries = [inner_summary(group) for group in groups if is_summary(group)]
    users = [group.text for group in groups if group.kind == "user" and not is_summary(group)]
    messages = [message for group in groups if group.kind in ("assistant", "tools") for message in group.messages]
    for text in summaries:
        listed = (line for line in text.splitlines() if line.startswith("- "))
        yield from (_condition(sentence) for line in listed for sentence in find_constraints(line))
        yield None
    for text in users:
        yield from map(_condition, find_constraints(text))
        yield None
    for text in (*users, *summaries):
        yield from _identified(text, SAID, MOST_OF_USER, READ["user"])
    for message in messages:
        if message.get("role") == "assistant":
            yield from _identified(text_of(message), SAID, MOST_OF_ASSISTANT, READ["assistant"], distinctive=True)
    for message in messages:
        yield from _identified("\n".join(_arguments(message)), TOUCHED, MOST_OF_TOOL, READ["tool"])
    for message in messages:
        if message.get("role") == "tool":
            yield from _identified(text_of(message), TOUCHED, MOST_OF_TOOL, READ["tool"])


def _condition(sentence: str) -> Fact:
    return Fact(sentence, sentence, is_condition=True)


def _identified(
    text: str, kinds: frozenset[str], most: int, read: tuple[int, int], *, distinctive: bool = False
) -> Iterator[Fact | None]:
    """Yield the first identifiers of a text, of a very long one those in its beginning and its end."""
    if not text:
        return
    if len(text) > sum(read):
        text = f"{text[: read[0]]}\n{text[-read[1] :]}"
    found = (each for each in find_identifiers(text, kinds) if each.is_distinctive or not distinctive)
    for identifier in islice(found, most):
        yield Fact(identifier.core, _in_context(identifier, text))
    yield None


def _in_context(identifier: Identifier, text: str) -> str:
    """Return an identifier, a figure with the few words before it: alone it would say nothing."""
    if identifier.kind != "number":
        return identifier.text
    clause = CLAUSE.search(text[max(0, identifier.start - LONGEST_CLAUSE) : identifier.start])
    words = [word for word in clause[0].split() if word.isalnum()] if clause else []
    return " ".join([*words[-WORDS_BEFORE:], identifier.text])


def _stands_in(core: str, text: str) -> bool:
    """Tell whether a text holds this and not merely something longer, as 18192 holds 8192."""
    place = text.find(core)
    while place != -1:
        before, after = text[place - 1 : place], text[place + len(core) : place + len(core) + 2]
        if not (_joins(before, core[:1]) or _joins(core[-1:], after[:1]) or re.fullmatch(r"[.,]\d", after)):
            return True
        place = text.find(core, place + 1)
    return False


def _joins(left: str, right: str) -> bool:
    """Tell whether two characters make one word; scripts without spaces have no borders to look for."""
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()


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
