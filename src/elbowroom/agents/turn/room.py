"""The second check: tool results that have just come in stand whole in the prompt where they fit, else in part."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

from elbowroom.agents.prompt import StepCounter, StepRequest
from elbowroom.agents.tools import arrange_tools
from elbowroom.context.budget import Budget, FixedCost, notice_of, refusal_of
from elbowroom.context.compaction import smallest
from elbowroom.context.manager import AgentContextManager, room_for_results, shares, shortened
from elbowroom.context.transcript import SYSTEM_ROLES, Message, as_json, calls_of, text_of, with_text
from elbowroom.errors import ContextOverflow

log = logging.getLogger(__name__)


async def fitting_results(
    messages: Sequence[Message],
    counter: StepCounter,
    manager: AgentContextManager,
    view: Callable[[str, int], str | None] | None = None,
) -> list[Message] | None:
    """Return the conversation with beginning and end of results that are too large; None where all stay whole.

    `view` gives for a result that can be read again what is shown of it in so many tokens, None for others.
    """
    end = len(messages)
    while end and messages[end - 1].get("role") in ("user", *SYSTEM_ROLES):
        end -= 1
    first = end
    while first and messages[first - 1].get("role") == "tool":
        first -= 1
    results, behind = messages[first:end], messages[end:]
    if not results or (prompt := await counter.prompt(messages)) < manager.budget.window // 2:
        return None
    emptied = [with_text(result, "") for result in results]
    rest = await counter.prompt(smallest([*messages[:first], *emptied, *behind]))
    size_of = _ruler(counter, results, await counter.prompt(smallest(messages)) - rest)
    sizes = [size_of(text_of(result)) for result in results]
    if manager.before_tool_results(prompt, rest, sizes) != "too large":
        return None
    room = room_for_results(manager.budget, rest)

    def shown(text: str, tokens: int) -> str | None:
        return view(text, tokens * counter.text(text) // max(1, size_of(text))) if view is not None else None

    log.info("Tool results of %d tokens are shortened to fit %d.", sum(sizes), room)
    fitting = [
        result
        if size <= share
        else with_text(result, _smaller(text_of(result), share, manager.budget.window, size_of, shown))
        for result, size, share in zip(results, sizes, shares(sizes, room), strict=True)
    ]
    return [*messages[:first], *fitting, *behind]


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


@dataclass(frozen=True, slots=True)
class FixedCostReport:
    """The fixed cost, and how many tokens shorter descriptions of the client's tools would save."""

    cost: FixedCost
    slim_saves: int


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
    cost = FixedCost(budget.window, budget.reserve(size), system, tools, pinned if tools else pinned + rest)
    sent = shape.request.tools
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


async def overflow_error(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget, *, auto: bool
) -> ContextOverflow:
    """Return the error for a prompt that cannot fit, with the numbers and what the person can do."""
    prompt = await counter.prompt(messages)
    report = await _report(messages, shape, counter, budget)
    if report.cost.prompt >= budget.window:
        message = refusal_of(report.cost, slim_saves=report.slim_saves)
    else:
        remedy = "" if auto else ", let the history be compacted (compaction.auto)"
        message = (
            f"This model's maximum context length is {budget.window} tokens. The request needs {prompt}. Load the "
            f"model with a larger context length{remedy}, or begin a new conversation."
        )
    return ContextOverflow(message, window=budget.window, prompt_tokens=prompt)


async def tight_notice(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget
) -> str | None:
    """Return what takes most of a tight window, None where it is the person's own words."""
    report = await _report(messages, shape, counter, budget)
    if report.cost.total <= 2 * report.cost.pinned:
        return None
    return notice_of(report.cost, slim_saves=report.slim_saves)


async def _report(
    messages: Sequence[Message], shape: StepRequest, counter: StepCounter, budget: Budget
) -> FixedCostReport:
    least = smallest(messages)
    return fixed_cost_report(counter, shape, least, await counter.prompt(least), budget)
