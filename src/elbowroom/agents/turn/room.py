"""Explains to a person what takes the room of a window."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.prompt import StepCounter, StepRequest, is_short
from elbowroom.agents.tools import arrange_tools
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import smallest
from elbowroom.context.fitting import NOTHING_ASKED
from elbowroom.context.fixed_cost import FixedCost, notice_of, refusal_of, short_notice_of, too_small_for
from elbowroom.context.ledger import is_system
from elbowroom.context.outputs import names_of
from elbowroom.context.transcript import (
    SYSTEM_ROLES,
    Message,
    Transcript,
    as_json,
    calls_of,
    text_of,
)
from elbowroom.errors import ContextOverflow, WindowTooSmall
from elbowroom.tokens.counter import media_in

log = logging.getLogger(__name__)
SHARE_OF_TOOL: Final = 10
"""One tool more takes at most one part in so many of the room for the conversation."""
MOST_NAMED: Final = 3
"""Files that an error names."""


@dataclass(frozen=True, slots=True)
class FixedCostReport:
    """The fixed cost, and how many tokens shorter descriptions of the client's tools would save."""

    cost: FixedCost
    slim_saves: int


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


async def without_conversation(messages: Sequence[Message], counter: StepCounter) -> int:
    """Return the size of a prompt in which nothing was said yet."""
    return await counter.prompt([*filter(is_system, messages), NOTHING_ASKED])


async def has_room_for(
    tool: Mapping[str, Any], messages: Sequence[Message], counter: StepCounter, budget: Budget
) -> bool:
    """Tell whether one tool more leaves the conversation the room that it has below the trigger."""
    room = budget.trigger - budget.occupied(await without_conversation(messages, counter))
    return counter.text(as_json(tool)) * SHARE_OF_TOOL <= room


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
    tools, or counts as pinned where there are none. What has no text, such as a picture, takes what is left beside the
    text of the tools.
    """
    messages = shape.with_instructions(smallest)
    system = sum(counter.text(text_of(message)) for message in messages if message.get("role") in SYSTEM_ROLES)
    spoken = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    pinned = sum(counter.text(text_of(message)) for message in spoken)
    pinned += sum(counter.text(as_json(call)) for message in spoken for call in calls_of(message))
    described = [(_name(tool), counter.text(as_json(tool))) for tool in shape.tools]
    if media_in(spoken):
        pinned = max(pinned, size - system - sum(tokens for _, tokens in described))
    # A template may leave out some of a message, so that the texts are longer than the prompt.
    system = min(system, size)
    pinned = min(pinned, size - system)
    rest = size - system - pinned
    tools = _spread(rest, described)
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
