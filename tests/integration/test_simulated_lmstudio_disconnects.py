"""Clients that leave, prompts that are read on, requests that wait."""

import asyncio
import time
from typing import Any

import aiohttp
import openai
import pytest

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor

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


async def test_departure_while_waiting_for_another_prompt_costs_nothing() -> None:
    """A request that never began is taken out of the queue."""
    async with SimulatedLMStudio([MODEL], prefill_tokens_per_second=1000) as studio:
        async with aiohttp.ClientSession(studio.base_url) as http:
            first = asyncio.create_task(http.post(CHAT, json=ask(300)))
            await studio.wait_until(lambda: studio.chats and studio.chats[0].phase == "prefill")
            await leave(studio, ask(5000), lambda: len(studio.chats) == 2 and studio.chats[1].phase == "queued")
            (await first).close()
        await studio.wait_until(lambda: studio.disconnects and not studio.readings)
        (disconnect,) = studio.disconnects
    assert disconnect.phase == "queued"
    assert not studio.residency.instances["m"].generations


async def test_departure_while_loading_is_noticed() -> None:
    """The phase tells that the model was not there yet."""
    async with SimulatedLMStudio([SimulatedModel("m", load_seconds=5)]) as studio:
        await leave(studio, ask(), lambda: studio.residency.instances)
        await studio.wait_until(lambda: studio.disconnects)
    assert studio.disconnects[0].phase == "loading"


async def test_unstreamed_answer_is_stopped_by_departure_too() -> None:
    """Its phase is generating."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue(Script("Hello", WaitFor(asyncio.Event())))
        await leave(studio, ask(), lambda: studio.chats and studio.chats[0].completion_tokens)
        await studio.wait_until(lambda: studio.disconnects)
    assert studio.disconnects[0].phase == "generating"


async def test_client_that_closes_at_done_is_not_a_departure() -> None:
    """The OpenAI client closes its socket as soon as it has read [DONE]."""
    async with SimulatedLMStudio([MODEL]) as studio:
        for _ in range(20):
            async with openai.AsyncOpenAI(base_url=studio.base_url + "/v1", api_key="x") as api:
                async for _chunk in await api.chat.completions.create(**ask(stream=True)):
                    pass
        await studio.wait_until(lambda: not studio.open_requests)
    assert studio.disconnects == []
    assert {record.phase for record in studio.chats} == {"done"}


async def test_more_requests_than_slots_wait() -> None:
    """With two slots the third request starts only when one of the others has ended."""
    gate = asyncio.Event()
    model = SimulatedModel("m", loaded_context_length=8192, parallel=2)
    async with SimulatedLMStudio([model]) as studio, aiohttp.ClientSession(studio.base_url) as http:
        studio.enqueue(*[Script("a", WaitFor(gate))] * 3)
        asking = [asyncio.create_task(http.post(CHAT, json=ask())) for _ in range(3)]
        await studio.wait_until(lambda: len(studio.chats) == 3 and studio.residency.instances["m"].queued)
        await studio.wait_until(lambda: sum(one.completion_tokens for one in studio.chats) == 2)
        assert studio.open_requests == 3
        assert sorted(one.phase for one in studio.chats) == ["generating", "generating", "queued"]
        gate.set()
        for response in await asyncio.gather(*asking):
            response.close()
    assert [one.phase for one in studio.chats] == ["done"] * 3


async def test_prefix_cache_spares_the_time_but_not_the_tokens() -> None:
    """A longer prompt that begins as the last one did is read quickly; usage shows nothing of it."""
    async with SimulatedLMStudio([MODEL], prefill_tokens_per_second=1000, prefix_cache=True) as studio:
        async with aiohttp.ClientSession(studio.base_url) as http:
            usages = []
            for _ in range(2):
                async with http.post(CHAT, json=ask(300)) as response:
                    usages.append((await response.json())["usage"])
        first, second = studio.chats
    assert first.finished_at is not None
    assert second.finished_at is not None
    assert first.finished_at - first.received_at >= 0.3
    assert (first.reused_tokens, second.reused_tokens) == (0, second.prompt_tokens)
    assert usages[0] == usages[1]
    assert set(usages[0]) == {
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "completion_tokens_details",
    }


async def test_stopping_in_the_middle_leaves_nothing_behind() -> None:
    """The client's stream breaks, readings end, and it is not taken for a departure."""
    async with SimulatedLMStudio([MODEL], prefill_tokens_per_second=10) as studio:
        async with aiohttp.ClientSession(studio.base_url) as http:
            asking = asyncio.create_task(http.post(CHAT, json=ask(400)))
            await studio.wait_until(lambda: studio.chats and studio.chats[0].phase == "prefill")
            await studio.stop()
            with pytest.raises(aiohttp.ClientError):
                await asking
        assert (studio.readings, studio.open_requests, studio.disconnects) == (0, 0, [])
