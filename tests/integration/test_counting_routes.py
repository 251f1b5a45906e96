"""Counting by an engine's own routes, as llama.cpp and vLLM have them, and by servers that have none."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from counted_models import CHATML, FileTokenizer, write_counted_model
from fake_upstream import Answer, FakeUpstream, fake_upstream, says, streams
from serving import serve, settings_for

from elbowroom.providers import openai_compatible as engine_counters
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.openai_compatible import OpenAICompatible
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.file_counter import CountingTools
from elbowroom.tokens.renderer import TemplateRenderer
from elbowroom.tokens.templates.template import sha256_of

HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
INPUT_TOKENS = "/v1/chat/completions/input_tokens"
TOKENIZE = "/tokenize"


@asynccontextmanager
async def counting_at(answers: Mapping[str, Answer], **fields: Any) -> AsyncIterator[tuple[FakeUpstream, TokenCounter]]:
    """Run an upstream with these routes, and the counter of its model."""
    tools = CountingTools(renderer=TemplateRenderer(known={sha256_of(CHATML)}))
    async with fake_upstream(answers) as fake, aiohttp.ClientSession() as http:
        provider = OpenAICompatible("openai", fake.url, http, tools=tools, **fields)
        yield fake, await provider.counter(ModelInfo("llama-3-8b", "openai", "llama-3-8b"))
        await tools.aclose()


async def test_llama_cpp() -> None:
    """Its own route counts chats: messages, tools and template arguments arrive; `/tokenize` counts texts."""
    answers = {INPUT_TOKENS: says({"object": "x", "input_tokens": 42}), TOKENIZE: says({"tokens": [1, 2, 3]})}
    async with counting_at(answers) as (fake, counter):
        assert await counter.count_chat(HELLO, [TOOL], {"enable_thinking": False}) == TokenCount(42, "engine")
        assert await counter.count_text("Hello there") == TokenCount(3, "engine")
    [asked] = fake.asked_at(INPUT_TOKENS)
    assert asked.json == {
        "model": "llama-3-8b",
        "messages": HELLO,
        "tools": [TOOL],
        "chat_template_kwargs": {"enable_thinking": False},
    }


async def test_vllm() -> None:
    """Its `/tokenize` takes chats and texts; a text is counted without what is put before a prompt."""
    async with counting_at({TOKENIZE: says({"count": 7, "max_model_len": 4096, "tokens": [1]})}) as (fake, counter):
        assert await counter.count_chat(HELLO, [TOOL]) == TokenCount(7, "engine")
        assert await counter.count_text("Hello") == TokenCount(7, "engine")
    chat, text = (asked.json for asked in fake.asked_at(TOKENIZE))
    assert chat["messages"] == HELLO
    assert chat["tools"] == [TOOL]
    assert (text["prompt"], text["add_special_tokens"]) == ("Hello", False)


async def test_the_same_prompt_is_asked_once() -> None:
    """What was counted is remembered; anything that changes the prompt is counted anew."""
    async with counting_at({INPUT_TOKENS: says({"input_tokens": 42})}) as (fake, counter):
        for _ in range(3):
            await counter.count_chat(HELLO)
        assert len(fake.asked) == 1
        await counter.count_chat(HELLO, [TOOL])
        await counter.count_chat(HELLO, (), {"enable_thinking": True})
        await counter.count_chat([*HELLO, *HELLO])
        assert len(fake.asked) == 4


async def test_a_refusal_by_one_route_leaves_the_other() -> None:
    """A server that does not know the first route in its own way is asked for the second."""
    answers = {INPUT_TOKENS: says({"detail": "Method Not Allowed"}, 405), TOKENIZE: says({"count": 7})}
    async with counting_at(answers) as (_, counter):
        assert await counter.count_chat(HELLO) == TokenCount(7, "engine")


NO_COUNTS: dict[str, Answer] = {
    "not found": says("no", 404),
    "LM Studio's unknown path": says({"error": "Unexpected endpoint or method."}),
    "refused": says({"error": "no"}, 400),
    "too long": says({"error": {"message": "exceed_context_size_error", "type": "exceed_context_size_error"}}, 400),
    "broken": says({"error": "oops"}, 500),
    "no JSON": says("42"),
    "a list": says([42]),
    "a text": says({"input_tokens": "42"}),
    "a truth": says({"input_tokens": True}),
    "less than nothing": says({"input_tokens": -1}),
    "nested deeply": says("[" * 100_000),
    "somewhere else": says("", 302, {"Location": "/elsewhere"}),
}


@pytest.mark.parametrize("answer", NO_COUNTS.values(), ids=NO_COUNTS.keys())
async def test_without_a_count_the_family_counts(answer: Answer, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever the routes answer, there is a count, it says that it is none of the engine's, and one warning."""
    elsewhere = says({"input_tokens": 99})
    async with counting_at({INPUT_TOKENS: answer, TOKENIZE: answer, "/elsewhere": elsewhere}) as (fake, counter):
        for _ in range(2):
            count = await counter.count_chat(HELLO)
            assert count.method in ("family", "estimate")
            assert not fake.asked_at("/elsewhere")
    assert 1 <= caplog.text.count("falls back") <= 2


async def test_a_silent_route_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes the request and says nothing costs one wait, then it is left alone for a while."""
    monkeypatch.setattr(engine_counters, "ANSWER_SECONDS", 0.1)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    async with counting_at({INPUT_TOKENS: silent, TOKENIZE: silent}) as (fake, counter):
        async with asyncio.timeout(10):
            for _ in range(3):
                assert (await counter.count_chat(HELLO)).method in ("family", "estimate")
        assert len(fake.asked) == 1


async def test_a_large_prompt_that_falls_silent_too_does_not_call_back_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where few words get no answer, megabytes at the same time, which get none either, tell nothing new."""
    monkeypatch.setattr(engine_counters, "ANSWER_SECONDS", 0.1)

    async def silent(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(30)
        raise AssertionError("nobody waits that long")

    async with counting_at({INPUT_TOKENS: silent, TOKENIZE: silent}) as (fake, counter):
        pasted = [{"role": "user", "content": "word " * 20_000}]
        await asyncio.gather(counter.count_chat(HELLO), counter.count_chat(pasted))
        assert len(fake.asked) == 2
        assert (await counter.count_chat([*HELLO, *HELLO])).method in ("family", "estimate")
        assert len(fake.asked) == 2


async def test_a_large_prompt_that_takes_too_long_leaves_small_ones_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes that the engine does not count in time say nothing about a prompt of a few words."""
    monkeypatch.setattr(engine_counters, "ANSWER_SECONDS", 0.1)

    async def slow(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(len(await request.read()) / 10_000)
        return web.json_response({"input_tokens": 7})

    pasted = [{"role": "user", "content": "word " * 20_000}]
    async with counting_at({INPUT_TOKENS: slow}) as (fake, counter):
        async with asyncio.timeout(10):
            for _ in range(3):
                assert (await counter.count_chat(pasted)).method in ("family", "estimate")
        assert len(fake.asked) == 1
        assert await counter.count_chat(HELLO) == TokenCount(7, "engine")


async def test_a_kept_connection_that_was_closed_is_opened_again() -> None:
    """A server may close an idle connection just as the question is written: that is no reason to estimate."""

    async def closes_once(request: web.Request) -> web.StreamResponse:
        if len(fake.asked) == 2:
            assert request.transport is not None
            request.transport.close()
        return web.json_response({"input_tokens": len(fake.asked)})

    async with counting_at({INPUT_TOKENS: closes_once}) as (fake, counter):
        assert await counter.count_chat(HELLO) == TokenCount(1, "engine")
        assert await counter.count_chat([*HELLO, *HELLO]) == TokenCount(3, "engine")


async def test_a_file_of_the_settings_goes_first(tmp_path: Path) -> None:
    """A model file that the settings name counts exactly; the engine is not asked."""
    path = write_counted_model(tmp_path / "m.gguf")
    files = {"llama-3-8b": str(path)}
    async with counting_at({INPUT_TOKENS: says({"input_tokens": 1})}, model_files=files) as (fake, counter):
        expected = FileTokenizer(path).count_tokens(HELLO)
        assert await counter.count_chat(HELLO) == TokenCount(expected, "exact")
        assert not fake.asked


CHUNK = b'data: {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
AGENT = '[[agents]]\nid = "writer"\nprovider = "openai"\nmodel = "m"\ninstructions = "Be brief."\n'


@pytest.mark.parametrize("model", ["writer", "openai/m"])
@pytest.mark.parametrize("stream", [True, False])
async def test_an_unmanaged_provider_is_asked_nothing_but_the_chat(tmp_path: Path, model: str, *, stream: bool) -> None:
    """Without context management nothing is counted for a chat: no request more than a plain relay makes."""
    whole = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}

    async def chat(request: web.Request) -> web.StreamResponse:
        is_streamed = (await request.json()).get("stream")
        return await (streams(CHUNK) if is_streamed else says(whole))(request)

    async with fake_upstream({"/v1/chat/completions": chat}) as fake:
        async with serve(tmp_path, settings_for(fake.url, kind="openai", agents=AGENT)) as served:
            body = {"model": model, "messages": HELLO, "stream": stream}
            async with served.http.post(served.chat_url, json=body) as response:
                assert "Hi" in await response.text()
        assert [asked.path for asked in fake.asked] == ["/v1/chat/completions"]
