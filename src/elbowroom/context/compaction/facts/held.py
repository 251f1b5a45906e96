"""A fact that must not be lost, and whether texts hold it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from elbowroom.context.compaction.facts.identifiers import find_identifiers

MOST_FACTS = 400
WORD = re.compile(r"[A-Za-z0-9]+")
MOST_DOUBTFUL = 2
LONGEST_READ = 50_000
"""So many letters at the beginning and at the end of a text that stays are searched for facts."""
AROUND = 40


class Weight(IntEnum):
    """The weight of a fact, the heaviest first: the user's words before the assistant's, those before data."""

    CONDITION = 0
    RULE = 1  # of an earlier summary
    CHANGE = 2  # what holds now instead of something else, whoever said so
    OF_AGENT = 3  # in a pruning agent's words
    OF_USER = 4
    OF_SUMMARY = 5  # in what code has listed
    OF_ASSISTANT = 6
    OF_CALL = 7
    OF_RESULT = 8


@dataclass(frozen=True, slots=True)
class Fact:
    """A stretch of text that has to be told as `text`; a text that holds `core` or `whole` has told it.

    `outdated` are the values that a change names as no longer true.
    """

    core: str
    whole: str
    text: str
    weight: Weight
    outdated: tuple[str, ...] = ()


def lost(facts: Iterable[Fact], held: Sequence["Held"]) -> list[Fact]:
    """Return the facts that none of the texts hold, by weight; each once, and none that stands in another before it.

    The newest change comes first, and what a change has made untrue is no loss. There are at most `MOST_FACTS`.
    """
    facts = list(facts)
    outdated = _outdated(facts)
    missing: list[Fact] = []
    seen: set[str] = set()
    listed = ""
    for fact in _by_weight(facts):
        if len(missing) >= MOST_FACTS:
            break
        is_told = fact.core in seen or fact.core in outdated or any(texts.tells(fact) for texts in held)
        if not is_told and not stands_in(fact.core, listed):
            missing.append(fact)
            listed += f"{fact.text}\n"
        seen.add(fact.core)
    return missing


def _by_weight(facts: Sequence[Fact]) -> list[Fact]:
    newest_first = [fact for fact in reversed(facts) if fact.weight is Weight.CHANGE]
    return sorted([*newest_first, *(fact for fact in facts if fact.weight is not Weight.CHANGE)], key=_weight)


def _weight(fact: Fact) -> Weight:
    return fact.weight


def _outdated(facts: Sequence[Fact]) -> set[str]:
    """Return the values that a change has replaced, but for those that a later change has brought back."""
    outdated: set[str] = set()
    for fact in facts:
        outdated.update(fact.outdated)
        if fact.weight is Weight.CHANGE:
            outdated.discard(fact.core)
    return outdated


def _read_of(text: str) -> str:
    """Return what is read of a text: of a very long one the beginning and the end, since the event loop waits."""
    return text if len(text) <= 2 * LONGEST_READ else f"{text[:LONGEST_READ]}\n{text[-LONGEST_READ:]}"


class Held:
    """Texts that can be asked whether they hold a fact, fast where they do not."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = ""
        self._words = set[str]()
        self.add(texts)

    def add(self, texts: Iterable[str]) -> None:
        """Add texts. Of very many, add some at a time: the event loop waits."""
        more = " ".join("\n".join(map(_read_of, texts)).split())
        self._words.update(WORD.findall(more))
        self._text += f" {more}"

    def tells(self, fact: Fact) -> bool:
        """Tell whether a fact stands in the texts, a figure with its unit or without."""
        return self._holds(fact.core) or (fact.whole != fact.core and self._holds(fact.whole))

    def _holds(self, core: str) -> bool:
        """Tell whether this stands in one of the texts, and not merely as a part of something longer."""
        return self._words.issuperset(WORD.findall(core)) and stands_in(" ".join(core.split()), self._text)


def stands_in(core: str, text: str, doubtful: int = MOST_DOUBTFUL) -> bool:
    """Tell whether a text holds this, and not merely as a part of something longer, as 18192 holds 8192.

    At so many `doubtful` places it may be joined to something, if it still counts as an identifier there.
    """
    place = text.find(core)
    while place != -1:
        before, after = text[place - 1 : place], text[place + len(core) : place + len(core) + 2]
        if not (_joins(before, core[:1]) or _joins(core[-1:], after[:1]) or re.fullmatch(r"[.,]\d", after)):
            return True
        if doubtful > 0 and _is_found(core, text, place):
            return True
        place, doubtful = text.find(core, place + 1), doubtful - 1
    return False


def _is_found(core: str, text: str, place: int) -> bool:
    """Tell whether a text at this place, though joined to something, still counts as an identifier."""
    start = max(0, place - AROUND)
    around = find_identifiers(text[start : place + len(core) + AROUND])
    return any(core in (found.core, found.text) for found in around)


def _joins(left: str, right: str) -> bool:
    """Tell whether two characters make one word; scripts without spaces have no word borders to look for."""
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()
