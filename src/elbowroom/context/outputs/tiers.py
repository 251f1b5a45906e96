"""Prunes the history of tool calls by rules: old results become shorter or one line, and no model is asked.

**When.** Pruning changes the prompt's beginning, and the engine has to read everything after the change once more. So
it waits for need and then does a lot at once: it begins when the calls and results that can be shortened take more than
the budget (the high mark), and goes on until they take three eighths of it (the low mark). It does nothing where less
than a quarter of the budget or `minimum_tokens` would come free, or the results of less than seven turns; only where
they take three times the budget does it wait no longer. While a result that no turn has consumed
fills the low mark by itself, pruning waits for the turn after it, just as long. Where the prompt has reached the
compaction's trigger (`must_shrink`), it acts before that, if three fifths of the budget come free: that spares the
compaction for a while. If less does, the compaction comes, and pruning with it (`at_any_gain`): one change of the
beginning instead of two.

A window with room for `protect_tokens` and `minimum_tokens` together needs no shares: there the low mark is
`protect_tokens`, the newest results up to it stay whatever their age, and a pruning frees at least `minimum_tokens`.

**What.** From old to new, until the low mark is reached:

1. results older than `clear_after_turns` turns of the assistant become stubs, beyond the low mark too;
2. results of queries become stubs;
3. results of over 4,000 characters are trimmed to beginning and end;
4. any others become stubs.

Tiers 1 to 3 apply where the history holds more than `truncation_threshold` characters; below, a small window's budget
can still be full, and then tier 4 alone makes room. Arguments of over 500 characters go with their result. With
`must_shrink` everything that is not protected becomes a stub.

**What not.** A result that no turn of the model has consumed yet. The newest `keep_last_turns` turns and
`recent_calls_to_keep` calls, as far as they fit the low mark: six calls of a quarter each would exceed the whole budget
of a small window. Text of user and assistant, images. A result that cannot be read back. Errors: their words stay, and
only an envelope around them goes. Results of at most 300 characters: a stub would be no shorter.

**State.** There is none but the messages: a stub is known by its form, is never written anew, and counts neither for
the marks nor for what comes free. Neither do errors, which nothing shortens: they end with the next compaction.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

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
from elbowroom.context.transcript import UNKNOWN_TOOL, Message, calls_of, text_of, with_calls, with_text
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
class _Use:
    """A call and its result that can still be shortened; `tokens` is the size of both.

    `caller` and `result` are places of messages, `position` that of the call in its message. `age` counts turns of the
    assistant and `rank` calls, both from 1 at the newest.
    """

    caller: int
    position: int
    result: int
    call: Mapping[str, Any]
    text: str
    ref: str
    age: int
    rank: int
    tokens: int
    is_consumed: bool

    @property
    def name(self) -> str:
        """Return the tool's name."""
        return str(self.call["function"].get("name") or UNKNOWN_TOOL)

    @property
    def arguments(self) -> str:
        """Return the call's arguments."""
        return str(self.call["function"]["arguments"])


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
    errors = _Errors(kinds, is_kept=limits.keeps_errors)
    uses = list(_uses(messages, ref_of_result, size_of, errors))
    live = sum(use.tokens for use in uses)
    if not must_shrink and not _is_due(uses, live, limits):
        return None
    forms = _chosen(uses, live, limits, kinds, must_shrink=must_shrink)
    if (
        not must_shrink
        and live <= PATIENCE * limits.budget
        and len({use.caller for use, _ in forms}) < limits.batch_turns
    ):
        return None
    shorter = _written(messages, forms, errors)
    left = sum(
        _tokens_of(calls_of(shorter[use.caller])[use.position], shorter[use.result], size_of, errors)
        for use, _ in forms
    )
    freed = sum(use.tokens for use, _ in forms) - left
    least = 1 if at_any_gain else limits.least_gain(must_shrink=must_shrink)
    return shorter if freed >= least else None


@dataclass(frozen=True, slots=True)
class _Errors:
    """Tells which words of a result stay word for word; `kinds` are the declared kinds of tools."""

    kinds: Mapping[str, ToolKind]
    is_kept: bool

    def of(self, call: Mapping[str, Any], text: str) -> str | None:
        """Return the error in the result of a call, None where nothing has failed or errors need not stay."""
        function = call["function"]
        kind = kind_of(str(function.get("name") or UNKNOWN_TOOL), self.kinds)
        return failure_of(kind, str(function.get("arguments")), text) if self.is_kept else None


def _uses(
    messages: Sequence[Message], ref_of_result: RefOfResult, size_of: Callable[[str], int], errors: _Errors
) -> Iterator[_Use]:
    """Yield the calls that can still be shortened, from new to old.

    An answer at the very end is still being written, and is about the results before it.
    """
    age = rank = 0
    end = len(messages)
    while end and messages[end - 1].get("role") == "assistant" and not calls_of(messages[end - 1]):
        end -= 1
    for caller in range(end - 1, -1, -1):
        message = messages[caller]
        if message.get("role") != "assistant":
            continue
        age += 1
        calls = calls_of(message)
        results = results_after(messages, caller) if calls else {}
        for position in range(len(calls) - 1, -1, -1):
            rank += 1
            call = calls[position]
            result = results.get(call.get("id"))
            tokens = _tokens_of(call, messages[result], size_of, errors) if result is not None else 0
            ref = ref_of_result(messages[result]) if result is not None and tokens else None
            if result is not None and ref is not None:
                text = text_of(messages[result])
                yield _Use(caller, position, result, call, text, ref, age, rank, tokens, is_consumed=age > 1)


def results_after(messages: Sequence[Message], caller: int) -> dict[object, int]:
    """Return the places of the results right after a message with calls, by the ids of these."""
    places: dict[object, int] = {}
    at = caller + 1
    while at < len(messages) and messages[at].get("role") == "tool":
        places.setdefault(messages[at].get("tool_call_id"), at)
        at += 1
    return places


def _tokens_of(call: Mapping[str, Any], result: Message, size_of: Callable[[str], int], errors: _Errors) -> int:
    """Return the tokens of a call and its result that can still be shortened; 0 for a call that is not sound."""
    function = call.get("function")
    arguments = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(arguments, str):
        return 0
    text = text_of(result)
    in_arguments = size_of(arguments) if len(arguments) > LONG_ARGUMENTS else 0
    return in_arguments + (0 if _is_settled(call, text, errors) else size_of(text))


def _is_settled(call: Mapping[str, Any], text: str, errors: _Errors) -> bool:
    """Tell whether nothing more can be done about a result: it is short, a stub, or an error's bare words."""
    if len(text) <= LEAST_ENVELOPE or (text.startswith(MARK) and is_stub(text)):
        return True
    error = errors.of(call, text) if len(text) <= LONG_RESULT else None
    return len(text) <= SHORT_RESULT if error is None else len(text) - len(error) < LEAST_ENVELOPE


def _is_due(uses: Sequence[_Use], live: int, limits: TierLimits) -> bool:
    """Tell whether it is time to prune: the budget is full, and a batch worth it is consumed."""
    unconsumed = sum(use.tokens for use in uses if not use.is_consumed)
    return live > limits.budget and (unconsumed <= limits.low_mark or live > PATIENCE * limits.budget)


def _chosen(
    uses: Sequence[_Use], live: int, limits: TierLimits, kinds: Mapping[str, ToolKind], *, must_shrink: bool
) -> list[tuple[_Use, Form]]:
    """Return the uses to shorten and their new forms, by the tiers; `uses` go from new to old."""
    open_uses = list(_unprotected(uses, limits))[::-1]
    has_tiers = sum(len(use.text) + len(use.arguments) for use in uses) > limits.truncation_threshold
    chosen: dict[int, tuple[_Use, Form]] = {}
    left = live
    for use, form, is_aged in _tiers(open_uses, limits, kinds, has_tiers=has_tiers and not must_shrink):
        if is_aged or must_shrink or left > limits.low_mark:
            left -= _gain(use, form) - (_gain(*chosen[use.rank]) if use.rank in chosen else 0)
            chosen[use.rank] = use, form
    return list(chosen.values())


def _unprotected(uses: Sequence[_Use], limits: TierLimits) -> Iterator[_Use]:
    """Yield the uses that may be shortened, from new to old: consumed, and not among the newest as far as these fit."""
    kept = 0
    is_recent = True
    for use in uses:
        kept += use.tokens
        is_recent = is_recent and kept <= limits.low_mark
        if not limits.protected:
            is_recent = is_recent and (use.age <= limits.keep_last_turns or use.rank <= limits.recent_calls_to_keep)
        if use.is_consumed and not is_recent:
            yield use


def _tiers(
    uses: Sequence[_Use], limits: TierLimits, kinds: Mapping[str, ToolKind], *, has_tiers: bool
) -> Iterator[tuple[_Use, Form, bool]]:
    """Yield the possible changes in order: the use, its new form, and whether its age alone demands it."""
    if has_tiers:
        yield from ((use, "stub", True) for use in uses if use.age > limits.clear_after_turns)
        uses = [use for use in uses if use.age <= limits.clear_after_turns]
        yield from ((use, "stub", False) for use in uses if kind_of(use.name, kinds) == "query")
        uses = [use for use in uses if kind_of(use.name, kinds) != "query"]
        yield from (
            (use, "trimmed", False) for use in uses if len(use.text) > LONG_RESULT and not is_soft_trimmed(use.text)
        )
    yield from ((use, "stub", False) for use in uses)


def _gain(use: _Use, form: Form) -> int:
    """Return about how many tokens a new form frees."""
    return use.tokens if form == "stub" else use.tokens * (len(use.text) - 2 * ENDS) // len(use.text)


def _written(messages: Sequence[Message], forms: Sequence[tuple[_Use, Form]], errors: _Errors) -> list[Message]:
    """Return the messages with these uses in their new forms; each message is copied once."""
    shorter = list(messages)
    for use, form in forms:
        caller = shorter[use.caller]
        if form == "stub" and len(use.arguments) > LONG_ARGUMENTS:
            calls = calls_of(caller)
            function = {**calls[use.position]["function"], "arguments": shorter_arguments(use.arguments)}
            calls[use.position] = {**calls[use.position], "function": function}
            shorter[use.caller] = with_calls(caller, calls)
        text = _shortened(use, form, errors)
        if len(text) < len(use.text):
            shorter[use.result] = with_text(messages[use.result], text)
    return shorter


def _shortened(use: _Use, form: Form, errors: _Errors) -> str:
    if _is_settled(use.call, use.text, errors):
        return use.text
    error, kind = errors.of(use.call, use.text), kind_of(use.name, errors.kinds)
    is_part = error is not None and kind == "execute"
    if (form == "trimmed" and not is_part) or (error is not None and len(error) > LONG_RESULT and not is_part):
        return soft_trimmed(use.text, use.ref)
    return stub(kind, use.name, use.arguments, use.text, use.ref, keeps_errors=errors.is_kept)
