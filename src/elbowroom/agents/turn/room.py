"""Decides whether a history has room in a window, makes new results fit it, and explains to a person what takes it."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Final

from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt import StepCounter, StepRequest, is_short
from elbowroom.agents.request import CompactionRequest
from elbowroom.agents.tools import arrange_tools
from elbowroom.context.budget import (
    Budget,
    Compact,
    Decision,
    FixedCost,
    Measure,
    Send,
    notice_of,
    refusal_of,
    short_notice_of,
    too_small_for,
)
from elbowroom.context.compaction import smallest
from elbowroom.context.ledger import is_system
from elbowroom.context.manager import AgentContextManager, room_for_results, shares, shortened
from elbowroom.context.outputs import names_of
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import (
    SYSTEM_ROLES,
    Message,
    Transcript,
    as_json,
    calls_of,
    size_in_bytes,
    text_of,
    with_text,
    written,
)
from elbowroom.errors import ContextOverflow, WindowTooSmall

log = logging.getLogger(__name__)
NOTHING_ASKED: Final[Message] = {"role": "user", "content": "-"}
SHARE_OF_TOOL: Final = 10
"""One tool more takes at most one part in so many of the room for the conversation."""
MOST_NAMED: Final = 3
"""Files that an error names."""


@dataclass(frozen=True, slots=True)
class FixedCostReport:
    """The fixed cost, and how many tokens shorter descriptions of the client's tools would save."""

    cost: FixedCost
    slim_saves: int


async def decide(
    history: Prompt,
    counter: StepCounter,
    manager: AgentContextManager,
    *,
    must_shrink: bool = False,
    tells_tight: bool = False,
    asked: CompactionRequest | None = None,
) -> Decision:
    """Return what to do with a history; with `must_shrink` it needs room even below the trigger.

    Where it ends with a stopped answer, most of the room has to be free for its rest. `asked` is what the client wants,
    which may be a compaction below the trigger too. The fixed cost, a second count, is measured only where the decision
    depends on it, or with `tells_tight` whether most of the window is taken by it.
    """
    budget, is_stopped = manager.budget, history.is_stopped
    prompt = await counter.prompt(history.messages)
    occupied, at = budget.occupied(prompt), asked.at if asked is not None else None
    is_large = (must_shrink or tells_tight) and occupied > budget.window // 2
    matters = occupied >= budget.trigger or is_large or (must_shrink and is_stopped)
    fixed = await counter.prompt(await smallest_of(history.transcript)) if matters else 0
    measure = Measure(prompt, fixed)
    decision = manager.before_request(measure)
    decision = manager.with_room(decision, measure, must_shrink=must_shrink, is_stopped=is_stopped)
    if at is not None and prompt >= at and isinstance(decision, Send):
        return await _wanted_at(at, decision, history, counter, budget)
    return decision


async def _wanted_at(at: int, decision: Send, history: Prompt, counter: StepCounter, budget: Budget) -> Decision:
    """Return the order for a compaction that a client wants of prompts of `at` tokens, where it frees enough."""
    prompt, fixed = await _sizes(history, counter)
    target = budget.target_below(at, prompt, fixed)
    return Compact(target, is_tight=decision.is_tight, is_wanted=True) if target is not None else decision


async def by_hand(history: Prompt, counter: StepCounter, manager: AgentContextManager) -> tuple[int, Compact]:
    """Return a history's size, and the order to compact it below the trigger too: by half of what can be freed."""
    budget = manager.budget
    before, fixed = await _sizes(history, counter)
    halved = (budget.occupied(before) + budget.occupied(fixed)) // 2
    is_wanted = budget.occupied(before) < budget.trigger
    return before, Compact(min(budget.target(budget.occupied(fixed)), halved), is_wanted=is_wanted)


async def _sizes(history: Prompt, counter: StepCounter) -> tuple[int, int]:
    """Return the size of a history, and of what of it no compaction can free."""
    return await counter.prompt(history.messages), await counter.prompt(await smallest_of(history.transcript))


async def overflow_error(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget, *, switched_off: str
) -> ContextOverflow:
    """Return the error for a prompt that cannot fit, with the numbers and a remedy.

    `switched_off` is the setting by which nothing is compacted, empty where compaction is on.
    """
    prompt = await counter.prompt(messages)
    report = await _report(messages, shape, counter, budget)
    cost = report.cost
    if cost.system + cost.all_tools >= budget.window:
        told = too_small_for(cost, slim_saves=report.slim_saves)
        too_small = WindowTooSmall(told, window=budget.window, prompt_tokens=prompt)
        too_small.param = "tools" if cost.all_tools > cost.system else "messages"
        return too_small
    is_final = cost.prompt >= budget.window
    if is_final:
        cost = replace(cost, material=", ".join(names_of(smallest(Transcript.of(messages)))[:MOST_NAMED]))
        message = refusal_of(cost, slim_saves=report.slim_saves)
    else:
        remedy = f", let the history be compacted ({switched_off})" if switched_off else ""
        message = (
            f"Load the model with a larger context length{remedy}, or begin a new conversation. This model's maximum "
            f"context length is {budget.window} tokens, and the request needs {prompt}."
        )
    overflow = ContextOverflow(message, window=budget.window, prompt_tokens=prompt)
    overflow.is_final = is_final and not switched_off
    return overflow


async def tight_notice(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget
) -> tuple[str, str] | None:
    """Return a line, and the whole text, on what takes most of a tight window; None where the person's words do."""
    report = await _report(messages, shape, counter, budget)
    if report.cost.total <= 2 * report.cost.pinned:
        return None
    text = notice_of(report.cost, slim_saves=report.slim_saves)
    return (short_notice_of(report.cost), text) if text is not None else None


def cut_results(
    whole: Sequence[Message],
    shown: Sequence[Message],
    size_of: Callable[[str], int],
    bytes_of: Callable[[str], int | None] | None = None,
) -> Notice | None:
    """Return the notice of those results at the end of a history that the model does not get whole, None without any.

    `whole` is the history as it came in, `shown` as the model gets it. `bytes_of` returns the size of the whole result
    of which a view came in, None for other texts.
    """
    names = {call.get("id"): _name(call) for message in shown for call in calls_of(message)}
    cut: list[str] = []
    before = after = 0
    for old, new in zip(reversed(whole), reversed(shown), strict=False):
        if new.get("role") == "assistant":
            break
        text = text_of(new)
        size, most = (
            size_in_bytes(text),
            (bytes_of(text) if bytes_of is not None else None) or size_in_bytes(text_of(old)),
        )
        if new.get("role") == "tool" and most > size:
            tokens = size_of(text)
            after += tokens
            before += tokens * most // max(1, size)  # the whole may take too long to count
            cut.append(names.get(new.get("tool_call_id"), "a tool"))
    if not cut:
        return None
    tools = ", ".join(dict.fromkeys(reversed(cut)))
    text = f"Results of {tools} are too large to be shown whole: about {before:,} tokens became {after:,}."
    return Notice("results cut", text, before=before, after=after)


async def fitting_results(
    messages: Sequence[Message],
    counter: StepCounter,
    manager: AgentContextManager,
    view: Callable[[str, int], str | None] | None = None,
) -> list[Message] | None:
    """Return the conversation with the beginning and end of results that are too large; None where all stay whole.

    `view` returns a view of so many tokens of a result that can be read again, None for other results.
    """
    end = len(messages)
    while end and messages[end - 1].get("role") in ("user", *SYSTEM_ROLES):
        end -= 1
    first = end
    while first and messages[first - 1].get("role") == "tool":
        first -= 1
    results, after = messages[first:end], messages[end:]
    if not results or (prompt := await counter.prompt(messages)) < manager.budget.window // 2:
        return None
    emptied = [with_text(result, "") for result in results]
    rest = await counter.prompt(await smallest_of(Transcript.of([*messages[:first], *emptied, *after])))
    size_of = _ruler(counter, results, await counter.prompt(await smallest_of(Transcript.of(messages))) - rest)
    sizes = [size_of(text_of(result)) for result in results]
    if manager.before_tool_results(prompt, rest, sizes) != "too large":
        return None
    room = room_for_results(manager.budget, rest, now=prompt - sum(sizes))

    def shown(text: str, tokens: int) -> str | None:
        return view(text, tokens * counter.text(text) // max(1, size_of(text))) if view is not None else None

    log.info("Tool results of %d tokens are shortened to fit %d.", sum(sizes), room)
    fitting = [
        result
        if size <= share
        else with_text(result, _smaller(text_of(result), share, manager.budget.window, size_of, shown))
        for result, size, share in zip(results, sizes, shares(sizes, room), strict=True)
    ]
    return [*messages[:first], *fitting, *after]


def _ruler(counter: StepCounter, results: Sequence[Message], size: int) -> Callable[[str], int]:
    """Return a counter of bare texts that agrees with the size that these results have in a prompt.

    Where only the engine can count a prompt, bare texts are counted with the vocabulary of another model.
    """
    counted = sum(counter.text(text_of(result)) for result in results)
    return lambda text: ceil(counter.text(text) * size / max(1, counted))


def _smaller(
    text: str, share: int, window: int, size_of: Callable[[str], int], shown: Callable[[str, int], str | None]
) -> str:
    smaller = shown(text, share)
    return smaller if smaller is not None else shortened(text, share, window, size_of)


async def without_conversation(messages: Sequence[Message], counter: StepCounter) -> int:
    """Return the size of a prompt in which nothing was said yet."""
    return await counter.prompt([*filter(is_system, messages), NOTHING_ASKED])


async def has_room_for(
    tool: Mapping[str, Any], messages: Sequence[Message], counter: StepCounter, budget: Budget
) -> bool:
    """Tell whether one tool more leaves the conversation the room that it has below the trigger."""
    room = budget.trigger - budget.occupied(await without_conversation(messages, counter))
    return counter.text(as_json(tool)) * SHARE_OF_TOOL <= room


def freed_by(whole: Sequence[Message], shorter: Sequence[Message], size_of: Callable[[str], int]) -> int:
    """Return how many tokens shorter messages take less, each compared with its own."""
    pairs = zip(whole, shorter, strict=True)
    return sum(size_of(written(old)) - size_of(written(new)) for old, new in pairs if old is not new)


async def smallest_of(transcript: Transcript) -> list[Message]:
    """Return what no compaction can free; the event loop goes on while that is looked for in a long history."""
    return smallest(transcript) if is_short(transcript.messages) else await asyncio.to_thread(smallest, transcript)


async def _report(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget
) -> FixedCostReport:
    least = await smallest_of(Transcript.of(messages))
    size = await counter.prompt(least)
    return await asyncio.to_thread(fixed_cost_report, counter, shape, least, size, budget)  # which counts each tool


def fixed_cost_report(
    counter: StepCounter, shape: StepRequest, smallest: Sequence[Message], size: int, budget: Budget
) -> FixedCostReport:
    """Divide the `size` tokens of the smallest prompt among its parts.

    Messages are measured by their text and their calls; what the template puts around everything is spread over the
    tools, or counts as pinned where there are none.
    """
    messages = shape.with_instructions(smallest)
    system = sum(counter.text(text_of(message)) for message in messages if message.get("role") in SYSTEM_ROLES)
    spoken = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    pinned = sum(counter.text(text_of(message)) for message in spoken)
    pinned += sum(counter.text(as_json(call)) for message in spoken for call in calls_of(message))
    # A template may leave out some of a message, so that the texts are longer than the prompt.
    system = min(system, size)
    pinned = min(pinned, size - system)
    rest = size - system - pinned
    tools = _spread(rest, [(_name(tool), counter.text(as_json(tool))) for tool in shape.tools])
    sent = shape.request.tools
    own = len(shape.tools) - len(sent)
    cost = FixedCost(budget.window, budget.reserve(size), system, tools, pinned if tools else pinned + rest, own)
    slim = arrange_tools(sent, "slim")
    saves = sum(counter.text(as_json(tool)) for tool in sent) - sum(counter.text(as_json(tool)) for tool in slim)
    return FixedCostReport(cost, max(0, saves))


def _spread(tokens: int, parts: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Return the parts with sizes that add up to this many tokens, in the proportions they have."""
    whole = sum(size for _, size in parts)
    spread: list[tuple[str, int]] = []
    given = seen = 0
    for name, size in parts:
        seen += size
        share = tokens * seen // max(1, whole) - given
        given += share
        spread.append((name, share))
    return tuple(spread)


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name")) if isinstance(function, Mapping) else str(tool.get("type"))
