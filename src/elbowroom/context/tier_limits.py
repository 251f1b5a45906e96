"""How much of tool history may stay in a window, and how much has to come free for a pruning to be worth it."""

from dataclasses import dataclass
from typing import Final, Self

from elbowroom.settings.tool_sections import ToolOutputSettings

SHARE_OF_WINDOW: Final = (25, 100)
SHARE_OF_REST: Final = (30, 100)
LEAST_BUDGET, MOST_BUDGET = 20_000, 60_000
FLOOR: Final = 16
"""One part in so many of the window is the least budget, however much of it is fixed."""

LOW_MARK: Final = (3, 8)
MOST_KEPT: Final = 40_000
BATCH: Final = (1, 4)
MOST_BATCH: Final = 20_000
PRESSED_BATCH: Final = (3, 5)
BATCH_TURNS: Final = 7
"""Turns whose results are shortened at once: so many have to have passed, then, since the last time."""


@dataclass(frozen=True, slots=True)
class TierLimits:
    """How much of tool history stays: `budget` in tokens, `truncation_threshold` in characters, the rest are counts.

    `batch_turns` is how many turns' results are shortened at once, unless the prompt is at the trigger.
    """

    budget: int
    recent_calls_to_keep: int = 6
    keep_last_turns: int = 3
    clear_after_turns: int = 8
    truncation_threshold: int = 10_000
    batch_turns: int = BATCH_TURNS

    @classmethod
    def of(cls, settings: ToolOutputSettings, window: int, fixed: int) -> Self:
        """Return the limits for a window of which so many tokens are taken by what cannot be freed."""
        return cls(
            tool_budget(window, fixed, settings),
            settings.recent_calls_to_keep,
            settings.keep_last_turns,
            settings.clear_after_turns,
            settings.truncation_threshold,
        )

    @property
    def low_mark(self) -> int:
        """Return how many tokens are left by a pruning."""
        return min(MOST_KEPT, self.budget * LOW_MARK[0] // LOW_MARK[1])

    def least_gain(self, *, must_shrink: bool) -> int:
        """Return how many tokens have to come free for a pruning to be worth it."""
        return max(1, min(MOST_BATCH, _share(self.budget, PRESSED_BATCH if must_shrink else BATCH)))


def tool_budget(window: int, fixed: int, settings: ToolOutputSettings) -> int:
    """Return how many tokens tool history may take: what is set, else a quarter of the window and 30 % of what is free.

    A quarter means 20,000 to 60,000 tokens, and the smaller of both counts. `fixed` is what no compaction can free.
    """
    rest = max(0, window - fixed)
    if settings.context_budget_tokens:
        return max(1, min(settings.context_budget_tokens, max(rest, window // FLOOR)))
    quarter = min(max(_share(window, SHARE_OF_WINDOW), LEAST_BUDGET), MOST_BUDGET)
    return max(1, window // FLOOR, min(quarter, _share(rest, SHARE_OF_REST)))


def _share(whole: int, share: tuple[int, int]) -> int:
    return whole * share[0] // share[1]
