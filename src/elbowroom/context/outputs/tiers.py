"""Prunes the history of tool calls by rules: old results become shorter or one line, and no model is asked.

When, what and what not stands in docs/tools-tiers.md. The engine reads all that follows a change of the prompt anew:
so pruning waits for need and then does a lot at once, from the budget (the high mark) down to the low mark. Where the
prompt has reached the compaction's trigger (`must_shrink`) it waits for nothing, if so much comes free that the
compaction is spared for a while. If less does, the compaction comes, and pruning with it (`at_any_gain`): one change
instead of two.

There is no state but the messages: a stub is known by its form, is never written anew, and counts neither for the marks
nor for what comes free. Neither do errors, which nothing shortens: they end with the next compaction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from elbowroom.context.outputs.output import kind_of
from elbowroom.context.outputs.stubs import (
    ENDS,
    LONG_ARGUMENTS,
    LONG_RESULT,
    MARK,
    failure_of,
    is_soft_trimmed,
    is_stub,
    shorter_arguments,
    soft_trimmed,
    stub,
)
from elbowroom.context.transcript import Message, Use, calls_of, uses_in, with_arguments, with_text
from elbowroom.settings.model import ToolKind, ToolOutputSettings

SHARE_OF_WINDOW: Final = (25, 100)
SHARE_OF_REST: Final = (30, 100)
LEAST_BUDGET, MOST_BUDGET = 20_000, 60_000
SHARE_WITH_PROTECTED: Final = (2, 3)
"""The share of what is free that protected results and the least batch may take together."""
FLOOR: Final = 16
"""One part in so many of the window is the least budget, however much of it is fixed."""

LOW_MARK: Final = (3, 8)
BATCH: Final = (1, 4)
PRESSED_BATCH: Final = (3, 5)
BATCH_TURNS: Final = 7
"""Turns whose results are shortened at once: so many have to have passed, then, since the last time."""

PATIENCE: Final = 3
"""How many times the budget may be full while a large result waits to be consumed."""

SHORT_RESULT: Final = 300
"""Characters of a result up to which a stub would hardly be shorter."""

LEAST_ENVELOPE: Final = 150
"""Characters around an error's own words from which it pays to write a stub's line above them instead."""

RefOfResult = Callable[[Message], str | None]
"""Returns the id under which the model can read a result again, None where it cannot.

It is asked about trimmed results too, whose text names the id (`ref_of`).
"""

Form = Literal["trimmed", "stub"]


@dataclass(frozen=True, slots=True)
class TierLimits:
    """How much of tool history stays: `budget` in tokens, `truncation_threshold` in characters, the rest are counts.

    `batch_turns` is how many turns' results are shortened at once, unless the prompt is at the trigger. `protected`
    are the tokens of the newest results that stay, 0 where the window has no room for so many; `minimum` is how many
    tokens a pruning frees at least, as far as the budget is no smaller.
    """

    budget: int
    recent_calls_to_keep: int = 6
    keep_last_turns: int = 3
    clear_after_turns: int = 8
    truncation_threshold: int = 10_000
    batch_turns: int = BATCH_TURNS
    keeps_errors: bool = True
    protected: int = 0
    minimum: int = 20_000

    @classmethod
    def of(cls, settings: ToolOutputSettings, window: int, fixed: int) -> Self:
        """Return the limits for a window of which `fixed` tokens cannot be freed."""
        limits = cls(
            tool_budget(window, fixed, settings),
            settings.recent_calls_to_keep,
            settings.keep_last_turns,
            settings.clear_after_turns,
            settings.truncation_threshold,
            keeps_errors=settings.preserve_errors_verbatim,
            minimum=settings.minimum_tokens,
        )
        free = _share(max(0, window - fixed), SHARE_WITH_PROTECTED)
        room = limits.budget if settings.context_budget_tokens else free
        wanted = settings.protect_tokens + settings.minimum_tokens
        if not settings.protect_tokens or wanted > room:
            return limits
        return replace(limits, budget=max(limits.budget, wanted), batch_turns=1, protected=settings.protect_tokens)

    @property
    def low_mark(self) -> int:
        """Return how many tokens a pruning leaves."""
        return self.protected or _share(self.budget, LOW_MARK)

    def least_gain(self, *, must_shrink: bool) -> int:
        """Return how many tokens a pruning has to free to be worth it."""
        share = self.budget if self.protected else _share(self.budget, PRESSED_BATCH if must_shrink else BATCH)
        return max(1, min(self.minimum, share))


def tool_budget(window: int, fixed: int, settings: ToolOutputSettings) -> int:
    """Return how many tokens tool history may take: as set, else a quarter of the window or 30 % of what is free.

    A quarter means 20,000 to 60,000 tokens, and the smaller of both counts. `fixed` tokens cannot be freed.
    """
    rest = max(0, window - fixed)
    if settings.context_budget_tokens:
        return max(1, min(settings.context_budget_tokens, max(rest, window // FLOOR)))
    quarter = min(max(_share(window, SHARE_OF_WINDOW), LEAST_BUDGET), MOST_BUDGET)
    return max(1, window // FLOOR, min(quarter, _share(rest, SHARE_OF_REST)))


def _share(whole: int, share: tuple[int, int]) -> int:
    return whole * share[0] // share[1]


@dataclass(frozen=True, slots=True)
class _Open(Use):
    """A use that can still be shortened, of so many `tokens`, whose result is kept under `ref`.

    `age` counts turns of the assistant and `rank` calls, both from 1 at the newest.
    """

    ref: str
    age: int
    rank: int
    tokens: int

    @property
    def is_consumed(self) -> bool:
        """Tell whether a turn of the model has come after it."""
        return self.age > 1


def pruned(
    messages: Sequence[Message],
    limits: TierLimits,
    kinds: Mapping[str, ToolKind],
    ref_of_result: RefOfResult,
    size_of: Callable[[str], int],
    *,
    must_shrink: bool = False,
    at_any_gain: bool = False,
) -> list[Message] | None:
    """Return the history with old calls and results shortened; None where nothing changes.

    The same messages stay in the same places, and unchanged ones are the same objects; a call without a result right
    after it is passed over. `kinds` are the declared kinds of tools. `size_of` returns the tokens of a text and is
    asked for the same texts on every step: it should remember them. With `must_shrink` the prompt is at the trigger of
    a compaction, which this may spare.
    """
    pruning = _Pruning(limits, kinds, size_of)
    uses = list(pruning.open_uses(messages, ref_of_result))
    live = sum(use.tokens for use in uses)
    if not must_shrink:
        unconsumed = sum(use.tokens for use in uses if not use.is_consumed)
        if live <= limits.budget or (unconsumed > limits.low_mark and live <= PATIENCE * limits.budget):
            return None
    forms = pruning.chosen(uses, live, must_shrink=must_shrink)
    turns = len({use.caller for use, _ in forms})
    if not must_shrink and live <= PATIENCE * limits.budget and turns < limits.batch_turns:
        return None
    shorter, freed = pruning.written(messages, forms)
    least = 1 if at_any_gain else limits.least_gain(must_shrink=must_shrink)
    return shorter if freed >= least else None


@dataclass(frozen=True, slots=True)
class _Pruning:
    """Finds what can be shortened, chooses of it and writes it; `kinds` are the declared kinds of tools."""

    limits: TierLimits
    kinds: Mapping[str, ToolKind]
    size_of: Callable[[str], int]

    def open_uses(self, messages: Sequence[Message], ref_of_result: RefOfResult) -> Iterator[_Open]:
        """Yield the uses that can still be shortened, from new to old.

        An answer at the very end is still being written, and is about the results before it.
        """
        end = len(messages)
        while end and messages[end - 1].get("role") == "assistant" and not calls_of(messages[end - 1]):
            end -= 1
        ages: dict[int, int] = {}
        for at in reversed(range(end)):
            if messages[at].get("role") == "assistant":
                ages[at] = len(ages) + 1
        for rank, use in enumerate(reversed([*uses_in(messages[:end])]), 1):
            if use.result is None or not isinstance(use.call["function"].get("arguments"), str):
                continue
            tokens = self._tokens_of(use, use.arguments, use.text)
            if tokens and (ref := ref_of_result(messages[use.result])) is not None:
                call = use.call, use.name, use.arguments, use.caller, use.position, use.result, use.text
                yield _Open(*call, ref, ages[use.caller], rank, tokens)

    def chosen(self, uses: Sequence[_Open], live: int, *, must_shrink: bool) -> list[tuple[_Open, Form]]:
        """Return the uses to shorten and their new forms, by the tiers; `uses` go from new to old."""
        open_uses = list(self._unprotected(uses))[::-1]
        has_tiers = sum(len(use.text) + len(use.arguments) for use in uses) > self.limits.truncation_threshold
        chosen: dict[int, tuple[_Open, Form]] = {}
        left = live
        for use, form, is_aged in self._tiers(open_uses, has_tiers=has_tiers and not must_shrink):
            if is_aged or must_shrink or left > self.limits.low_mark:
                left -= _gain(use, form) - (_gain(*chosen[use.rank]) if use.rank in chosen else 0)
                chosen[use.rank] = use, form
        return list(chosen.values())

    def _unprotected(self, uses: Sequence[_Open]) -> Iterator[_Open]:
        """Yield the uses that may be shortened, new to old: consumed, and not among the newest as far as these fit."""
        limits, kept, is_recent = self.limits, 0, True
        for use in uses:
            kept += use.tokens
            is_recent = is_recent and kept <= limits.low_mark
            if not limits.protected:
                is_recent = is_recent and (use.age <= limits.keep_last_turns or use.rank <= limits.recent_calls_to_keep)
            if use.is_consumed and not is_recent:
                yield use

    def _tiers(self, uses: Sequence[_Open], *, has_tiers: bool) -> Iterator[tuple[_Open, Form, bool]]:
        """Yield the possible changes in order: the use, its new form, and whether its age alone demands it."""
        if has_tiers:
            most = self.limits.clear_after_turns
            yield from ((use, "stub", True) for use in uses if use.age > most)
            uses = [use for use in uses if use.age <= most]
            yield from ((use, "stub", False) for use in uses if kind_of(use.name, self.kinds) == "query")
            uses = [use for use in uses if kind_of(use.name, self.kinds) != "query"]
            long = (use for use in uses if len(use.text) > LONG_RESULT and not is_soft_trimmed(use.text))
            yield from ((use, "trimmed", False) for use in long)
        yield from ((use, "stub", False) for use in uses)

    def written(self, messages: Sequence[Message], forms: Sequence[tuple[_Open, Form]]) -> tuple[list[Message], int]:
        """Return the messages with these uses in their new forms, and how many tokens that frees."""
        shorter, freed = list(messages), 0
        for use, form in forms:
            text = self._shortened(use, form)
            arguments = shorter_arguments(use.arguments) if form == "stub" else use.arguments
            if arguments != use.arguments:
                shorter[use.caller] = with_arguments(shorter[use.caller], use.position, arguments)
            if use.result is not None and text != use.text:
                shorter[use.result] = with_text(messages[use.result], text)
            freed += use.tokens - self._tokens_of(use, arguments, text)
        return shorter, freed

    def _shortened(self, use: _Open, form: Form) -> str:
        """Return the text of a result in its new form; itself where that is no shorter."""
        if self._is_settled(use, use.text):
            return use.text
        error, kind = self._error_of(use, use.text), kind_of(use.name, self.kinds)
        is_part = error is not None and kind == "execute"
        if (form == "trimmed" and not is_part) or (error is not None and len(error) > LONG_RESULT and not is_part):
            text = soft_trimmed(use.text, use.ref)
        else:
            text = stub(kind, use.name, use.arguments, use.text, use.ref, keeps_errors=self.limits.keeps_errors)
        return text if len(text) < len(use.text) else use.text

    def _tokens_of(self, use: Use, arguments: str, text: str) -> int:
        """Return the tokens of a call's arguments and result that can still be shortened."""
        in_arguments = self.size_of(arguments) if len(arguments) > LONG_ARGUMENTS else 0
        return in_arguments + (0 if self._is_settled(use, text) else self.size_of(text))

    def _is_settled(self, use: Use, text: str) -> bool:
        """Tell whether nothing more can be done about a result: it is short, a stub, or an error's bare words."""
        if len(text) <= LEAST_ENVELOPE or (text.startswith(MARK) and is_stub(text)):
            return True
        error = self._error_of(use, text) if len(text) <= LONG_RESULT else None
        return len(text) <= SHORT_RESULT if error is None else len(text) - len(error) < LEAST_ENVELOPE

    def _error_of(self, use: Use, text: str) -> str | None:
        """Return which words of a result stay word for word; None where nothing failed or errors need not stay."""
        return failure_of(kind_of(use.name, self.kinds), use.arguments, text) if self.limits.keeps_errors else None


def _gain(use: _Open, form: Form) -> int:
    """Return about how many tokens a new form frees."""
    return use.tokens if form == "stub" else use.tokens * (len(use.text) - 2 * ENDS) // len(use.text)
