"""Grades what of a conversation the model still gets, by code alone: in the prompt, or by a reference in it."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeVar

from elbowroom.context.compaction import (
    all_said,
    find_identifiers,
    own_words,
    stands_in,
    unpaired,
)
from elbowroom.context.transcript import Message
from elbowroom.quality.conversations import Fact, Known
from elbowroom.quality.standing import artifacts_in, made_up_in

MEASURES: Final = (
    "identifiers",
    "words",
    "newest",
    "told by tools",
    "constraints",
    "todos",
    "artifacts",
    "everything",
    "own",
)
T = TypeVar("T")
END_OF_UNIT: Final = re.compile(r"\n|(?<=[^\d\s][.!?…])\s+|(?<=[。！？؟।])\s*")
"""Ends a line or a sentence; "16. April" goes on."""


@dataclass(slots=True)
class Tally:
    """How many of something are still in the prompt, how many more can be read by reference, and of how many."""

    inside: int = 0
    called: int = 0
    total: int = 0

    def add(self, other: "Tally") -> None:
        """Add those of another conversation."""
        self.inside += other.inside
        self.called += other.called
        self.total += other.total

    @property
    def share(self) -> float:
        """Return the share in the prompt, in per cent; all of nothing is all."""
        return 100 * self.inside / self.total if self.total else 100.0

    @property
    def reachable(self) -> float:
        """Return the share in the prompt or behind a reference in it."""
        return 100 * (self.inside + self.called) / self.total if self.total else 100.0


@dataclass(slots=True)
class Grade:
    """What one prompt has of its conversation; sums of them are grades too.

    `stale` are changed facts of which an old value is all that is told; `made_up` identifiers that nobody has said,
    `by_code` those that no pruning agent wrote. `unpaired` are calls without a result, and results without a call.
    """

    tallies: dict[str, Tally] = field(default_factory=lambda: {name: Tally() for name in MEASURES})
    stale: int = 0
    made_up: int = 0
    by_code: int = 0
    unpaired: int = 0
    tokens: int = 0
    whole: int = 0
    reread: int = 0
    prompts: int = 0

    def add(self, other: "Grade") -> None:
        """Add another conversation's."""
        for name, tally in other.tallies.items():
            self.tallies[name].add(tally)
        self.stale += other.stale
        self.made_up += other.made_up
        self.by_code += other.by_code
        self.unpaired += other.unpaired
        self.tokens += other.tokens
        self.whole += other.whole
        self.reread += other.reread
        self.prompts += other.prompts


class Shown:
    """The text of a prompt, and of what can be read by a reference in it."""

    def __init__(self, prompt: Sequence[Message], texts: Iterable[str] = ()) -> None:
        self.inside = all_said(prompt)
        self._called = "\n".join(texts)
        self._units = END_OF_UNIT.split(self.inside)
        self._called_units = END_OF_UNIT.split(self._called)

    def tally(self, wanted: Iterable[str]) -> Tally:
        """Return how many of these stand there, not merely as parts of something longer."""
        return _tally(wanted, lambda each: stands_in(each, self.inside), lambda each: stands_in(each, self._called))

    def told(self, facts: Iterable[Fact]) -> Tally:
        """Return of how many facts the newest value stands there beside the fact's name."""
        return _tally(
            facts,
            lambda fact: _tells(fact, fact.newest, self._units),
            lambda fact: _tells(fact, fact.newest, self._called_units),
        )

    def tells(self, fact: Fact, value: str) -> bool:
        """Tell whether the prompt has a sentence or a line with this value that names the fact."""
        return _tells(fact, value, self._units)


def _tells(fact: Fact, value: str, units: Iterable[str]) -> bool:
    names = [name.casefold() for name in (fact.label, *fact.also)]
    return any(
        value in unit and stands_in(value, unit) and any(name in unit.casefold() for name in names) for unit in units
    )


def _tally(wanted: Iterable[T], is_inside: Callable[[T], bool], is_called: Callable[[T], bool]) -> Tally:
    tally = Tally()
    for each in wanted:
        tally.total += 1
        if is_inside(each):
            tally.inside += 1
        elif is_called(each):
            tally.called += 1
    return tally


def grade(
    prompt: Sequence[Message], history: Sequence[Message], known: Known, texts: Iterable[str], invented: Iterable[str]
) -> Grade:
    """Return what a prompt has of a history, of which `known` is the truth; `invented` is what the agent made up."""
    shown = Shown(prompt, texts)
    known = known.within(all_said(history))
    facts = known.facts.values()
    own = END_OF_UNIT.split(own_words(prompt))
    changed = [fact for fact in facts if len(fact.values) > 1]
    tallies = {
        "identifiers": shown.told(fact for fact in facts if fact.is_identifier),
        "words": shown.told(fact for fact in facts if not fact.is_identifier),
        "newest": shown.told(changed),
        "told by tools": shown.told(fact for fact in facts if fact.carrier == "tool"),
        "constraints": shown.tally(known.constraints),
        "todos": shown.tally(known.open_todos),
        "artifacts": Tally(len(artifacts_in(shown.inside, known.artifacts)), total=len(known.artifacts)),
        "everything": shown.tally(all_identifiers(history)),
        "own": _tally(facts, lambda fact: _tells(fact, fact.newest, own), lambda _: False),
    }
    stale = sum(
        not shown.tells(fact, fact.newest) and any(shown.tells(fact, old) for old in fact.values[:-1])
        for fact in changed
    )
    made_up = list(made_up_in(prompt, history))
    by_agent = [each for each in invented if stands_in(each, shown.inside)]
    by_code = sum(not any(each in said or said in each for said in by_agent) for each in made_up)
    return Grade(tallies, stale, len(by_agent), by_code, unpaired(prompt), prompts=1)


def all_identifiers(messages: Sequence[Message]) -> set[str]:
    """Return every identifier that was said."""
    return {each for message in messages for each in _identifiers(all_said([message]))}


@lru_cache(maxsize=5000)
def _identifiers(text: str) -> frozenset[str]:
    return frozenset(each.core for each in find_identifiers(text))
