"""The engine of the tests behaves as the tests rely on."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import psutil
import pytest
from llama_server import EngineError, LlamaServer, Options
from sample_chat import READ_NOTE, TOOL_CHAT, chat

if TYPE_CHECKING:
    from collections.abc import Callable

RENDERED_TOOL_CHAT = """\
<|im_start|>system
You help with notes.

Tools, one a line:
{"type": "function", "function": {"name": "read_note", "description": "Reads one note.", "parameters": \
{"type": "object", "properties": {"path": {"type": "string", "enum": ["garden.md", "kitchen.md"]}}, \
"required": ["path"]}}}
Call one with <tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>
<|im_start|>user
What grows? 🌱 Grüße, 你好.<|im_end|>
<|im_start|>assistant
I will look.<tool_call>{"name": "read_note", "arguments": {"path": "garden.md"}}</tool_call><|im_end|>
<|im_start|>tool
Beans and peas.<|im_end|>
<|im_start|>assistant
"""


async def stream(engine: LlamaServer, body: dict[str, Any]) -> list[str]:
    """Send a streamed chat request; return the payload of every SSE event."""
    url = f"{engine.base_url}/v1/chat/completions"
    async with aiohttp.ClientSession() as client, client.post(url, json={**body, "stream": True}) as answer:
        assert answer.status == 200
        text = await answer.text()
    return [event.removeprefix("data: ") for event in text.split("\n\n") if event]


async def test_engine_is_healthy(engine: LlamaServer) -> None:
    """An engine that was handed out has its model loaded, with the name and the window asked for."""
    assert await engine.get("/health") == (200, {"status": "ok"})
    _, models = await engine.get("/v1/models")
    _, properties = await engine.get("/props")
    assert [model["id"] for model in models["data"]] == ["tiny"]
    assert properties["default_generation_settings"]["n_ctx"] == 8192


async def test_engine_streams_answer_to_its_end(engine: LlamaServer) -> None:
    """A streamed answer comes in several pieces and closes with a finish reason, the usage and [DONE]."""
    events = await stream(engine, chat("Hello", stream_options={"include_usage": True}, ignore_eos=True))
    *chunks, done = events
    parsed = [json.loads(chunk) for chunk in chunks]
    choices = [choice for chunk in parsed for choice in chunk["choices"]]
    pieces = [piece for choice in choices if (piece := choice["delta"].get("content"))]
    assert done == "[DONE]"
    assert len(pieces) > 3
    assert [reason for choice in choices if (reason := choice["finish_reason"])] == ["length"]
    assert parsed[-1]["usage"]["completion_tokens"] == 24


async def test_engine_ends_answers_by_itself(engine: LlamaServer) -> None:
    """Left alone, the model stops with readable text well inside its window."""
    _, answer = await engine.post("/v1/chat/completions", chat("Hello", seed=3, max_tokens=4000))
    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "stop"
    assert choice["message"]["content"].isascii()


async def test_engine_counts_what_it_reads(engine: LlamaServer) -> None:
    """The count asked for beforehand, the usage reported afterwards and the tokens of the prompt agree."""
    counted = await engine.count(TOOL_CHAT)
    _, answer = await engine.post("/v1/chat/completions", TOOL_CHAT)
    (prompt,) = engine.prompts()
    assert counted == answer["usage"]["prompt_tokens"]
    assert counted == len(await engine.tokenize(prompt))


async def test_engine_shows_prompt_it_saw(engine: LlamaServer) -> None:
    """The record holds each request's prompt to the byte: system, tools, calls and results included."""
    await engine.post("/v1/chat/completions", TOOL_CHAT)
    await stream(engine, chat("Second"))
    assert engine.prompts() == [
        RENDERED_TOOL_CHAT,
        "<|im_start|>user\nSecond<|im_end|>\n<|im_start|>assistant\n",
    ]
    assert await engine.render(TOOL_CHAT) == RENDERED_TOOL_CHAT


async def test_engine_record_starts_empty(engine: LlamaServer) -> None:
    """Counting and rendering leave no trace in the record, and neither do earlier tests."""
    await engine.count(TOOL_CHAT)
    await engine.render(TOOL_CHAT)
    assert engine.prompts() == []


async def test_engine_is_deterministic(engine: LlamaServer) -> None:
    """At temperature 0, and with a seed at any other, the same request gets the same answer."""
    for sampling in ({"temperature": 0}, {"temperature": 1, "seed": 7}):
        body = chat("Again", cache_prompt=False, ignore_eos=True, **sampling)
        answers = [await engine.post("/v1/chat/completions", body) for _ in range(2)]
        first, second = (answer["choices"] for _, answer in answers)
        assert first == second


async def test_engine_calls_tools(engine: LlamaServer) -> None:
    """A request can make the model call a tool once, with arguments that the tool's schema allows."""
    body = chat("Look it up", tools=[READ_NOTE], **await engine.one_tool_call() | {"max_tokens": 400})
    _, answer = await engine.post("/v1/chat/completions", body)
    (choice,) = answer["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "read_note"
    assert json.loads(call["function"]["arguments"])["path"] in {"garden.md", "kitchen.md"}


async def test_engine_refuses_overflow(engine: LlamaServer) -> None:
    """A prompt over the window is a 400 that names both sizes, and the record shows the prompt as well."""
    body = chat("word " * 9000)
    needed = await engine.count(body)
    status, answer = await engine.post("/v1/chat/completions", body)
    error = answer["error"]
    assert status == 400
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (needed, 8192)
    assert f"request ({needed} tokens) exceeds the available context size (8192 tokens)" in error["message"]
    assert engine.prompts() == [await engine.render(body)]


async def test_engine_stops_when_client_leaves(
    start_engine: Callable[[Options], LlamaServer],
) -> None:
    """Generation ends when the client closes its connection, long before the window is full."""
    engine = start_engine(Options(context_length=100_000))
    url = f"{engine.base_url}/v1/chat/completions"
    body = chat("Talk", stream=True, ignore_eos=True, max_tokens=-1)
    async with aiohttp.ClientSession() as client:
        async with client.post(url, json=body) as answer:
            await answer.content.readany()
            _, (busy,) = await engine.get("/slots")
            assert busy["is_processing"]
        async with asyncio.timeout(20):
            while busy["is_processing"]:
                await asyncio.sleep(0.02)
                _, (busy,) = await engine.get("/slots")
    assert busy["n_prompt_tokens"] < 90_000


async def test_slots_share_one_pool(start_engine: Callable[[Options], LlamaServer]) -> None:
    """Slots that share a pool see the whole window each; without, they get an equal part of it."""
    windows = []
    for shared in (True, False):
        engine = start_engine(Options(context_length=4096, slots=2, shared_pool=shared))
        _, slots = await engine.get("/slots")
        windows.append([slot["n_ctx"] for slot in slots])
    assert windows == [[4096, 4096], [2048, 2048]]


async def test_inspection_can_be_off(start_engine: Callable[[Options], LlamaServer]) -> None:
    """An engine without inspection keeps its slots to itself and still answers."""
    engine = start_engine(Options(inspection=False))
    status, _ = await engine.get("/slots")
    assert status == 501
    assert (await engine.post("/v1/chat/completions", chat("Hello")))[0] == 200


async def test_stop_ends_engine_at_work(start_engine: Callable[[Options], LlamaServer]) -> None:
    """Stopping ends the process even while it generates, and a new start serves again."""
    engine = start_engine(Options(context_length=100_000))
    url = f"{engine.base_url}/v1/chat/completions"
    async with aiohttp.ClientSession() as client:
        body = chat("Talk", stream=True, ignore_eos=True, max_tokens=-1)
        async with client.post(url, json=body) as answer:
            await answer.content.readany()
            pid = engine.pid
            engine.stop()
    assert not psutil.pid_exists(pid)
    assert not engine.is_running
    engine.start()
    assert (await engine.get("/health"))[0] == 200


@pytest.mark.slow
def test_engine_ends_with_its_parent(tiny_model: Path, tmp_path: Path) -> None:
    """An engine whose parent is killed does not stay behind."""
    program = (
        "import sys, time; from pathlib import Path; from llama_server import LlamaServer\n"
        "server = LlamaServer(Path(sys.argv[1]), Path(sys.argv[2])); server.start()\n"
        "print(server.pid, flush=True); time.sleep(600)"
    )
    support = Path(__file__).parent.with_name("support")
    arguments = [sys.executable, "-c", program, str(tiny_model), str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, cwd=support, text=True) as parent:
        try:
            assert parent.stdout is not None
            engine = psutil.Process(int(parent.stdout.readline()))
        finally:
            parent.kill()
    psutil.wait_procs([engine], timeout=20)
    assert not engine.is_running() or engine.status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_engine_that_cannot_start_says_why(tmp_path: Path) -> None:
    """A file that is no model is an error with the engine's own words, not a hang."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"not a model")
    with pytest.raises(EngineError, match=r"broken\.gguf"):
        LlamaServer(broken, tmp_path).start()
