"""What a real engine reads for a memory flush: the answer and the order, and nothing that it has read before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
from engine_as_lmstudio import engine_as_lmstudio
from flushes import begins_flush
from long_conversations import Kind, conversation
from prefix_reuse import reading_of
from serving import serve, settings_for
from stateless_client import StatelessClient, openai_client
from waiting import until

from elbowroom.agents.turn.flush import ORDER
from elbowroom.server.state import Timing
from elbowroom.tokens.files.loading import load_model

if TYPE_CHECKING:
    from pathlib import Path

    from llama_server import LlamaServer

AGENT: Final = (
    '[[agents]]\nid = "purser"\ninstructions = "You are the purser."\nmodel = "tiny"\n'
    'tools = ["save_memory", "search_memory"]\n[memory]\nenabled = true\n'
)
SHARE: Final = 0.45
"""How much of the window the messages take: with the tools past the threshold of the flush, and below the trigger."""
AROUND: Final = 24
"""Tokens that the template puts around two messages and the opening of an answer."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", [pytest.param("plain", marks=pytest.mark.long), "tools"])
async def test_the_engine_reads_only_the_order(tmp_path: Path, engine: LlamaServer, kind: Kind) -> None:
    """The whole prompt of the turn before is cached, with the tools and the memories in it."""
    window = engine.options.context_length
    count = load_model(engine.model).text.tokenizer.count
    talk = conversation(kind, 200, window, count)
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    async with engine_as_lmstudio(engine) as upstream:
        settings = settings_for(upstream.base_url, agents=AGENT, provider=files)
        async with serve(tmp_path, settings, timing=Timing(quiet=0.02)) as served, openai_client(served.url) as api:
            client = StatelessClient(api, "purser", talk, {"max_tokens": 12, "temperature": 0, "seed": 7})
            for exchange in talk.exchanges:
                client.take_in(exchange)
                if count(str(client.history)) > SHARE * window:
                    break
                client.history.append({"role": "assistant", "content": exchange.reply})
            reply = await client.ask()
            await until(lambda: sum(b"[DONE]" in request.answer for request in upstream.requests) > 1)
    turn, flush, *_ = [request for request in upstream.requests if request.is_chat]
    assert not begins_flush(turn.json())
    assert begins_flush(flush.json())
    before, read = reading_of(bytes(turn.answer)), reading_of(bytes(flush.answer))
    assert before.prompt > window // 3
    assert read.cached >= before.prompt
    assert read.prompt - read.cached <= count(reply.text) + count(ORDER["content"]) + AROUND
