"""Counts a chat request as it would be sent, for those who only want to know."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt_size import prompt_size
from elbowroom.agents.request import ChatRequest, parse_chat_request
from elbowroom.agents.request_body import step_body, with_instructions
from elbowroom.errors import ModelNotFound
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio_models import find_model
from elbowroom.tokens.count import TokenCount


@dataclass(frozen=True, slots=True)
class SizedRequest:
    """The size of a request's prompt, and the window of the loaded model; None where it is not loaded."""

    count: TokenCount
    window: int | None


async def count_request(target: Target, request: ChatRequest, own_tools: Sequence[dict[str, Any]] = ()) -> SizedRequest:
    """Count the prompt of a request, the agent's instructions and `own_tools` included.

    Raises ModelNotFound; loads no model.
    """
    info = await _info_of(target)
    instructions = target.agent.instructions if target.agent else None
    body = step_body(
        request,
        target.model,
        {},
        with_instructions(request.messages, instructions),
        [*own_tools, *request.tools],
        step=1,
    )
    sized = await prompt_size(target.provider, info, body)
    return SizedRequest(sized.count, info.loaded_context)


async def count_input(target: Target, text: str) -> SizedRequest:
    """Count what a person has in a file: a chat request, a list of messages, or else a bare text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list) and value and all(isinstance(item, dict) and "role" in item for item in value):
        value = {"messages": value}
    if isinstance(value, dict) and "messages" in value:
        return await count_request(target, parse_chat_request({**value, "model": target.name}))
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
