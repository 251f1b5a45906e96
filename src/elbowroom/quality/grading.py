"""Grades what of a conversation the model still gets, by code alone: in the prompt, or by a reference in it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from elbowroom.context.compaction import (
    all_said,
    artifacts_in,
    find_identifiers,
    made_up_in,
    stands_in,
    unpaired,
)
from elbowroom.context.transcript import Message
from elbowroom.quality.conversations import Known

MEASURES: Final = ("identifiers", "words", "newest", "constraints", "todos", "artifacts", "everything")


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

    `stale` are changed facts of which only an old value is left; `made_up` identifiers that nobody has said, `by_code`
    those that no pruning agent wrote. `unpaired` are calls without a result, and results without a call.
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

    def tally(self, wanted: Iterable[str]) -> Tally:
        """Return how many of these stand there, not merely as parts of something longer."""
        tally = Tally()
        for each in wanted:
            tally.total += 1
            if stands_in(each, self.inside):
                tally.inside += 1
            elif stands_in(each, self._called):
                tally.called += 1
        return tally


def grade(
    prompt: Sequence[Message], history: Sequence[Message], known: Known, texts: Iterable[str], invented: Iterable[str]
) -> Grade:
    """Return what a prompt has of a history, of which `known` is the truth; `invented` is what the agent made up."""
    shown = Shown(prompt, texts)
    known = known.within(all_said(history))
    facts = known.facts.values()
    changed = [fact for fact in facts if len(fact.values) > 1]
    tallies = {
        "identifiers": shown.tally(fact.newest for fact in facts if fact.is_identifier),
        "words": shown.tally(fact.newest for fact in facts if not fact.is_identifier),
        "newest": shown.tally(fact.newest for fact in changed),
        "constraints": shown.tally(known.constraints),
        "todos": shown.tally(known.open_todos),
        "artifacts": Tally(len(artifacts_in(shown.inside, known.artifacts)), total=len(known.artifacts)),
        "everything": shown.tally(all_identifiers(history)),
    }
    stale = sum(
        not stands_in(fact.newest, shown.inside) and any(stands_in(old, shown.inside) for old in fact.values)
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
