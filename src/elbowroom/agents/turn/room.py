"""Explains to a person what takes the room of a window."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.prompt import StepPrompt
from elbowroom.agents.tools import arrange_tools
from elbowroom.context.compaction import smallest
from elbowroom.context.fixed_cost import FixedCost, notice_of, refusal_of, short_notice_of, too_small_for
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
from elbowroom.settings.model import CompactionSettings
from elbowroom.tokens.counter import media_in

log = logging.getLogger(__name__)
MOST_NAMED: Final = 3
"""Files that an error names."""


async def overflow_error(prompt: StepPrompt, chosen: CompactionSettings) -> ContextOverflow:
    """Return the error for a prompt that cannot fit, with the numbers and a remedy."""
    switched_off = "" if prompt.manager.auto else "compaction.auto" if chosen.enabled else "compaction.enabled"
    messages, window = prompt.manager.history.messages, prompt.manager.budget.window
    tokens, cost = await prompt.most(messages), await _cost_of(prompt)
    if cost.system + cost.all_tools >= window:
        too_small = WindowTooSmall(too_small_for(cost), window=window, prompt_tokens=tokens)
        too_small.param = "tools" if cost.all_tools > cost.system else "messages"
        return too_small
    is_final = cost.prompt >= window
    if is_final:
        cost = replace(cost, material=", ".join(names_of(smallest(Transcript.of(messages)))[:MOST_NAMED]))
        message = refusal_of(cost)
    else:
        remedy = f", let the history be compacted ({switched_off})" if switched_off else ""
        message = (
            f"Load the model with a larger context length{remedy}, or begin a new conversation. This model's maximum "
            f"context length is {window} tokens, and the request needs {tokens}."
        )
    overflow = ContextOverflow(message, window=window, prompt_tokens=tokens)
    overflow.is_final = is_final and not switched_off
    return overflow


async def tell_that_it_is_tight(prompt: StepPrompt, tell: Sink) -> None:
    """Tell the person that little room is left for the conversation, and what takes it but for their own words."""
    cost = await _cost_of(prompt)
    if cost.total > 2 * cost.pinned and (text := notice_of(cost)) is not None:
        log.warning("%s: %s", prompt.info.id, text)
        await tell([Notice("tight", text), Notice("tight", short_notice_of(cost))])


async def _cost_of(prompt: StepPrompt) -> FixedCost:
    least = await asyncio.to_thread(smallest, Transcript.of(prompt.manager.history.messages))
    size = await prompt.most(least)
    return await asyncio.to_thread(fixed_cost_of, prompt, least, size)  # which counts each tool


def fixed_cost_of(prompt: StepPrompt, least: Sequence[Message], size: int) -> FixedCost:
    """Divide the `size` tokens of the smallest prompt among its parts.

    Messages are measured by their text and their calls; what the template puts around everything is spread over the
    tools, or counts as pinned where there are none. What has no text, such as a picture, takes what is left beside the
    text of the tools.
    """
    shape, text_size, budget = prompt.shape, prompt.text, prompt.manager.budget
    messages = shape.with_instructions(least)
    system = sum(text_size(text_of(message)) for message in messages if message.get("role") in SYSTEM_ROLES)
    spoken = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    pinned = sum(text_size(text_of(message)) for message in spoken)
    pinned += sum(text_size(as_json(call)) for message in spoken for call in calls_of(message))
    described = [(_name(tool), text_size(as_json(tool))) for tool in shape.tools]
    if media_in(spoken):
        pinned = max(pinned, size - system - sum(tokens for _, tokens in described))
    # A template may leave out some of a message, so that the texts are longer than the prompt.
    system = min(system, size)
    pinned = min(pinned, size - system)
    rest = size - system - pinned
    tools = _spread(rest, described)
    sent = shape.request.tools
    own = len(shape.tools) - len(sent)
    slim = arrange_tools(sent, "slim")
    saves = sum(text_size(as_json(tool)) for tool in sent) - sum(text_size(as_json(tool)) for tool in slim)
    pinned = pinned if tools else pinned + rest
    return FixedCost(budget.window, budget.reserve(size), system, tools, pinned, own, max(0, saves))


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
