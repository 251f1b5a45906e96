"""Rendering in the form that template probes ask for: by an engine, or in this process as an engine does it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from demands_by_rendering import Render, demands_of

from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.tokens.templates.prompt import ChatPrompt, ChatRequest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from llama_server import LlamaServer


def render_of(template: Path) -> Render:
    """Return what renders with a template file as the engine would, in this process."""
    prompt = ChatPrompt(template.read_text(encoding="utf-8"), name=template.stem, bos_token="<s>", eos_token="</s>")

    def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        return prompt.text(ChatRequest(messages, tools))

    return render


async def demands_of_engine(engine: LlamaServer) -> TemplateDemands:
    """Find out what the engine's template demands, by letting the engine render."""
    loop = asyncio.get_running_loop()

    def render(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
        return asyncio.run_coroutine_threadsafe(rendered(engine, messages, tools), loop).result()

    return await asyncio.to_thread(demands_of, render)


async def rendered(
    engine: LlamaServer, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] = ()
) -> str:
    """Return the engine's prompt for messages and tools; ValueError where it refuses them."""
    return await engine.render({"messages": list(messages), **({"tools": list(tools)} if tools else {})})
