"""The real engine with LM Studio's face and a script's words: it reads every prompt, the script answers.

A tiny model cannot work; so the engine says what it read of a prompt and what it had in its cache, and its one token is
thrown away.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self

from aiohttp import web
from engine_as_lmstudio import row_of
from prefix_reuse import Reading, reading_of
from scripted_pruner import is_prune_order, text_of

from elbowroom.context.outputs import MARK
from elbowroom.demo import Text, ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_server import LlamaServer

    from elbowroom.demo import Script

Body = dict[str, Any]
ONE_TOKEN: Final[Body] = {"stream": False, "stream_options": None, "max_tokens": 1, "response_format": None}


@dataclass(frozen=True, slots=True)
class Read:
    """A prompt that the engine has read: how much of it was cached, and whether it was an order of a compaction.

    `trimmed` is how many results of tools stood shortened in it.
    """

    reading: Reading
    is_order: bool
    trimmed: int


@dataclass(slots=True)
class ScriptedEngine:
    """Listens on 127.0.0.1; `reads` are the prompts that were read, `refused` the answers of the engine that say no."""

    engine: LlamaServer
    model: Callable[[Body], Script]
    reads: list[Read] = field(default_factory=list)
    refused: list[Any] = field(default_factory=list)
    base_url: str = ""
    _runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=256 * 1024 * 1024)
        app.router.add_get("/api/v1/models", self._models)
        app.router.add_post("/v1/chat/completions", self._chat)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.base_url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"models": [row_of(self.engine)]})

    async def _chat(self, request: web.Request) -> web.Response:
        body = await request.json()
        status, answer = await self.engine.post("/v1/chat/completions", {**body, **ONE_TOKEN})
        if status != 200:
            self.refused.append(answer)
            return web.json_response(answer, status=status)
        reading = reading_of(json.dumps(answer).encode())
        trimmed = sum(text_of(message).startswith(MARK) for message in body["messages"])
        self.reads.append(Read(reading, is_prune_order(body), trimmed))
        said = message_of(self.model(body))
        reason = "tool_calls" if said.get("tool_calls") else "stop"
        usage = {"prompt_tokens": reading.prompt, "completion_tokens": 1, "total_tokens": reading.prompt + 1}
        if body.get("stream"):
            chunks: list[Body] = [
                {"choices": [{"index": 0, "delta": said, "finish_reason": reason}]},
                {"choices": [], "usage": usage},
            ]
            frames = "".join(f"data: {json.dumps(HEAD | chunk)}\n\n" for chunk in chunks)
            return web.Response(text=f"{frames}data: [DONE]\n\n", content_type="text/event-stream")
        choice = {"index": 0, "message": said, "finish_reason": reason}
        return web.json_response({**HEAD, "choices": [choice], "usage": usage})


HEAD: Final[Body] = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "created": int(time.time()),
    "model": "tiny",
}


def message_of(script: Script) -> Body:
    """Return what a script says as a message of the assistant, which is also its delta."""
    calls = [
        {
            "index": number,
            "id": f"call{time.monotonic_ns()}",
            "type": "function",
            "function": {"name": step.name, "arguments": json.dumps(step.arguments)},
        }
        for number, step in enumerate(step for step in script.steps if isinstance(step, ToolCall))
    ]
    text = "".join(step.text for step in script.steps if isinstance(step, Text))
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})
