"""What it costs to make room in a window: the time for which somebody waits, for each token until the next time.

Pure: an engine's speeds and what an action does to a prompt come in, the choice and its reasons go out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["mask", "plan", "code"]
"""Lines stand in place of old results; a pruning agent's plan, or code alone, compacts the history."""
ORDER: Final = 600
"""Tokens that an order for a plan takes, about."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """How fast an engine reads prompts and writes, in tokens a second."""

    reading: float
    writing: float


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done about a prompt, in tokens.

    The engine reads `read` that it has read before or that nobody has said, a pruning agent writes `written`, and
    `room` comes until the next time.
    """

    kind: Kind
    read: int
    written: int
    room: int

    def seconds(self, speeds: Speeds) -> float:
        """Return how long it takes."""
        return self.read / speeds.reading + self.written / speeds.writing

    def told(self, speeds: Speeds) -> str:
        """Return it in a few words, for a log."""
        return f"{self.kind}: {self.seconds(speeds):.1f} s for {self.room:,} tokens of room"


def compaction(room_for_summary: int, room: int, plan: int) -> Action:
    """Return what a compaction does that leaves so much room, a part of it to a summary and what stays with it.

    `plan` is how many tokens a pruning agent writes, 0 where code alone does it.
    """
    order = ORDER if plan else 0
    return Action("plan" if plan else "code", order + max(0, room_for_summary), plan, room)


def cheapest(actions: Sequence[Action], speeds: Speeds) -> Action:
    """Return the action that costs the session least: the fewest seconds for each token of room; first ones win."""
    return min(actions, key=lambda action: action.seconds(speeds) / max(1, action.room))
