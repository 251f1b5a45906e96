"""Counts a chat request as it would be sent, or compacts its history, without answering it."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elbowroom.agents.answer import Sink, tell_nobody
from elbowroom.agents.catalog import Target
from elbowroom.agents.offered import offered_unasked
from elbowroom.agents.prompt import (
    HistoryCounters,
    fitting_tools,
    prompt_size,
    step_body,
    with_instructions,
)
from elbowroom.agents.request import ChatRequest, parse_chat_request
from elbowroom.agents.turn import Asking, RunSettings, note_fill
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.context.conversation import ContextFill
from elbowroom.context.ledger import Chain
from elbowroom.context.seam import without_notices
from elbowroom.errors import ModelNotFound, RequestError
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio import find_model
from elbowroom.tokens.count import TokenCount


@dataclass(frozen=True, slots=True)
class SizedRequest:
    """The size of a request's prompt, and the window of its model; None where the model is not loaded."""

    count: TokenCount
    window: int | None


async def count_request(
    target: Target,
    request: ChatRequest,
    own_tools: Sequence[dict[str, Any]] = (),
    histories: HistoryCounters | None = None,
    *,
    fits_tools: bool = False,
) -> SizedRequest:
    """Count the prompt of a request as it would be sent, the agent's instructions and `own_tools` included.

    `histories` are those of the server, which know templates already. With `fits_tools` the client's tools are told in
    short where they leave no room. Raises ModelNotFound; loads no model.
    """
    info = await _info_of(target)
    agent = target.agent
    if fits_tools and request.tools and target.provider.manages_context and info.loaded_context is not None:
        instructions = agent.instructions if agent else None
        request, _ = await fitting_tools(target, info, info.loaded_context, request, instructions, own_tools)
    tools = [*own_tools, *request.tools]
    messages = with_instructions(without_notices(request.messages), agent.instructions if agent else None)
    body = step_body(
        request, target.model, agent.sampling.as_request_fields() if agent else {}, messages, tools, step=1
    )
    if target.provider.manages_context:
        history = await (histories or HistoryCounters()).of(target.provider, info, body)
        body["messages"] = await history.normalised(messages)
    sized = await prompt_size(target.provider, info, body)
    return SizedRequest(sized.count, info.loaded_context)


async def count_offered(target: Target, request: ChatRequest, settings: RunSettings) -> SizedRequest:
    """Count the prompt of a request as it would be sent, with all that its model can call."""
    offered = await offered_unasked(target, request, settings)
    choice = target.agent.client_tools if target.agent else settings.client_tools
    histories = settings.shared.histories
    return await count_request(target, offered.request, offered.specs, histories, fits_tools=choice == "auto")


async def count_input(target: Target, text: str, settings: RunSettings) -> SizedRequest:
    """Count the content of a file: a chat request, a list of messages, or else a bare text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value and all(isinstance(item, dict) and "role" in item for item in value):
        value = {"messages": value}
    if isinstance(value, dict) and "messages" in value:
        return await count_offered(target, parse_chat_request({**value, "model": target.name}), settings)
    info = await _info_of(target)
    counter = await target.provider.counter(info)
    return SizedRequest(await counter.count_text(text), info.loaded_context)


async def _info_of(target: Target) -> ModelInfo:
    if not target.provider.manages_context:
        return await target.provider.ready(target.model)
    models = await target.provider.models()
    if info := find_model(models, target.model):
        return info
    there = ", ".join(info.id for info in models) or "none"
    raise ModelNotFound(f"The provider {target.provider.id!r} has no model {target.model!r}. It has: {there}.")


@dataclass(frozen=True, slots=True)
class CompactedRequest:
    """A conversation after a compaction by hand; sizes in tokens.

    `rung` says how it was compacted: by the plan of the pruning agent, by its second attempt, or by code alone. It is
    None where the conversation stays as the client sent it, or as an earlier compaction left it.
    """

    messages: tuple[Mapping[str, Any], ...]
    before: int
    after: int
    rung: str | None
    seconds: float


async def compact_request(
    target: Target,
    request: ChatRequest,
    settings: RunSettings,
    sink: Sink = tell_nobody,
    shown: ContextFill | None = None,
) -> CompactedRequest:
    """Return the request's history, compacted; the sink gets notices, and `Compacted` where the request asks for it.

    What cannot be made shorter is handed out as it is. `shown` is how full the window was, where the request lacks
    what is in it besides, such as tools of the client. Raises RequestError where nothing is ever compacted.
    """
    check_compacts(target, settings)
    began = time.monotonic()
    settings = replace(settings, live=await settings.shared.recording.found(target, request) or settings.live)
    if settings.live is not None:
        await settings.shared.background.end(settings.live.conversation)  # this compaction takes its place
    offered = await offered_unasked(target, request, settings)
    said = without_notices(offered.request.messages)
    chain = await asyncio.to_thread(Chain.of, request.caller.keeps_as, target.name, said)  # of thousands takes long
    asking = Asking(
        target, offered.request, sink, settings, None, offered.keeper, offered.recaller, chain, offered.search
    )
    fit = await asking.fitted(target.agent.instructions if target.agent else None, offered.specs)
    manager = fit.prompt.manager
    messages = manager.history.messages
    before, outcome = await fit.run(fit.planner.by_hand(fit.recall.begun_with()))
    seconds = time.monotonic() - began
    await note_fill(fit.prompt, settings, max(0, shown.tokens - before) if shown is not None else 0)
    if isinstance(outcome, Cannot):
        return CompactedRequest(tuple(messages), before, before, None, seconds)
    left = outcome.messages if isinstance(outcome, Compaction) else tuple(manager.history.messages)
    return CompactedRequest(left, outcome.before, outcome.after, outcome.rung, seconds)


def check_compacts(target: Target, settings: RunSettings) -> None:
    """Raise RequestError where nothing of this target's conversations is ever compacted."""
    if not settings.compaction.enabled:
        raise RequestError("Compaction is switched off: set compaction.enabled = true to use it.")
    check_managed(target)


def check_managed(target: Target) -> None:
    """Raise RequestError where this target's provider is passed through as it is."""
    if not target.provider.manages_context:
        raise RequestError(
            f"The provider {target.provider.id!r} is passed through as it is: set manage_context = true to have its "
            "conversations compacted.",
            param="model",
        )
