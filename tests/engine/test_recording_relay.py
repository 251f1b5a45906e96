"""The relay is transparent, and its record tells the prompts."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp
from llama_server import Options
from recording_relay import RecordingRelay
from sample_chat import TOOL_CHAT, chat

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_server import LlamaServer


async def post(base_url: str, body: bytes) -> tuple[int, bytes]:
    """Send a chat request and return the status and the whole answer."""
    headers = {"Content-Type": "application/json"}
    url = f"{base_url}/v1/chat/completions"
    async with aiohttp.ClientSession() as client, client.post(url, data=body, headers=headers) as answer:
        return answer.status, await answer.read()


def without_identity(events: bytes) -> list[Any]:
    """Read the chunks of a stream and leave out what differs from request to request."""
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith(b"data: {")]
    return [{key: value for key, value in chunk.items() if key not in {"id", "created", "timings"}} for chunk in chunks]


async def test_relay_changes_nothing(relay: RecordingRelay, engine: LlamaServer) -> None:
    """A stream through the relay is the stream of the engine, and the body is recorded to the byte."""
    body = json.dumps(chat("Grüße", stream=True, temperature=0, cache_prompt=False), indent=3).encode()
    direct, relayed = await post(engine.base_url, body), await post(relay.base_url, body)
    assert direct[0] == relayed[0] == 200
    assert without_identity(direct[1]) == without_identity(relayed[1])
    assert relayed[1].endswith(b"data: [DONE]\n\n")
    assert [request.body for request in relay.requests] == [body]


async def test_relay_passes_refusals_on(relay: RecordingRelay, engine: LlamaServer) -> None:
    """An engine's refusal comes through with its status and its words."""
    body = json.dumps(chat("word " * 9000)).encode()
    assert await post(relay.base_url, body) == await post(engine.base_url, body)


async def test_rendered_record_is_what_engine_saw(relay: RecordingRelay, engine: LlamaServer) -> None:
    """Rendering the recorded chats gives the very prompts that the engine recorded itself."""
    for body in (TOOL_CHAT, chat("Second", tools=TOOL_CHAT["tools"])):
        await post(relay.base_url, json.dumps(body).encode())
    rendered = [await engine.render(body) for body in relay.chats()]
    assert rendered == engine.prompts()
    assert len(rendered) == 2


async def test_record_is_complete_under_load(relay: RecordingRelay) -> None:
    """Requests that arrive at the same time are all recorded."""
    bodies = [chat(f"Number {number}", max_tokens=1) for number in range(20)]
    await asyncio.gather(*(post(relay.base_url, json.dumps(body).encode()) for body in bodies))
    assert sorted(map(json.dumps, relay.chats())) == sorted(map(json.dumps, bodies))


async def test_relay_leaves_with_its_client(start_engine: Callable[[Options], LlamaServer]) -> None:
    """A client that leaves in mid-answer ends the engine's work, too."""
    engine = start_engine(Options(context_length=100_000))
    body = chat("Talk", stream=True, ignore_eos=True, max_tokens=-1)
    async with RecordingRelay(engine.base_url) as relay, aiohttp.ClientSession() as client:
        async with client.post(f"{relay.base_url}/v1/chat/completions", json=body) as answer:
            await answer.content.readany()
        _, (slot,) = await engine.get("/slots")
        async with asyncio.timeout(20):
            while slot["is_processing"]:
                await asyncio.sleep(0.02)
                _, (slot,) = await engine.get("/slots")
    assert slot["n_prompt_tokens"] < 90_000
