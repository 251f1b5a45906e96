"""Chats through elbowroom to a simulated LM Studio: the pair of them, requests over raw bytes, patience."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import ClientResponse
from own_tools import Given
from serving import Served, parse_frames, serve, settings_for, text_of

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.demo.script import ScriptQueue
from elbowroom.server.state import Timing

MODEL = "qwen2.5-7b-instruct"
RAW_MODEL = f"lmstudio/{MODEL}"
AGENT = f'[[agents]]\nid = "writer"\nname = "The Writer"\ninstructions = "You help with notes."\nmodel = "{MODEL}"\n'
AGENT_WITHOUT_CACHE = f"{AGENT}tool_output = {{ enabled = false }}\n"
"""One that cannot read results of its tools again, which are then left as they are, as far as they fit."""
READERS = ["tool_output_cache", "tool_output_cache_grep"]
"""What every other agent with tools of its own has besides these."""
Message = dict[str, Any]


@asynccontextmanager
async def elbowroom_with_studio(
    folder: Path,
    *,
    agents: str = AGENT,
    toolbox: Given | None = None,
    timing: Timing | None = None,
    model: SimulatedModel | None = None,
    kind: str = "lmstudio",
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; at the end, no request may be open upstream and no task may be left."""
    before = asyncio.all_tasks()
    async with SimulatedLMStudio([model or SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        base_url = studio.base_url if kind == "lmstudio" else f"{studio.base_url}/v1"
        settings = settings_for(base_url, agents=agents, kind=kind)
        async with serve(folder, settings, toolbox=toolbox, timing=timing) as served:
            yield served, studio
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")
    before |= {task for task in [asyncio.current_task()] if task}  # a fixture is taken down by a task of its own
    await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left running", seconds=30)


def forget(studio: SimulatedLMStudio) -> None:
    """Let a simulated LM Studio that several tests share forget what it was asked and how it was to answer."""
    studio.journal.requests.clear()
    studio.journal.disconnects.clear()
    studio.scripts = ScriptQueue()
    studio.count_tokens = studio.on_request = None


async def eventually(holds: Callable[[], object], otherwise: str, seconds: float = 30.0) -> None:
    """Wait until something holds; fail with `otherwise` where it does not come: only what hangs waits so long."""
    try:
        async with asyncio.timeout(seconds):
            while not holds():  # noqa: ASYNC110  # what is waited for knows no events
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(otherwise) from None


def chat_body(content: Any = "Hello", *, model: str = "writer", **fields: Any) -> dict[str, Any]:
    """Return the body of a chat request with one user message."""
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}


async def stream_bytes(served: Served, body: Mapping[str, Any], **headers: str) -> bytes:
    """Ask for a stream and return its bytes; a socket that closes inside the body raises."""
    async with served.http.post(served.chat_url, json={**body, "stream": True}, headers=headers) as response:
        assert response.status == 200, await response.text()
        return await response.read()


def split_frames(stream: bytes) -> list[bytes]:
    """Return what the frames of a stream hold, between `data: ` and the blank line; comments are left out.

    Fails where anything else is on the wire.
    """
    assert stream.endswith(b"\n\n")
    blocks = stream.removesuffix(b"\n\n").split(b"\n\n")
    frames = [block for block in blocks if not block.startswith(b":")]
    assert all(frame.startswith(b"data: ") and b"\n" not in frame for frame in frames), blocks
    return [frame.removeprefix(b"data: ") for frame in frames]


async def said_until(response: ClientResponse, holds: int) -> str:
    """Read a stream until it has said so many characters; return what it has said."""
    said = ""
    async with asyncio.timeout(30.0):
        async for line in response.content:
            if line.startswith(b"data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    said += choice["delta"].get("content") or ""
            if len(said) >= holds:
                return said
    raise AssertionError(f"the answer ended with {said!r}")


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the parsed chunks of a stream that ended well."""
    *frames, last = split_frames(stream)
    assert last == b"[DONE]"
    return [json.loads(frame) for frame in frames]


def calls_of(chunks: list[dict[str, Any]]) -> list[Message]:
    """Return the tool calls of a stream, put together by index as client libraries do."""
    calls: dict[int, Message] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            for delta in choice["delta"].get("tool_calls", ()):
                function = delta["function"]
                call = calls.setdefault(delta["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += delta.get("id", "")
                call["name"] += function.get("name", "")
                call["arguments"] += function["arguments"]
    assert list(calls) == list(range(len(calls))), "indices have gaps"
    return list(calls.values())


def finish_of(chunks: list[dict[str, Any]]) -> str:
    """Return the one finish_reason of a stream."""
    reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
    [reason] = [reason for reason in reasons if reason is not None]
    assert isinstance(reason, str)
    return reason


def function_spec(name: str, **properties: Any) -> dict[str, Any]:
    """Return a client's tool as a chat request lists it."""
    parameters = {"type": "object", "properties": properties or {"path": {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "description": f"Does {name}.", "parameters": parameters}}


def delta_frame(delta: Mapping[str, Any], finish_reason: str | None = None, **extra: Any) -> bytes:
    """Return a chunk as an upstream may send it, for scripts that need a form of their own."""
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return b"data: " + json.dumps({"choices": [choice], **extra}).encode() + b"\n\n"


async def ask_beside(served: Served, studio: SimulatedLMStudio) -> str:
    """Ask the engine itself, as another program does, and return the text of its answer."""
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "stream": True}
    async with served.http.post(f"{studio.base_url}/v1/chat/completions", json=body) as response:
        return text_of(parse_frames(await response.read()))
