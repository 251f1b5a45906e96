"""Four slots that share one window, as LM Studio's do: with elbowroom in front no chat takes the room of another."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import pytest
from engine_as_lmstudio import engine_as_lmstudio
from llama_server import Options
from long_conversations import conversation
from serving import serve, settings_for

from elbowroom.tokens.files.loading import load_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from llama_server import LlamaServer

WINDOW: Final = 4096
CHATS: Final = 4
ANSWER: Final[dict[str, Any]] = {"max_tokens": 900, "ignore_eos": True, "temperature": 0, "seed": 7}


def bodies(engine: LlamaServer, model: str) -> list[dict[str, Any]]:
    """Return chats that fit the window alone, and three of which overflow it with their answers."""
    count = load_model(engine.model).text.tokenizer.count
    chats = []
    for seed in range(CHATS):
        told = conversation("plain", 6, WINDOW, count, seed)
        messages = [{"role": "system", "content": f"Chat {seed}. {told.system}"}]
        for exchange in told.exchanges:
            messages += [
                {"role": "user", "content": exchange.user},
                {"role": "assistant", "content": exchange.reply},
            ]
        chats.append({"model": model, "messages": messages[:-1], **ANSWER})
    return chats


async def asked_at_once(url: str, chats: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    """Ask all of them at the same moment; return status and answer of each."""
    async with aiohttp.ClientSession() as http:

        async def ask(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
            async with http.post(f"{url}/v1/chat/completions", json=body) as response:
                return response.status, await response.json()

        return await asyncio.gather(*(ask(body) for body in chats))


@pytest.mark.slow
async def test_chats_that_overflow_the_engine_together(
    tmp_path: Path, start_engine: Callable[[Options], LlamaServer]
) -> None:
    """Sent directly some of them fail or are cut; through elbowroom each gets all the words that it asked for."""
    engine = start_engine(Options(context_length=WINDOW, slots=CHATS, shared_pool=True))
    direct = await asked_at_once(engine.base_url, bodies(engine, "tiny"))
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    async with (
        engine_as_lmstudio(engine) as upstream,
        serve(tmp_path, settings_for(upstream.base_url, provider=files)) as served,
    ):
        through = await asked_at_once(served.url, bodies(engine, "lmstudio/tiny"))
        assert len(upstream.chats()) >= CHATS
    assert {status for status, _ in direct} != {200}
    count = load_model(engine.model).text.tokenizer.count
    for status, answer in through:
        assert status == 200, answer
        [choice] = answer["choices"]
        assert choice["finish_reason"] == "length"
        assert count(choice["message"]["content"]) > 0.8 * ANSWER["max_tokens"]
