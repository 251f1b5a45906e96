"""What it costs to make room in a window: the time for which somebody waits, by each request until the next time.

Pure: an engine's speeds and what an action does to a prompt come in, the choice and its reasons go out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

Way = Literal["mask", "plan", "code"]
"""Lines stand in place of old results; a pruning agent's plan, or code alone, compacts the history."""
ORDER: Final = 600
"""Tokens that an order for a plan takes, about."""
USUAL_PLAN: Final = 500
SHORTEST_MOVE: Final = 1.0
LONGEST_MOVE: Final = 5.0
LEAST_TOLD: Final = 2.0
"""Seconds: nobody is told how long a shorter wait takes."""


@dataclass(frozen=True, slots=True)
class Engine:
    """How fast an engine reads and writes, in tokens a second, and how many a plan takes; None before the first."""

    reading: float
    writing: float
    plan: int | None = None

    def can_write(self, seconds: float, read: int) -> int:
        """Return how many tokens it writes in so many seconds, in which it reads so many as well."""
        return max(0, int((seconds - read / self.reading) * self.writing))


def seconds_left(engine: Engine, written: int, limit: int) -> int:
    """Return how long a plan of at most `limit` tokens takes of which so many are written.

    It is 0 for a moment, and where no plan was made before. While nothing is written the order is read.
    """
    if engine.plan is None:
        return 0
    order = 0 if written else ORDER
    plan = max(0, min(engine.plan, limit) - written)
    left = order / engine.reading + plan / engine.writing
    return round(left) if left >= LEAST_TOLD else 0


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done about a prompt, in tokens.

    The engine reads `read` that nobody would have it read else, a pruning agent writes `written`, and there is `room`
    until the next time.
    """

    way: Way
    read: int
    written: int
    room: int

    def seconds(self, engine: Engine) -> float:
        """Return how long it takes."""
        return self.read / engine.reading + self.written / engine.writing

    def seconds_each(self, engine: Engine, step: int) -> float:
        """Return how long it takes for each request until the next time, where each brings `step` tokens."""
        return self.seconds(engine) / (1 + max(0, self.room) / max(1, step))

    def told(self, engine: Engine) -> str:
        """Return it in a few words, for a log."""
        return f"{self.way} takes {self.seconds(engine):.1f} s and leaves room for {self.room:,} tokens"


def compaction(engine: Engine, for_summary: int, room: int, *, is_planned: bool) -> Action:
    """Return what a compaction does that leaves so many tokens to its summary and what stays beside it, and room."""
    if not is_planned:
        return Action("code", for_summary, 0, room)
    return Action("plan", for_summary + ORDER, engine.plan or USUAL_PLAN, room)


def cheapest(actions: Sequence[Action], engine: Engine, step: int) -> Action:
    """Return the action that costs the session least, where each request brings `step` tokens; first ones win.

    After it there is room for the next request at least.
    """
    return min(actions, key=lambda action: action.seconds_each(engine, step))


def gentlest(actions: Sequence[Action], engine: Engine, step: int) -> Action:
    """Return the first of the actions, of which each takes more words than the one before, that nobody notices.

    Where somebody would wait at each request until the next time, that is the cheapest.
    """
    unnoticed = (action for action in actions if action.seconds_each(engine, step) < LEAST_TOLD)
    return next(unnoticed, None) or cheapest(actions, engine, step)


@dataclass(frozen=True, slots=True)
class Moving:
    """How long an engine has taken to save and restore so many tokens."""

    tokens: int = 0
    seconds: float = 0.0

    def after(self, tokens: int, seconds: float) -> "Moving":
        """Return it with so many tokens more."""
        return Moving(self.tokens + tokens, self.seconds + seconds)

    def pays(self, engine: Engine, moved: int, spared: int) -> bool:
        """Tell whether moving so many tokens takes less time than reading those that are spared; the first try does."""
        return self.seconds * moved / max(1, self.tokens) < spared / engine.reading

    @staticmethod
    def patience(engine: Engine, tokens: int) -> float:
        """Return for how many seconds it is waited while so many tokens are moved: no longer than to read them.

        Nobody is told of that wait, so that it is a few at most; at least one, in which an engine finds the time.
        """
        return min(LONGEST_MOVE, max(SHORTEST_MOVE, tokens / engine.reading))
