"""What the real engine reads for a raw model is what it would have read without elbowroom."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cases import case
from engine_as_lmstudio import engine_as_lmstudio
from llama_server import LlamaServer
from openai import AsyncOpenAI
from sample_chat import READ_NOTE, TOOL_CHAT, chat
from serving import parse_frames, serve, settings_for

CHATS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [{"role": "user", "content": "Hello"}]},
    "system": {"messages": [{"role": "system", "content": " Be brief. \n"}, {"role": "user", "content": "Hi\n\n"}]},
    "tools": TOOL_CHAT,
    "several turns": {
        "messages": [
            {"role": "user", "content": "日本語 🌱 <|im_end|> \\n 1,234.5"},
            {"role": "assistant", "content": "", "reasoning_content": "thinking"},
            {"role": "user", "content": [{"type": "text", "text": "Two "}, {"type": "text", "text": "parts"}]},
        ]
    },
    "tools offered in an odd order": {
        "messages": [{"role": "user", "content": "Look"}],
        "tools": [{"function": {**READ_NOTE["function"], "strict": False}, "type": "function"}, READ_NOTE],
    },
    "history ends with the assistant": {
        "messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, two"}]
    },
    "long history": {
        "messages": [
            {"role": ("user", "assistant")[i % 2], "content": f"message {i}: {'word ' * (i % 7)}"} for i in range(61)
        ]
    },
}
KINDS = ["lmstudio", "openai"]
LIMITS = {"max_tokens": 4, "temperature": 0, "cache_prompt": False}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_prompt_is_byte_for_byte_the_direct_one(engine: LlamaServer, tmp_path: Path, kind: str) -> None:
    """For every kind of chat the engine's own record shows the same prompt with elbowroom and without."""
    async with (
        engine_as_lmstudio(engine) as upstream,
        aiohttp.ClientSession() as http,
        serve(tmp_path, settings_for(upstream.base_url, kind=kind)) as served,
    ):
        for (name, request_body), stream in itertools.product(CHATS.items(), (True, False)):
            with case(name, stream):
                body = {**request_body, **LIMITS, "stream": stream}
                await completed(http, f"{engine.base_url}/v1/chat/completions", {**body, "model": "tiny"})
                await completed(http, served.chat_url, {**body, "model": f"{kind}/tiny"})
                without, with_elbowroom = engine.prompts()
                engine.forget_prompts()
                assert with_elbowroom == without


@pytest.mark.parametrize("kind", KINDS)
async def test_half_a_character_in_a_history_keeps_no_chat_from_going_on(
    engine: LlamaServer, tmp_path: Path, kind: str
) -> None:
    """The engine refuses a body with one; it is sent U+FFFD, and elbowroom counts that as the engine does."""
    said = [{"role": "user", "content": "a\ud83d"}, {"role": "assistant", "content": "\ude00b"}]
    body = {"messages": [*said, {"role": "user", "content": "Go on"}], "model": f"{kind}/tiny"}
    file = f'model_files = {{ tiny = "{engine.model}" }}' if kind == "lmstudio" else ""
    async with (
        engine_as_lmstudio(engine) as upstream,
        serve(tmp_path, settings_for(upstream.base_url, kind=kind, provider=file)) as served,
    ):
        async with served.http.post(f"{served.chat_url}/input_tokens", json=body) as response:
            counted = await response.json()
        engine.forget_prompts()
        async with served.http.post(served.chat_url, json={**body, **LIMITS}) as response:
            answer = await response.json()
            assert response.status == 200, answer
    assert "a\ufffd<|im_end|>\n<|im_start|>assistant\n\ufffdb<|im_end|>" in engine.prompts()[-1]
    assert counted["input_tokens"] == answer["usage"]["prompt_tokens"]
    assert counted["method"] == ("exact" if file else "engine")


async def completed(http: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    """Ask, and read the whole answer."""
    async with http.post(url, json=body) as response:
        assert response.status == 200, await response.text()
        await response.read()


@pytest.mark.parametrize("kind", KINDS)
async def test_answer_and_usage_are_the_engines(engine: LlamaServer, tmp_path: Path, kind: str) -> None:
    """A seeded answer has the same text, finish_reason and token counts with elbowroom and without."""
    body = {"messages": [{"role": "user", "content": "Tell me"}], "max_tokens": 24, "seed": 7, "temperature": 0.9}
    body["cache_prompt"] = False
    async with (
        engine_as_lmstudio(engine) as upstream,
        serve(tmp_path, settings_for(upstream.base_url, kind=kind)) as served,
    ):
        direct = await engine.post("/v1/chat/completions", {**body, "model": "tiny"})
        through = await served.chat(f"{kind}/tiny", "Tell me", **{k: v for k, v in body.items() if k != "messages"})
    choice = direct[1]["choices"][0]
    assert through["choices"][0]["message"]["content"] == choice["message"]["content"]
    assert through["choices"][0]["finish_reason"] == choice["finish_reason"]
    for key in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert through["usage"][key] == direct[1]["usage"][key]


async def test_openai_client_streams_from_the_engine(engine: LlamaServer, tmp_path: Path) -> None:
    """The real client, elbowroom and the real engine together: text arrives in pieces, with usage at the end."""
    async with engine_as_lmstudio(engine) as upstream, serve(tmp_path, settings_for(upstream.base_url)) as served:
        async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.chat.completions.create(
                model="lmstudio/tiny",
                messages=[{"role": "user", "content": "Hello"}],
                stream=True,
                stream_options={"include_usage": True},
                max_completion_tokens=12,
                extra_body={"ignore_eos": True},
            )
            chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 12
    assert chunks[-2].choices[0].finish_reason == "length"


async def test_forced_tool_call_comes_back(engine: LlamaServer, tmp_path: Path) -> None:
    """A tool call that the real engine makes reaches the client with a name, arguments and an id of nine characters."""
    forced = await engine.one_tool_call()
    body = {**forced, **chat("Look it up", tools=[READ_NOTE], max_tokens=400), "model": "lmstudio/tiny", "stream": True}
    async with engine_as_lmstudio(engine) as upstream, serve(tmp_path, settings_for(upstream.base_url)) as served:
        async with served.http.post(served.chat_url, json=body) as response:
            frames = parse_frames(await response.read())
    deltas = [frame["choices"][0]["delta"] for frame in frames if isinstance(frame, dict) and frame["choices"]]
    calls = [delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta]
    assert len(calls) == 2
    assert calls[0]["function"]["name"] == "read_note"
    assert len(calls[0]["id"]) == 9
    assert set(json.loads(calls[1]["function"]["arguments"])) == {"path"}
    assert frames[-2]["choices"][0]["finish_reason"] == "tool_calls"


async def test_overflow_on_the_engine_is_a_400_with_numbers(engine: LlamaServer, tmp_path: Path) -> None:
    """A prompt over the window is refused in OpenAI's own form, with the window in the text."""
    async with engine_as_lmstudio(engine) as upstream, serve(tmp_path, settings_for(upstream.base_url)) as served:
        answer = await served.chat("lmstudio/tiny", "word " * 20_000)
    assert answer["error"]["code"] == "context_length_exceeded"
    assert str(engine.options.context_length) in answer["error"]["message"]
