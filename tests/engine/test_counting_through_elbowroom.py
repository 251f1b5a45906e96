"""The counting endpoint says what the real engine counts: 0 tokens off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cases import case
from engine_as_lmstudio import engine_as_lmstudio
from llama_server import LlamaServer
from sample_chat import READ_NOTE, TOOL_CHAT
from serving import Served, serve, settings_for

CHATS: dict[str, dict[str, Any]] = {
    "plain": {"messages": [{"role": "user", "content": "Hello"}]},
    "system": {"messages": [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": " Hi\n"}]},
    "tools, calls and results": TOOL_CHAT,
    "tools offered": {"messages": [{"role": "user", "content": "Look"}], "tools": [READ_NOTE]},
    "other scripts": {"messages": [{"role": "user", "content": "日本語 🌱 <|im_end|> naïve 1,234.5 \u2028"}]},
    "code": {"messages": [{"role": "user", "content": "def f(x):\n\treturn x ** 2  # ²\n" * 40}]},
    "empty content": {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]},
    "parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    },
    "to be continued": {"messages": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "One, "}]},
    "long": {"messages": [{"role": ("user", "assistant")[i % 2], "content": f"{i} " * i} for i in range(101)]},
}


async def count(served: Served, model: str, body: dict[str, Any]) -> dict[str, Any]:
    """Ask elbowroom's counting endpoint."""
    async with served.http.post(f"{served.chat_url}/input_tokens", json={**body, "model": model}) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, Any] = await response.json()
        return answer


@pytest.mark.slow
async def test_with_the_model_file(engine: LlamaServer, tmp_path: Path) -> None:
    """With the model's own file named in the settings, the count is the engine's and says that it is exact."""
    async with engine_as_lmstudio(engine) as upstream:
        files = f'model_files = {{ tiny = "{engine.model}" }}'
        async with serve(tmp_path, settings_for(upstream.base_url, provider=files)) as served:
            for name, body in CHATS.items():
                with case(name):
                    assert await count(served, "lmstudio/tiny", body) == {
                        "object": "response.input_tokens",
                        "input_tokens": await engine.count(body),
                        "method": "exact",
                        "exact": True,
                        "error_bound": 0,
                        "window": engine.options.context_length,
                    }


async def test_by_the_engine_itself(engine: LlamaServer, tmp_path: Path) -> None:
    """A generic provider is asked over its own route where it has one."""
    async with serve(tmp_path, settings_for(engine.base_url, kind="openai")) as served:
        for name, body in CHATS.items():
            with case(name):
                answer = await count(served, "openai/tiny", body)
                assert answer["method"] == "engine"
                assert answer["input_tokens"] == await engine.count(body)


@pytest.mark.slow
async def test_after_an_answer_the_count_is_what_was_reported(engine: LlamaServer, tmp_path: Path) -> None:
    """Without the file, one answer is enough to know what the same conversation takes, to the token."""
    body = {**TOOL_CHAT, "max_tokens": 4, "ignore_eos": True}
    async with engine_as_lmstudio(engine) as upstream, serve(tmp_path, settings_for(upstream.base_url)) as served:
        before = await count(served, "lmstudio/tiny", body)
        async with served.http.post(served.chat_url, json={**body, "model": "lmstudio/tiny"}) as response:
            reported = (await response.json())["usage"]["prompt_tokens"]
        after = await count(served, "lmstudio/tiny", body)
    assert before["exact"] is False
    assert before["method"] in ("family", "estimate")
    assert after["input_tokens"] == reported
    assert after["error_bound"] < before["error_bound"]


@pytest.mark.slow
async def test_what_surely_does_not_fit_is_never_sent(engine: LlamaServer, tmp_path: Path) -> None:
    """With an exact count over the window the client gets the numbers, and the engine is not even asked."""
    asked = [{"role": "system", "content": "word " * 20_000}, {"role": "user", "content": "Go"}]
    body = {"messages": asked, "model": "lmstudio/tiny", "stream": True}
    async with engine_as_lmstudio(engine) as upstream:
        files = f'model_files = {{ tiny = "{engine.model}" }}'
        async with serve(tmp_path, settings_for(upstream.base_url, provider=files)) as served:
            async with served.http.post(served.chat_url, json=body) as response:
                error = (await response.json())["error"]
    assert (response.status, error["code"], error["param"]) == (400, "window_too_small", "messages")
    assert f"loaded with {engine.options.context_length:,}" in error["message"]
    assert f"{await engine.count({'messages': asked}):,} are needed" in error["message"]
    assert upstream.chats() == []


@pytest.mark.slow
async def test_the_last_token_of_the_window_is_left_to_the_reply(engine: LlamaServer, tmp_path: Path) -> None:
    """A prompt of one token less than the window is sent and answered; one more is refused, as by the engine."""
    window = engine.options.context_length
    asked = {"role": "user", "content": "Go"}

    def system(content: str) -> dict[str, str]:
        return {"role": "system", "content": content}

    overhead = await engine.count({"messages": [system(""), asked]})
    async with engine_as_lmstudio(engine) as upstream:
        files = f'model_files = {{ tiny = "{engine.model}" }}'
        async with serve(tmp_path, settings_for(upstream.base_url, provider=files)) as served:
            statuses = {}
            for size in (window - 1, window):
                body = {"messages": [system("!" * (size - overhead)), asked], "max_tokens": 1}
                if await engine.count(body) != size:
                    body = {"messages": [system(" !" * (size - overhead)), asked], "max_tokens": 1}
                assert await engine.count(body) == size
                async with served.http.post(served.chat_url, json={**body, "model": "lmstudio/tiny"}) as response:
                    statuses[size] = response.status
    assert statuses == {window - 1: 200, window: 400}
