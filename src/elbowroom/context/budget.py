"""How the window is divided, and what follows for a request. All sizes are tokens.

    0 ................ target ........ trigger 80 % ... stop 90 % ... force 95 % ... window
    [ prompt P: system, tools, messages ][ reserve for the reply ]

Before a request the occupancy is (P + reserve) / window, while the answer streams (P + generated) / window. The fixed
cost F is the part that no compaction can free: system, tools, pinned messages, reserve.
"""

from dataclasses import dataclass, field, replace
from typing import Final

TARGET_RATIO = 0.5
STOP_RATIO = 0.9
FORCE_RATIO = 0.95
LEAST_RATIO = 0.3
TARGET_OF_TRIGGER = 5 / 6
"""Below an early trigger a compaction frees at least a sixth of it, so that the next one is not due at once."""
LEAST_RESERVE = 1000
DEFAULT_THRESHOLD = 0.8

LEAST_ROOM_FOR_SUMMARY = 200
MOST_SUMMARY, LEAST_SUMMARY = 2000, 200
USUAL_ANSWERS: Final = (9, 10)
SHARE_BEFORE_REST = 3
"""An answer goes on beside one part in so many of the room that what cannot be freed leaves it; the rest is its own."""

ROOMS_BELOW: Final = 2
"""How many times the least room a summary gets where a client wants the compaction."""

LEAST_GAIN = 1000
LEAST_GAIN_SHARE = 10  # one part in ten of the size before

STEP_OF_WINDOWS: Final = 4096


@dataclass(frozen=True, slots=True)
class Budget:
    """The window of the loaded model, the trigger as a share of it, and the reply length that the client asked for.

    From an occupied size of `trigger` on the history is compacted before a request. At `stop_at` of prompt and answer
    the answer is stopped at the next good place, at `force_at` wherever it is.

    A `max_tokens` of zero or less asks for no limit, as it does with llama.cpp. `answers` are the sizes of those that
    the conversation has had of its model. Raises ValueError for a window without
    room, and for a trigger below 0.3 of it, or not before the place where an answer is stopped wherever it is.
    """

    window: int
    threshold: float = DEFAULT_THRESHOLD
    max_tokens: int | None = None
    answers: tuple[int, ...] = ()
    trigger: int = field(init=False)
    stop_at: int = field(init=False)
    force_at: int = field(init=False)

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"a window has to hold at least one token, not {self.window}")
        if not LEAST_RATIO <= self.threshold < FORCE_RATIO:
            raise ValueError(f"a trigger has to be between {LEAST_RATIO} and {FORCE_RATIO}, not {self.threshold}")
        stop = STOP_RATIO if self.threshold < STOP_RATIO else (self.threshold + FORCE_RATIO) / 2
        for name, ratio in (("trigger", self.threshold), ("stop_at", stop), ("force_at", FORCE_RATIO)):
            object.__setattr__(self, name, self._share(ratio))

    def reserve(self, prompt: int) -> int:
        """Return the room kept for the reply beside a prompt of this size.

        The client's max_tokens, else a fifth of what is left; at least min(1000, window / 8), at most window / 4. That
        counts as one answer more beside those that there were: the reply gets what nine of ten have taken, and never
        more than the client's max_tokens. A rare longer one goes on after a compaction. So do all where usual ones are
        longer than what a compaction leaves: then no room is kept for them that would not be enough.
        """
        wanted, most = self._asked or (self.window - prompt) // 5, most_reserve(self.window)
        unknown = max(min(LEAST_RESERVE, self.window // 8), min(wanted, most))
        if not self.answers:
            return unknown
        part, whole = USUAL_ANSWERS
        usual = sorted((*self.answers, unknown))[-(-(len(self.answers) + 1) * part // whole) - 1]
        if usual > most:
            usual = unknown if usual > self.stop_at - self.target(0) else most
        return max(1, min(usual, self._asked or usual))

    def occupied(self, prompt: int) -> int:
        """Return prompt and reserve together."""
        return prompt + self.reserve(prompt)

    @property
    def compacts_at(self) -> int:
        """Return the size of the smallest prompt that is compacted: with room for its reply it is at the trigger."""
        return max(0, self.room(0, self.trigger))

    def room(self, prompt: int, target: int) -> int:
        """Return how many tokens may come to a prompt until it takes `target` with its reserve, less than 0 if it does.

        The reserve shrinks as the prompt grows.
        """
        room = target - self.occupied(prompt)
        while (more := target - self.occupied(prompt + room)) > 0:
            room += more
        return room

    def target(self, fixed: int) -> int:
        """Return the size that a compaction has to reach: half the window, or midway from fixed cost to trigger.

        Where the trigger is early, five sixths of it take the place of half the window. It is below the trigger
        wherever the fixed cost is, so that the next turn does not compact again.
        """
        half = self._share(min(TARGET_RATIO, self.threshold * TARGET_OF_TRIGGER))
        return max(half, (fixed + self.trigger) // 2)

    def target_in_answer(self, fixed: int) -> int:
        """Return the size to reach before a stopped answer goes on, so that most of the room is for what is left of it.

        `fixed` is the prompt that no compaction can make smaller, without reserve.
        """
        return self.occupied(fixed + max(0, self.stop_at - fixed) // SHARE_BEFORE_REST)

    def target_below(self, at: int, prompt: int, fixed: int) -> int | None:
        """Return the target of a compaction that a client wants of each prompt of `at` tokens or more.

        It is midway from the fixed cost to that size, with room for a summary; None where there is none, or where that
        frees too little.
        """
        least, occupied = self.occupied(fixed), self.occupied(prompt)
        wanted = (least + min(occupied, self.occupied(at))) // 2
        target = min(self.target(least), max(wanted, least + ROOMS_BELOW * least_room(self)))
        is_worth_it = target - least >= least_room(self) and occupied - target >= least_gain(prompt)
        return target if is_worth_it else None

    def reply_limit(self, prompt: int) -> int:
        """Return the upstream's max_tokens: the rest of the window, or less where the client wants less.

        It is at least 1: whether a prompt that fills the window is sent at all is not decided here.
        """
        left = max(1, self.window - prompt)
        return min(left, self._asked) if self._asked else left

    def _share(self, ratio: float) -> int:
        """Return this share of the window, rounded down but for errors of floating point."""
        return int(self.window * ratio + 1e-6)

    @property
    def _asked(self) -> int:
        """Return the length of reply that the client asked for, 0 where it asked for none."""
        return max(0, self.max_tokens or 0)


NO_WINDOW: Final = Budget(1)
"""Stands for the budget until a window is known."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The sizes of one prompt, each the most that it may be: the whole, and the part that no compaction can free.

    `fixed` is the prompt with only system, tools and pinned messages in it. `least` is the fewest tokens that may be
    left of it when all is freed that can be, None where that was not measured since the most fit.
    """

    prompt: int
    fixed: int
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """The request fits; `is_tight` says that the fixed cost alone takes more than half of the window.

    Where it `is_doubtful`, the engine has to judge: by the most tokens that it may have it does not fit, by the fewest
    it does, and nothing more can be freed.
    """

    is_tight: bool = False
    is_doubtful: bool = False


@dataclass(frozen=True, slots=True)
class Compact:
    """The history has to shrink first, until prompt and reserve are at or below `target`.

    Without `asks_pruner` a useful summary would not fit: then code alone cuts the history. `is_tight` is as in `Send`.
    Where it only `is_wanted`, there is room for the history as it is: then nothing of it goes untold. A target that
    `is_firm` has to be reached for what comes next, and is not raised for what was said last.
    """

    target: int
    asks_pruner: bool = True
    is_tight: bool = False
    is_wanted: bool = False
    is_firm: bool = False


@dataclass(frozen=True, slots=True)
class Refuse:
    """The request surely does not fit, whatever is compacted; `needed` is the smallest prompt that it can have."""

    needed: int


Decision = Send | Compact | Refuse


def plan_step(measure: Measure, budget: Budget, *, auto: bool = True) -> Decision:
    """Decide about one model step. With `auto` off nothing is compacted, and a prompt that does not fit is refused.

    What may not fit is compacted first; only what surely does not fit then is refused. Where the fixed cost alone is
    past an early trigger, the usual one counts.
    """
    smallest = min(measure.fixed, measure.prompt)
    fixed = budget.occupied(smallest)
    if budget.threshold < DEFAULT_THRESHOLD and fixed >= budget.trigger:
        budget = replace(budget, threshold=DEFAULT_THRESHOLD)
    is_tight = fixed > budget.window // 2
    fits = measure.prompt < budget.window
    if budget.occupied(measure.prompt) < budget.trigger:
        return Send(is_tight)
    left = smallest if auto else measure.prompt
    if left >= budget.window and (measure.least is None or measure.least >= budget.window):
        return Refuse(left)
    if fixed < budget.trigger and auto:
        target = budget.target(fixed)
        if target - fixed >= least_room(budget):
            return Compact(target, is_tight=is_tight)
        return Compact(budget.trigger, asks_pruner=False, is_tight=is_tight)
    if measure.prompt == left or budget.occupied(measure.prompt) <= budget.window:
        return Send(is_tight, is_doubtful=not fits)
    return Compact(max(fixed, budget.window), asks_pruner=False, is_tight=is_tight)


def most_reserve(window: int) -> int:
    """Return the most that is kept free for a reply; clients that ask how long one may be are told this."""
    return window // 4


def leaves_room(fixed: int, window: int) -> bool:
    """Tell whether beside a prompt without a conversation, and a reply, a quarter of the window is left for one."""
    budget = Budget(window)
    return budget.trigger - budget.occupied(fixed) >= window // 4


def window_for(fixed: int) -> int:
    """Return the smallest of the usual windows in which a prompt without a conversation leaves one room."""
    return next(window for window in range(STEP_OF_WINDOWS, 2**31, STEP_OF_WINDOWS) if leaves_room(fixed, window))


def least_room(budget: Budget) -> int:
    """Return how much room between fixed cost and target makes a summary worth asking for."""
    return min(LEAST_ROOM_FOR_SUMMARY, budget.window // 16)


def most_summary(budget: Budget) -> int:
    """Return how many tokens a summary may have where there is room for all of it."""
    return min(MOST_SUMMARY, max(LEAST_SUMMARY, budget.window // 8))


def kept_beside_results(budget: Budget, rest: int, first: int) -> int:
    """Return how many tokens a compaction keeps beside results that the model has not read yet, and the `rest`.

    That is a summary in its full room and the `first` request, up to a quarter of the window, and with the rest no less
    than a quarter: so much stays as soon as the results are read and go.
    """
    quarter = budget.window // 4
    return max(most_summary(budget) + min(first, quarter), quarter - rest)


def least_gain(before: int) -> int:
    """Return how much a compaction of a prompt of this size has to free: a tenth of it or 1000, whichever is less."""
    return max(1, min(LEAST_GAIN, before // LEAST_GAIN_SHARE))


def fault_in(before: int, after: int, budget: Budget, target: int) -> str | None:
    """Return why a result is not good enough, in words for the pruning agent; None if it is.

    With a target at the trigger or above nearly all of the prompt is fixed: any result that reaches it will do.
    """
    if after >= before:
        return f"The result was not smaller: {after} tokens after {before}."
    if target < budget.trigger and before - after < least_gain(before):
        return f"The result was hardly smaller: {after} tokens after {before}."
    occupied = budget.occupied(after)
    if occupied > target:
        return f"The result was too large: {occupied} tokens with the room for the reply, {target} at most."
    return None


def is_rescue(before: int, after: int, budget: Budget, *, with_reserve: bool) -> bool:
    """Tell whether a result above the target is still better than none.

    It is if it ends below the trigger, or if the prompt before could not be sent at all; with `with_reserve` the reply
    has to keep its room.
    """
    if after >= before:
        return False
    if before < budget.window:
        return before - after >= least_gain(before) and budget.occupied(after) < budget.trigger
    return budget.occupied(after) <= budget.window if with_reserve else after < budget.window
