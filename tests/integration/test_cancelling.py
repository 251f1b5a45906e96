"""A person stops a running answer: what was said stands, the upstream is closed, and nothing is left behind."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, eventually, finish_of
from serving import Served, text_of

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
NAMED = {"X-Conversation-Id": "notes"}


async def cancel(served: Served, conversation: str = "notes", **body: Any) -> dict[str, Any]:
    """Stop the conversation and return the answer."""
    async with served.http.post(f"{served.url}/v1/conversations/{conversation}/cancel", json=body) as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 200, answer
        return answer


async def ask(served: Served, body: dict[str, Any]) -> tuple[str, str]:
    """Ask in the conversation, and return the text and the finish_reason."""
    async with served.http.post(served.chat_url, json=body, headers=NAMED) as response:
        received = await response.read()
        assert response.status == 200, received
        assert response.headers["X-Conversation-Id"].startswith("conv_")
    if body.get("stream"):
        chunks = chunks_of(received)
        return text_of(chunks), finish_of(chunks)
    [choice] = json.loads(received)["choices"]
    return choice["message"]["content"], choice["finish_reason"]


@MODELS
@STREAMED
async def test_while_text_streams(tmp_path: Path, model: str, stream: bool) -> None:
    """The client gets what was said until then, and a normal end."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 4000)
        asking = asyncio.create_task(ask(served, chat_body(model=model, stream=stream)))
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens > 3, "nothing is said")
        answer = await cancel(served)
        assert (answer["cancelled"], answer["status"]) == (1, "idle")
        text, finish = await asking
        assert text.startswith("word word")
        assert finish == "stop"
        [disconnect] = studio.disconnects
        assert disconnect.phase == "streaming"
        assert (await served.chat("writer"))["choices"]
