"""The conversation's own model prunes: the real engine has read the conversation already, and takes what is sent."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from engine_as_lmstudio import engine_as_lmstudio
from random_histories import TOOLS, some_histories
from shared_state import bare_shared

from elbowroom.agents.prompt.counters import HistoryCounters
from elbowroom.agents.turn.pruner import Conversation, PruningAgent
from elbowroom.context.effects import PrunerFailed
from elbowroom.context.templates.repair import repair
from elbowroom.errors import ContextOverflow, UpstreamRejected
from elbowroom.providers.lmstudio.provider import LMStudio
from elbowroom.tokens.file_counter import CountingTools

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from llama_server import LlamaServer

ORDER = {"role": "user", "content": "Summarise the above as JSON."}
TURN_LENGTH = 40  # words
CONVERSATION = [
    {"role": ("user", "assistant")[place % 2], "content": f"Message {place}: {'river stone ' * (TURN_LENGTH // 2)}"}
    for place in range(21)
]


@asynccontextmanager
async def provider_of(engine: LlamaServer) -> AsyncIterator[LMStudio]:
    """Run a provider that knows the engine's model file."""
    tools = CountingTools()
    async with engine_as_lmstudio(engine) as upstream, aiohttp.ClientSession() as http:
        files = {engine.options.model_id: str(engine.model)}
        provider = LMStudio("lmstudio", upstream.base_url, http, tools=tools, home="/no", model_files=files)
        try:
            yield provider
        finally:
            await provider.aclose()
            await tools.aclose()


async def pruner_for(provider: LMStudio, body: Mapping[str, Any]) -> PruningAgent:
    """Return the conversation's own model as its pruning agent."""
    info = await provider.ready("tiny")
    assert info.loaded_context is not None
    history = await HistoryCounters().of(provider, info, body)
    return PruningAgent(
        provider,
        info,
        history,
        bare_shared(),
        known_window=info.loaded_context,
        conversation=Conversation(body, body["messages"], list),
    )


async def heard(pruner: PruningAgent, messages: list[Any]) -> None:
    """Let the tiny model say something, whatever it is; only the engine may not refuse to listen."""
    try:
        await pruner.ask(messages, 8)
    except PrunerFailed as failure:
        if isinstance(failure.__cause__, UpstreamRejected | ContextOverflow):
            raise failure.__cause__ from None


@pytest.mark.parametrize("tools", [(), TOOLS], ids=["plain", "tools"])
async def test_prefix_is_not_read_again(engine: LlamaServer, tools: list[Any]) -> None:
    """Of the order's prompt the engine reads little more than the order itself: the rest is in its cache."""
    body = {"model": "tiny", "messages": CONVERSATION, **({"tools": list(tools)} if tools else {}), "seed": 7}
    status, answer = await engine.post("/v1/chat/completions", {**body, "max_tokens": 1})
    assert status == 200
    read = answer["usage"]["prompt_tokens"]
    async with provider_of(engine) as provider:
        pruner = await pruner_for(provider, body)
        await heard(pruner, [*CONVERSATION, ORDER])
    [used] = pruner.used
    assert read > 1000
    assert used.cache_read > read - 50
    conversation, order = engine.prompts()
    opening = "<|im_start|>assistant\n"
    assert order.startswith(conversation.removesuffix(opening))


@pytest.mark.slow
async def test_any_history_is_taken(engine: LlamaServer) -> None:
    """Random histories, with the order behind them, are never refused, and counted to the token."""
    async with provider_of(engine) as provider:
        for history in filter(None, some_histories(8)):
            messages = repair(history)
            body = {"model": "tiny", "messages": messages, "tools": TOOLS}
            pruner = await pruner_for(provider, body)
            counter = await HistoryCounters().of(provider, await provider.ready("tiny"), body)
            counted = await counter.prompt([*messages, ORDER])
            await heard(pruner, [*messages, ORDER])
            assert len(await engine.tokenize(engine.prompts()[-1])) == counted
