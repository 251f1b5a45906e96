"""Long conversations with the real engine: whatever a model of random weights answers, every request fits.

Its answers to the orders of a compaction are noise, so that the rungs below carry the conversation. Run with
`--log-cli-level=INFO` to see how often what happened.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from engine_as_lmstudio import engine_as_lmstudio
from llama_server import LlamaServer, Options
from long_conversations import KINDS, Conversation, Kind, conversation
from request_checks import assert_paired, assert_pinned, is_shortened
from scripted_pruner import is_prune_order
from serving import serve, settings_for
from stateless_client import StatelessClient, openai_client

from elbowroom.tokens.files.loading import load_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger(__name__)
WINDOW = 4096
TURNS: dict[Kind, int] = {"plain": 100, "tools": 30, "code": 60, "japanese": 60}
SHORT_REPLY: dict[str, Any] = {"max_tokens": 8, "extra_body": {"ignore_eos": True}}


async def assert_fits_engine(engine: LlamaServer, body: dict[str, Any]) -> None:
    """Fail where a request could outgrow the window by the engine's own count; its template must take it, too."""
    counted = await engine.count(body)
    assert counted + body["max_tokens"] <= WINDOW


async def talk_through(folder: Path, engine: LlamaServer, talk: Conversation) -> dict[str, int]:
    """Have the whole conversation, check every request and reply, and return how often what happened."""
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    orders = compactions = seen = 0
    async with (
        engine_as_lmstudio(engine) as upstream,
        serve(folder, settings_for(upstream.base_url, provider=files)) as served,
        openai_client(served.url) as api,
    ):
        client = StatelessClient(api, "lmstudio/tiny", talk, SHORT_REPLY)
        for exchange in talk.exchanges:
            before = list(client.history)
            client.take_in(exchange)
            reply = await client.ask()
            assert reply.text
            assert reply.finish_reason == "length"
            client.history.append({"role": "assistant", "content": reply.text})
            for body in (sent := upstream.chats())[seen:]:
                await assert_fits_engine(engine, body)
                assert_paired(body["messages"])
                if is_prune_order(body):
                    orders += 1
                else:
                    assert_pinned(body["messages"], talk.system, exchange.user)
                    compactions += is_shortened(body["messages"], before)
            seen = len(sent)
    return {"turns": len(talk.exchanges), "requests": seen, "compactions": compactions, "orders": orders}


def counter_of(engine: LlamaServer) -> Callable[[str], int]:
    """Return what counts texts with the engine's own vocabulary."""
    return load_model(engine.model).text.tokenizer.count


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
async def test_long_conversation(
    tmp_path: Path, start_engine: Callable[[Options], LlamaServer], kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    """No request is too large for the engine or refused by its template, and every reply arrives."""
    engine = start_engine(Options(context_length=WINDOW))
    talk = conversation(kind, TURNS[kind], WINDOW, counter_of(engine))
    figures = await talk_through(tmp_path, engine, talk)
    log.info("%s, window %d: %s", kind, WINDOW, figures)
    assert figures["compactions"] >= 10
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not [record for record in warnings if record.name.startswith("elbowroom")]
