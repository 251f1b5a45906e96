"""What a summary must not lose: the user's conditions and identifiers, found and carried over by code."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from elbowroom.context.constraints import find_constraints
from elbowroom.context.division import SUMMARY_TAG, is_summary
from elbowroom.context.identifiers import KINDS, Identifier, find_identifiers
from elbowroom.context.transcript import Group, Message, text_of

MOST_FACTS = 400
MOST_OF_USER, MOST_OF_ASSISTANT, MOST_OF_TOOL = 200, 60, 30
SAID = frozenset(KINDS)
TOUCHED = frozenset({"link", "mail", "uuid", "address", "path", "name", "hash"})
"""Kinds that count in calls and results: figures and quotes there are data, and the whole can be read again."""
CLAUSE = re.compile(r"[^.,;:!?()\[\]|\n\"]*$")
WORDS_BEFORE = 4
LONGEST_CLAUSE = 80


def lost_facts(removed: Sequence[Group], remaining: str) -> list[str]:
    """Return what the removed groups held and the remaining text does not, the user's own words first.

    Conditions come as whole sentences, then identifiers, figures with the words before them. Each comes once and none
    that another has in it; earlier summaries pass on what they carried. The list is bounded, and the time linear in
    the length of the text.
    """
    ledger = _Ledger(remaining)
    summaries = [_carried(group) for group in removed if is_summary(group)]
    users = [group.text for group in removed if group.kind == "user" and not is_summary(group)]
    for sentence in _conditions(summaries, users):
        ledger.add(sentence, sentence)
    for text in (*users, *summaries):
        ledger.add_identifiers(text, SAID, MOST_OF_USER)
    messages = [message for group in removed if group.kind in ("assistant", "tools") for message in group.messages]
    for message in messages:
        if message.get("role") == "assistant":
            ledger.add_identifiers(text_of(message), SAID, MOST_OF_ASSISTANT, distinctive=True)
    for message in messages:
        ledger.add_identifiers("\n".join(_arguments(message)), TOUCHED, MOST_OF_TOOL)
    for message in messages:
        if message.get("role") == "tool":
            ledger.add_identifiers(text_of(message), TOUCHED, MOST_OF_TOOL)
    return ledger.facts


class _Ledger:
    """Collects facts that neither the remaining text nor an earlier fact holds."""

    def __init__(self, remaining: str) -> None:
        self.facts: list[str] = []
        self._remaining = " ".join(remaining.split())
        self._settled = {found.core for found in find_identifiers(remaining)}

    def add(self, core: str, fact: str) -> None:
        """Add a fact unless its core stands somewhere already or the list is full."""
        if len(self.facts) >= MOST_FACTS or core in self._settled:
            return
        self._settled.add(core)
        if not _stands_in(core, self._remaining) and not _stands_in(core, "\n".join(self.facts)):
            self.facts.append(fact)

    def add_identifiers(self, text: str, kinds: frozenset[str], most: int, *, distinctive: bool = False) -> None:
        """Add the first identifiers of a text."""
        if len(self.facts) >= MOST_FACTS:
            return
        found = (each for each in find_identifiers(text, kinds) if each.is_distinctive or not distinctive)
        for identifier in islice(found, most):
            self.add(identifier.core, _in_context(identifier, text))


def _conditions(summaries: Iterable[str], users: Iterable[str]) -> Iterator[str]:
    for summary in summaries:
        for line in summary.splitlines():
            if line.startswith("- "):
                yield from find_constraints(line)
    for text in users:
        yield from find_constraints(text)


def _carried(group: Group) -> str:
    """Return what an earlier summary carries: what stands in its tags, below the line that introduces it."""
    inner = group.text.partition(f"<{SUMMARY_TAG}>")[2].partition(f"</{SUMMARY_TAG}>")[0]
    return inner.partition("\n\n")[2] or inner


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
