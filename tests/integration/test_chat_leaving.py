"""A client that leaves: the upstream is closed at once, in every phase, and nothing is left behind."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, ask_beside, chat_body, elbowroom_with_studio, eventually
from own_tools import own_tool
from serving import Served, serve, settings_for

from elbowroom.demo import Phase, Reasoning, Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor
from elbowroom.server.state import Timing

SOON = 10.0
"""Seconds within which a request is closed whose model would go on for longer, even on a busy machine."""
"""Seconds. It takes a few milliseconds on a quiet machine; 100 ms are promised."""
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])


@asynccontextmanager
async def asking(served: Served, body: dict[str, Any]) -> AsyncIterator[asyncio.Task[bytes]]:
    """Ask, and leave at the end of the block: the socket is closed."""

    async def ask() -> bytes:
        async with served.http.post(served.chat_url, json=body) as response:
            return await response.read()

    client = asyncio.create_task(ask())
    try:
        yield client
        assert not client.done(), "the answer came before the client left"
    finally:
        client.cancel()
        await asyncio.wait([client])


async def assert_closed_soon(studio: SimulatedLMStudio, phase: Phase, left: float) -> None:
    """Check that the upstream saw its client leave once, soon after `left`, in this phase."""
    await eventually(lambda: studio.disconnects, "the upstream never saw its client leave", seconds=SOON)
    [disconnect] = studio.disconnects
    assert disconnect.phase == phase
    assert disconnect.at - left < SOON


async def leave(served: Served, body: dict[str, Any], when: Callable[[], object]) -> float:
    """Ask, leave as soon as `when` holds, and return the moment."""
    async with asking(served, body):
        await eventually(when, "the moment to leave never came")
    return time.monotonic()


def phase_of(studio: SimulatedLMStudio) -> Phase | None:
    """Return how far the newest chat request has come."""
    return studio.chats[-1].phase if studio.chats else None


@pytest.mark.fault("client leaves", "streaming", "upstream closed")
@MODELS
@STREAMED
async def test_while_text_streams(tmp_path: Path, model: str, stream: bool) -> None:
    """The client leaves in the middle of the text, shown or not."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 4000)
        body = chat_body(model=model, stream=stream)
        left = await leave(served, body, lambda: studio.chats and studio.chats[0].completion_tokens > 3)
        await assert_closed_soon(studio, "streaming", left)


@STREAMED
async def test_while_the_model_thinks(tmp_path: Path, stream: bool) -> None:
    """The client leaves in the middle of the thoughts."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(Script(Reasoning("hm " * 4000), "Yes."))
        left = await leave(
            served, chat_body(stream=stream), lambda: studio.chats and studio.chats[0].completion_tokens > 3
        )
        await assert_closed_soon(studio, "streaming", left)


@pytest.mark.fault("client leaves", "first", "upstream closed")
@MODELS
@STREAMED
async def test_during_prefill(tmp_path: Path, model: str, stream: bool) -> None:
    """The client leaves while the prompt is read and nothing has been said."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.prefill_tokens_per_second = 0.1
        left = await leave(
            served, chat_body("word " * 20, model=model, stream=stream), lambda: phase_of(studio) == "prefill"
        )
        await assert_closed_soon(studio, "prefill", left)


async def test_during_prefill_with_keep_alive_comments(tmp_path: Path) -> None:
    """The client leaves a stream that has begun with comments only."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=0.02)) as (served, studio):
        studio.prefill_tokens_per_second = 0.1
        async with served.http.post(served.chat_url, json=chat_body("word " * 20, stream=True)) as response:
            assert await response.content.readline() == b": elbowroom\n"
            await eventually(lambda: phase_of(studio) == "prefill", "the prompt is not read")
            left = time.monotonic()
            response.close()
        await assert_closed_soon(studio, "prefill", left)


async def test_while_queued(tmp_path: Path) -> None:
    """The client leaves while its request waits behind that of another program in the model's queue."""
    model = SimulatedModel(MODEL, loaded_context_length=32_768, parallel=1)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, studio):
        release = asyncio.Event()
        studio.enqueue(Script(WaitFor(release), "First."))
        first = asyncio.create_task(ask_beside(served, studio))
        await eventually(lambda: phase_of(studio) == "streaming", "the first did not begin")
        left = await leave(served, chat_body(stream=True), lambda: phase_of(studio) == "queued")
        await assert_closed_soon(studio, "queued", left)
        release.set()
        assert await first == "First."


@STREAMED
async def test_while_the_model_loads(tmp_path: Path, stream: bool) -> None:
    """The client leaves while its model is being loaded, and nobody else waits for it."""
    async with elbowroom_with_studio(tmp_path, model=SimulatedModel(MODEL, load_seconds=60)) as (served, studio):
        left = await leave(served, chat_body(stream=stream), lambda: phase_of(studio) == "loading")
        await assert_closed_soon(studio, "loading", left)


@pytest.mark.slow
async def test_others_wait_on_for_the_model_that_loads(tmp_path: Path) -> None:
    """One of two who wait for the same load leaves: the other is answered, and the model is loaded once."""
    async with elbowroom_with_studio(tmp_path, model=SimulatedModel(MODEL, load_seconds=0.5)) as (served, studio):
        async with asking(served, chat_body(stream=True)):
            await eventually(lambda: phase_of(studio) == "loading", "the model is not loaded")
            other = asyncio.create_task(served.chat("writer"))
            await asyncio.sleep(0.2)
        assert (await other)["choices"]
        loads = [chat for chat in studio.chats if chat.body.get("max_tokens") == 1]
        assert len(loads) == 1


@pytest.mark.fault("client leaves", "tool", "the tool cancelled")
@STREAMED
async def test_while_a_server_tool_runs(tmp_path: Path, stream: bool) -> None:
    """The client leaves while a tool works: the tool is cancelled, and the model is not asked again."""
    began, ended = asyncio.Event(), asyncio.Event()

    @own_tool
    async def work() -> str:
        """Work for long."""
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return "done"

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        studio.enqueue(Script("Working.", ToolCall("work")))
        left = await leave(served, chat_body(stream=stream), began.is_set)
        await eventually(ended.is_set, "the tool goes on for nobody")
        assert time.monotonic() - left < SOON
        assert len(studio.chats) == 1
        assert studio.open_requests == 0


async def test_in_a_later_step(tmp_path: Path) -> None:
    """The client leaves while the model answers after a tool."""

    @own_tool
    async def work() -> str:
        """Work."""
        return "done"

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [work]) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(Script(ToolCall("work")), "word " * 4000)
        left = await leave(
            served,
            chat_body(stream=True),
            lambda: len(studio.chats) == 2 and studio.chats[1].completion_tokens > 3,
        )
        await assert_closed_soon(studio, "streaming", left)


async def test_while_an_agent_serves_as_a_tool(tmp_path: Path) -> None:
    """The client leaves while an agent behind the agent is answered."""
    agents = AGENT + f'agent_tools = ["helper"]\n[[agents]]\nid = "helper"\nmodel = "{MODEL}"\n'
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue(Script(ToolCall("ask_helper", {"request": "a"})), "word " * 4000)
        left = await leave(
            served,
            chat_body(stream=True),
            lambda: len(studio.chats) == 2 and studio.chats[1].completion_tokens > 3,
        )
        await assert_closed_soon(studio, "streaming", left)


async def test_relayed_whole_answer(tmp_path: Path) -> None:
    """The client leaves while a relayed upstream works on an answer that is not streamed."""
    async with elbowroom_with_studio(tmp_path, agents="", kind="openai") as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 4000)
        left = await leave(served, chat_body(model=f"openai/{MODEL}"), lambda: phase_of(studio) == "generating")
        await assert_closed_soon(studio, "generating", left)


async def test_half_closed_client_counts_as_gone(tmp_path: Path) -> None:
    """A client whose connection is reset, not closed, is gone as well."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 200
        studio.enqueue("word " * 4000)
        async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
            await response.content.readline()
            assert response.connection is not None
            assert response.connection.transport is not None
            left = time.monotonic()
            response.connection.transport.abort()
        await assert_closed_soon(studio, "streaming", left)


async def test_normal_end_is_no_disconnect(tmp_path: Path) -> None:
    """A client that closes its side as soon as it has read [DONE] has not left early."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
            async for line in response.content:
                if line == b"data: [DONE]\n":
                    break
            response.close()
        await eventually(lambda: studio.open_requests == 0, "a request is left open")
        assert studio.disconnects == []
        assert (await served.chat("writer"))["choices"]


async def test_server_stops_in_the_middle(tmp_path: Path) -> None:
    """A server that is stopped while it streams leaves no upstream request and no task behind."""
    before = asyncio.all_tasks()
    model = SimulatedModel(MODEL, loaded_context_length=32_768)
    async with SimulatedLMStudio([model]) as studio, aiohttp.ClientSession() as http:
        studio.tokens_per_second = 200
        studio.enqueue("word " * 4000)
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            response = await http.post(served.chat_url, json=chat_body(model=RAW_MODEL, stream=True))
            await response.content.readline()
        await eventually(lambda: studio.open_requests == 0, "the upstream request is left open")
        response.close()
    await eventually(lambda: asyncio.all_tasks() <= before, "tasks are left running")
