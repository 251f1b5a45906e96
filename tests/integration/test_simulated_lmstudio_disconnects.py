"""Clients that leave, prompts that are read on, requests that wait."""

import asyncio
import time
from typing import Any

import aiohttp
import openai
import pytest

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

MODEL = SimulatedModel("m", loaded_context_length=8192)
CHAT = "/v1/chat/completions"


def ask(words: int = 10, **more: Any) -> dict[str, Any]:
    """Return the body of a chat request that is about so many tokens long."""
    return {"model": "m", "messages": [{"role": "user", "content": "word " * words}], **more}


async def leave(studio: SimulatedLMStudio, body: Any, when: Any) -> float:
    """Send a request, close the socket once the condition holds, and return the time of that."""
    async with aiohttp.ClientSession(studio.base_url) as http:
        asking = asyncio.create_task(http.post(CHAT, json=body))
        await studio.wait_until(when)
        if asking.done():
            (await asking).close()
        else:
            asking.cancel()
        left_at = time.monotonic()
        await asyncio.wait({asking})
    return left_at


async def test_departure_while_streaming_is_noticed_and_stops_the_answer() -> None:
    """It is recorded with its phase and time, and nothing more is generated."""
    async with SimulatedLMStudio([MODEL], tokens_per_second=100) as studio:
        studio.enqueue(" go" * 1000)
        left_at = await leave(studio, ask(stream=True), lambda: studio.chats and studio.chats[0].completion_tokens)
        await studio.wait_until(lambda: studio.disconnects)
        (disconnect,) = studio.disconnects
        generated = studio.chats[0].completion_tokens
        await asyncio.sleep(0.1)
        assert studio.chats[0].completion_tokens == generated < 1000
        assert studio.open_requests == 0
        assert not studio.residency.instances["m"].generations
    assert disconnect.request is studio.chats[0]
    assert disconnect.phase == "streaming"
    assert disconnect.at >= left_at - 0.05


@pytest.mark.parametrize("stream", [True, False])
async def test_departure_during_prefill_is_noticed_but_the_prompt_is_read_on(stream: bool) -> None:
    """The abandoned prompt keeps its tokens and blocks the model's next request until it is read."""
    async with SimulatedLMStudio([MODEL], prefill_tokens_per_second=1000) as studio:
        await leave(studio, ask(400, stream=stream), lambda: studio.chats and studio.chats[0].phase == "prefill")
        await studio.wait_until(lambda: studio.disconnects)
        instance = studio.residency.instances["m"]
        assert [one.phase for one in studio.disconnects] == ["prefill"]
        assert (studio.open_requests, studio.readings) == (0, 1)
        assert instance.pool_tokens > 400
        async with aiohttp.ClientSession(studio.base_url) as http, http.post(CHAT, json=ask(1)) as response:
            assert response.status == 200
            await response.read()
        started_at, finished_at = studio.chats[0].received_at, studio.chats[1].finished_at
        assert finished_at is not None
        assert finished_at - started_at >= 0.4
        assert (studio.readings, instance.pool_tokens) == (0, 0)


async def test_client_that_closes_at_done_is_not_a_departure() -> None:
    """The OpenAI client closes its socket as soon as it has read [DONE]."""
    async with SimulatedLMStudio([MODEL]) as studio:
        for _ in range(6):
            async with openai.AsyncOpenAI(base_url=studio.base_url + "/v1", api_key="x") as api:
                async for _chunk in await api.chat.completions.create(**ask(stream=True)):
                    pass
        await studio.wait_until(lambda: not studio.open_requests)
    assert studio.disconnects == []
    assert {record.phase for record in studio.chats} == {"done"}
