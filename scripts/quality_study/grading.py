"""Grades what of a conversation the model still gets, by code alone: in the prompt, or by a reference in it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from conversations import Known, State

from elbowroom.context.compaction.division import is_summary
from elbowroom.context.compaction.identifiers import find_identifiers
from elbowroom.context.transcript import Group, Message, text_of

MEASURES: Final = ("identifiers", "words", "newest", "constraints", "todos", "artifacts", "everything")
STATES: Final[Mapping[State, re.Pattern[str]]] = {
    "read": re.compile(r"\bread|gelesen|読", re.IGNORECASE),
    "written": re.compile(r"\bwrit|\bwrote|\bedit|\bchanged|geschrieben|geändert|書", re.IGNORECASE),
    "deleted": re.compile(r"delet|remov|gelöscht|削除", re.IGNORECASE),
}
SEGMENT: Final = re.compile(r"[\n;|]")
OWN_FIGURES: Final = re.compile(
    r"tool_output_cache(?:_grep)?|\(\d+ steps? (?:is|are) not listed\.\)|"
    r"[\d,]+ characters|[\d,]+ results of earlier calls|\bref(?:_id)?=\"?\w+\"?|"
    r"(?:read|ran) \d+ \w+|\d+ (?:edits?|searches|search|other calls?|of these failed)|\(\d+ times\)|[\d,]+ bytes"
)
"""What elbowroom itself counts in a summary."""


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
        self.inside = written(prompt)
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
    known = known.within(written(history))
    facts = known.facts.values()
    changed = [fact for fact in facts if len(fact.values) > 1]
    tallies = {
        "identifiers": shown.tally(fact.newest for fact in facts if fact.is_identifier),
        "words": shown.tally(fact.newest for fact in facts if not fact.is_identifier),
        "newest": shown.tally(fact.newest for fact in changed),
        "constraints": shown.tally(known.constraints),
        "todos": shown.tally(known.open_todos),
        "artifacts": artifacts(shown.inside, known.artifacts),
        "everything": shown.tally(all_identifiers(history)),
    }
    stale = sum(
        not stands_in(fact.newest, shown.inside) and any(stands_in(old, shown.inside) for old in fact.values)
        for fact in changed
    )
    made_up = list(strange_in(prompt, history))
    by_agent = [each for each in invented if stands_in(each, shown.inside)]
    by_code = sum(not any(each in said or said in each for said in by_agent) for each in made_up)
    return Grade(tallies, stale, len(by_agent), by_code, unpaired(prompt), prompts=1)


def artifacts(text: str, states: Mapping[str, State]) -> Tally:
    """Return how many files a text names together with what was last done to them."""
    segments = SEGMENT.split(text)
    tally = Tally(total=len(states))
    for path, state in states.items():
        tally.inside += any(path in segment and STATES[state].search(segment) for segment in segments)
    return tally


def unpaired(prompt: Sequence[Message]) -> int:
    """Return how many calls have no result right after them, and how many results no call before them."""
    waiting: set[str] = set()
    strange = 0
    for message in prompt:
        if message.get("role") == "tool":
            strange += message.get("tool_call_id") not in waiting
            waiting.discard(str(message.get("tool_call_id")))
        else:
            strange += len(waiting)
            waiting = {str(call.get("id")) for call in message.get("tool_calls") or ()}
    return strange + len(waiting)


def strange_in(prompt: Sequence[Message], history: Sequence[Message]) -> Iterator[str]:
    """Yield the identifiers in the summaries of a prompt that nobody has said."""
    names = (call["function"]["arguments"] for each in history for call in each.get("tool_calls") or ())
    said = "\n".join([written(history), *names])
    for message in prompt:
        if is_summary(Group((message,))):
            text = OWN_FIGURES.sub(" ", text_of(message))
            for found in {each.core for each in find_identifiers(text)}:
                if found not in said and " ".join(found.split()) not in " ".join(said.split()):
                    yield found


def all_identifiers(messages: Sequence[Message]) -> set[str]:
    """Return every identifier that was said."""
    return {each for message in messages for each in _identifiers(written([message]))}


@lru_cache(maxsize=5000)
def _identifiers(text: str) -> frozenset[str]:
    return frozenset(each.core for each in find_identifiers(text))


def written(messages: Sequence[Message]) -> str:
    """Return all that messages say, calls included, each in a line of its own."""
    lines: list[str] = []
    for message in messages:
        lines.append(text_of(message))
        lines += [_call(call) for call in message.get("tool_calls") or ()]
    return "\n".join(lines)


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = {"": function["arguments"]}
    return " ".join([function["name"], *(str(value) for value in arguments.values())])


def stands_in(wanted: str, text: str) -> bool:
    """Tell whether a text holds this, and not merely within a longer word or number."""
    at = text.find(wanted)
    while at != -1:
        before, after = text[at - 1 : at], text[at + len(wanted) : at + len(wanted) + 2]
        is_inner = _joins(before, wanted[:1]) or _joins(wanted[-1:], after[:1])
        if not is_inner and not re.fullmatch(r"[.,]\d", after):
            return True
        at = text.find(wanted, at + 1)
    return False


def _joins(left: str, right: str) -> bool:
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()
