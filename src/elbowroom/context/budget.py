"""How the window is divided. All sizes are tokens.

    0 ................ target ........ trigger 80 % ... stop 90 % ... force 95 % ... window
    [ prompt P: system, tools, messages ][ reserve for the reply ]

Before a request the occupancy is (P + reserve) / window, while the answer streams (P + generated) / window. What no
compaction can free is the fixed cost F: system, tools, pinned messages, reserve.
"""

from dataclasses import dataclass

TARGET_RATIO = 0.5
STOP_RATIO = 0.9
FORCE_RATIO = 0.95
LEAST_RESERVE = 1000
DEFAULT_THRESHOLD = 0.8


@dataclass(frozen=True, slots=True)
class Budget:
    """The window of the loaded model, the trigger as a share of it, and the reply the client asked room for.

    A `max_tokens` of zero or less asks for no limit, as it does with llama.cpp. Raises ValueError for a window without
    room, and for a trigger that is not between the half that a compaction aims at and the stop.
    """

    window: int
    threshold: float = DEFAULT_THRESHOLD
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"a window has to hold at least one token, not {self.window}")
        if not TARGET_RATIO < self.threshold < STOP_RATIO:
            raise ValueError(f"a trigger has to be between {TARGET_RATIO} and {STOP_RATIO}, not {self.threshold}")

    def reserve(self, prompt: int) -> int:
        """Return the room kept for the reply beside a prompt of this size.

        The client's max_tokens, else a fifth of what is left; at least min(1000, window / 8), at most window / 4.
        """
        wanted = self._asked or (self.window - prompt) // 5
        return max(min(LEAST_RESERVE, self.window // 8), min(wanted, self.window // 4))

    def occupied(self, prompt: int) -> int:
        """Return prompt and reserve together."""
        return prompt + self.reserve(prompt)

    @property
    def trigger(self) -> int:
        """Return the occupied size from which the history is compacted before a request."""
        return self._share(self.threshold)

    def target(self, fixed: int) -> int:
        """Return what a compaction has to reach: half the window, or midway from the fixed cost to the trigger.

        It is below the trigger wherever the fixed cost is, so that the next turn does not compact again.
        """
        return max(self._share(TARGET_RATIO), (fixed + self.trigger) // 2)

    @property
    def stop_at(self) -> int:
        """Return the size of prompt and answer at which the answer is stopped at the next good place."""
        return self._share(STOP_RATIO)

    @property
    def force_at(self) -> int:
        """Return the size of prompt and answer at which the answer is stopped wherever it is."""
        return self._share(FORCE_RATIO)

    def reply_limit(self, prompt: int) -> int:
        """Return the upstream's max_tokens: what is left of the window, or less where the client wants less.

        It is at least 1: whether a prompt that fills the window is sent at all is not decided here.
        """
        left = max(1, self.window - prompt)
        return min(left, self._asked) if self._asked else left

    def _share(self, ratio: float) -> int:
        """Return this share of the window, rounded down but for what is only the error of floating point."""
        return int(self.window * ratio + 1e-6)

    @property
    def _asked(self) -> int:
        """Return the length of reply that the client asked for, 0 where it asked for none."""
        return max(0, self.max_tokens or 0)
