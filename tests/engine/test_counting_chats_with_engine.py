"""Chats through elbowroom to the real engine: what it reports is what was counted, and nothing is warned of."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from engine_as_lmstudio import engine_as_lmstudio
from llama_server import LlamaServer
from sample_chat import TOOL_CHAT
from serving import serve, settings_for
from spread_variants import spread

from elbowroom.providers.base import ModelInfo
from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.tokens.count import TokenCount

AGENT = '[[agents]]\nid = "writer"\nmodel = "tiny"\ninstructions = "You help with notes."\n'
CHATS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [{"role": "user", "content": "Hello"}]},
    "tools, calls and results": TOOL_CHAT,
    "long": {"messages": [{"role": ("user", "assistant")[i % 2], "content": f"{i} " * i} for i in range(61)]},
}


@pytest.mark.slow
@pytest.mark.parametrize(("chat", "model", "stream"), spread(CHATS, ["lmstudio/tiny", "writer"], [True, False]))
async def test_usage_is_what_was_counted(
    engine: LlamaServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    chat: str,
    model: str,
    *,
    stream: bool,
) -> None:
    """The count of the model's file is the engine's own, so that no alarm is ever raised for a prompt that fits."""
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    body = {**CHATS[chat], "model": model, "max_tokens": 4, "ignore_eos": True}
    async with engine_as_lmstudio(engine) as upstream:
        async with serve(tmp_path, settings_for(upstream.base_url, provider=files, agents=AGENT)) as served:
            async with served.http.post(f"{served.chat_url}/input_tokens", json=body) as response:
                counted = (await response.json())["input_tokens"]
            async with served.http.post(served.chat_url, json={**body, "stream": stream}) as response:
                assert response.status == 200
                await response.read()
        [sent] = upstream.chats()
    assert counted == await engine.count(sent)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_the_engines_own_routes(engine: LlamaServer) -> None:
    """A chat and a bare text, counted over the routes that the engine really has."""
    async with aiohttp.ClientSession() as http:
        counter = await OpenAICompatible("openai", engine.base_url, http).counter(ModelInfo("tiny", "openai", "tiny"))
        text = "Grüße, 你好 <|im_end|>"
        plain = await engine.post("/tokenize", {"content": text})
        assert await counter.count_text(text) == TokenCount(len(plain[1]["tokens"]), "engine")
        chat = await counter.count_chat(TOOL_CHAT["messages"], TOOL_CHAT["tools"])
        assert chat == TokenCount(await engine.count(TOOL_CHAT), "engine")
        with_arguments = await counter.count_chat(TOOL_CHAT["messages"], (), {"enable_thinking": False})
        assert with_arguments.method == "engine"
