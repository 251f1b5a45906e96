"""The outcome of a compaction: the shorter conversation, and the verdict of the code on what it has kept."""

from dataclasses import dataclass
from typing import Final, Literal

from elbowroom.context.compaction.division import Rung
from elbowroom.context.transcript import Message

LEAST_HELD: Final = 0.9
MOST_MADE_UP: Final = 3
LONGEST_EXAMPLE: Final = 60

Outcome = Literal["pass", "soft fail", "hard fail"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a compaction has kept of what was said.

    Of the `facts`, which are the user's sentences and lines, most of the weight is gone in those `lost`, of which the
    weightiest are `examples`; code has quoted so many lines as `put_back`. Of the `told` identifiers in the pruning
    agent's words nobody has said those `made_up`. `unpaired` are calls and results that had their counterpart before.
    """

    facts: int = 0
    put_back: int = 0
    lost: int = 0
    told: int = 0
    made_up: int = 0
    unpaired: int = 0
    examples: tuple[str, ...] = ()

    @property
    def fault(self) -> str:
        """Return in words that quote nobody why the shorter conversation must not be used; "" where it may be."""
        if self.unpaired:
            return "Calls of tools would have lost their results."
        if self.made_up > MOST_MADE_UP and 2 * self.made_up > self.told:
            return "Most of the paths, numbers and names in the summary are not from the conversation."
        return ""

    @property
    def outcome(self) -> Outcome:
        """Return the grade: a soft fail has lost a tenth of what the user said, or tells what nobody has said."""
        if self.fault:
            return "hard fail"
        is_whole = self.facts - self.lost >= LEAST_HELD * self.facts
        return "pass" if is_whole and not self.made_up else "soft fail"

    @property
    def in_words(self) -> str:
        """Return what was put back, left out and made up, in words for people; "" where there is nothing to tell."""
        put_back = f"{self.put_back:,} lines quoted by code" if self.put_back else ""
        return ", ".join(filter(None, (put_back, self._losses)))

    @property
    def warning(self) -> str:
        """Return the few words that a person should read with the compaction, quoting them; "" where it passes."""
        if self.outcome == "pass":
            return ""
        quoted = " and ".join(f'"{cut(text)}"' for text in self.examples)
        return f"{self._losses}; lost is {quoted}" if quoted else self._losses

    @property
    def _losses(self) -> str:
        lost = f"{self.lost:,} of {self.facts:,} sentences of the user left out" if self.lost else ""
        made_up = f"{self.made_up:,} made up by the pruning agent and left out" if self.made_up else ""
        return ", ".join(filter(None, (lost, made_up)))

    def __str__(self) -> str:
        """Return the grade, with what was put back, left out and made up."""
        return ": ".join(filter(None, (self.outcome, self.in_words)))


def cut(text: str) -> str:
    """Return a text that fits a notice: of a long one the beginning."""
    return text if len(text) <= LONGEST_EXAMPLE else f"{text[: LONGEST_EXAMPLE - 1].rstrip()}…"


@dataclass(frozen=True, slots=True)
class Compaction:
    """A conversation made shorter: its messages, the rung that did it, its sizes in tokens before and after.

    The last `tail` messages stand untouched at the conversation's end. Of each message of which only a part stays,
    `parts` has the whole and that part. `groups_kept` counts all groups that stay word for word, those of the tail
    included, system messages apart; `seconds` is how long the compaction took, `reason` why the rung before failed. The
    first `condensed_groups` of the replaced ones were so many that code alone tells of them; `verdict` is what it has
    kept.
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
    reason: str = ""
    condensed_groups: int = 0
    verdict: Verdict = Verdict()
    parts: tuple[tuple[Message, Message], ...] = ()
