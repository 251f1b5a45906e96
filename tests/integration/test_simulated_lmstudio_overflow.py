"""The simulated LM Studio at the edge of the window."""

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel, WaitFor, wording
from elbowroom.demo.overflow import Wording

TINY = SimulatedModel("tiny", architecture="gemma2", loaded_context_length=200)
LONG: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "First question"},
    *({"role": role, "content": "word " * 90} for role in ("assistant", "user", "assistant")),
    {"role": "user", "content": "Last question"},
]
WORDINGS: list[Wording] = ["A", "B", "C", "D", "E", "F", "G"]


async def post(studio: SimulatedLMStudio, messages: Any, **more: Any) -> tuple[int, str]:
    """Return the status and the text of the answer to these messages."""
    body = {"model": "tiny", "messages": messages, **more}
    async with (
        aiohttp.ClientSession(studio.base_url) as http,
        http.post("/v1/chat/completions", json=body) as response,
    ):
        return response.status, await response.text()


def event(message: str) -> str:
    """Return the error event that is a whole stream."""
    inner = json.dumps(message)
    return f'event: error\ndata: {{"error":{{"message":{inner}}},"message":{inner}}}\n\n'


async def test_prompt_over_the_window_is_cut_silently() -> None:
    """Status 200, no word about it; only usage and the simulator's own record tell."""
    async with SimulatedLMStudio([TINY]) as studio:
        status, text = await post(studio, LONG)
        counted = studio.tokenizer.count_tokens(LONG, None)
    answer, record = json.loads(text), studio.chats[0]
    assert status == 200
    assert counted == record.counted_tokens
    assert answer["usage"]["prompt_tokens"] == record.prompt_tokens
    assert record.prompt_tokens is not None
    assert record.prompt_tokens < 200 <= counted
    assert (record.fitted, record.dropped_messages) == (False, 2)
    assert "no longer see 2 messages" in answer["choices"][0]["message"]["content"]


async def test_head_over_the_window_is_refused_with_wording_a() -> None:
    """System and first user message may not be cut: 400 with a string, or an event when streamed."""
    head = [{"role": "user", "content": "word " * 300}]
    async with SimulatedLMStudio([TINY]) as studio:
        message = wording("A", studio.tokenizer.count_tokens(head, None), 200, "gemma2")
        assert await post(studio, head) == (400, json.dumps({"error": message}))
        assert await post(studio, head, stream=True) == (200, event(message))


@pytest.mark.parametrize("name", WORDINGS)
async def test_every_wording_comes_as_status_or_as_event(name: Wording) -> None:
    """400 unstreamed; streamed an event after 200, or 400 too, by the switch."""
    async with SimulatedLMStudio([TINY], overflow=Overflow(prompt=name)) as studio:
        message = wording(name, studio.tokenizer.count_tokens(LONG, None), 200, "gemma2")
        assert await post(studio, LONG) == (400, json.dumps({"error": message}))
        assert await post(studio, LONG, stream=True) == (200, event(message))
        studio.overflow = Overflow(prompt=name, streamed="status")
        assert await post(studio, LONG, stream=True) == (400, json.dumps({"error": message}))


async def test_answer_that_reaches_the_end_of_the_window_follows_the_policy() -> None:
    """stopAtLimit ends it with `length` where the window ends, the default lets it run on."""
    async with SimulatedLMStudio([TINY], overflow=Overflow("stopAtLimit")) as studio:
        studio.enqueue(*["go " * 400] * 2)
        _, limited = await post(studio, LONG[:2])
        studio.overflow = Overflow()
        _, endless = await post(studio, LONG[:2])
    usage = json.loads(limited)["usage"]
    assert json.loads(limited)["choices"][0]["finish_reason"] == "length"
    assert usage["total_tokens"] == 200
    assert json.loads(endless)["choices"][0]["finish_reason"] == "stop"
    assert json.loads(endless)["usage"]["completion_tokens"] == 401


async def test_answer_that_reaches_the_end_of_the_window_may_break() -> None:
    """Wording F comes as an event after the text so far, or as status 400."""
    async with SimulatedLMStudio([TINY], overflow=Overflow(generation="F")) as studio:
        studio.enqueue(*["go " * 400] * 2)
        _, text = await post(studio, LONG[:2], stream=True)
        status, _ = await post(studio, LONG[:2])
    assert '"content":"go"' in text
    assert text.endswith(event(wording("F", 200, 200, "gemma2")))
    assert status == 400


async def test_full_pool_kills_every_request_at_work() -> None:
    """Two answers that share one window fill it; both end with wording E."""
    async with SimulatedLMStudio([TINY], overflow=Overflow(shared_pool=True)) as studio:
        studio.enqueue(Script("waiting", WaitFor(asyncio.Event())), "go " * 400)
        first = asyncio.create_task(post(studio, LONG[:2], stream=True))
        await studio.wait_until(lambda: studio.chats and studio.chats[0].completion_tokens)
        _, second = await post(studio, LONG[:2], stream=True)
        _, waiting = await first
        full = event("Context size has been exceeded.")
    assert waiting.endswith(full)
    assert second.endswith(full)
