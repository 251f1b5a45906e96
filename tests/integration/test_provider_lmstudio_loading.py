"""Models that are not loaded: LM Studio loads them on request, once for all who want them, and the window is read."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from outcome import chat
from serving import Served, serve, settings_for
from waiting import until

from elbowroom.demo import Error, Reply, Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.state import SHARED

SLOW = SimulatedModel("slow", default_context_length=2048, load_seconds=0.4)
OTHER = SimulatedModel("other", loaded_context_length=8192)
FAILED = 'Failed to load model "slow". Error: insufficient memory.'


def is_load(body: dict[str, object]) -> bool:
    """Tell elbowroom's request for one token, which makes LM Studio load the model, from a client's."""
    return body.get("max_tokens") == 1


@pytest.fixture
async def studio() -> AsyncIterator[SimulatedLMStudio]:
    """Run a simulated LM Studio whose model takes its time to load."""
    async with SimulatedLMStudio([SLOW]) as studio:
        yield studio


@pytest.fixture
async def served(studio: SimulatedLMStudio, tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of it."""
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        yield served


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_is_loaded_before_the_prompt_is_sent(
    served: Served, studio: SimulatedLMStudio, *, stream: bool
) -> None:
    """The client's own prompt goes to a loaded model whose window has been read; the load is one request."""
    outcome = await chat(served, "lmstudio/slow", stream=stream)
    assert outcome.text
    assert [is_load(request.body) for request in studio.chats] == [True, False]
    lists = [request for request in studio.requests if request.path == "/api/v1/models"]
    assert studio.chats[0].finished_at is not None
    assert studio.chats[0].finished_at <= lists[-1].received_at <= studio.chats[1].received_at


@pytest.mark.slow
async def test_ten_clients_wait_for_one_load(served: Served, studio: SimulatedLMStudio) -> None:
    """They all get their answers, and LM Studio was asked to load once."""
    outcomes = await asyncio.gather(*(chat(served, "lmstudio/slow", stream=bool(n % 2)) for n in range(10)))
    assert all(outcome.text and outcome.error is None for outcome in outcomes)
    assert sum(is_load(request.body) for request in studio.chats) == 1
    assert len(studio.residency.instances) == 1


async def test_who_polls_the_list_meanwhile_spoils_nothing(served: Served, studio: SimulatedLMStudio) -> None:
    """Lists read before the load has ended are not taken for the state after it."""

    async def poll() -> None:
        while True:
            async with served.http.get(f"{served.url}/v1/models") as response:
                await response.read()
            await asyncio.sleep(0.005)

    polling = asyncio.create_task(poll())
    try:
        assert (await chat(served, "lmstudio/slow", stream=True)).text
    finally:
        polling.cancel()
    assert sum(is_load(request.body) for request in studio.chats) == 1


async def test_a_failing_load_is_told_and_the_next_try_is_new(served: Served, studio: SimulatedLMStudio) -> None:
    """The reason is LM Studio's own; whoever asks again has it tried again."""
    studio.enqueue(Script(Reply(400, {"error": FAILED})), when=is_load)
    outcome = await chat(served, "lmstudio/slow", stream=True)
    assert outcome.status == 503
    assert FAILED in outcome.message
    assert "could not load 'slow'" in outcome.message
    assert (await chat(served, "lmstudio/slow", stream=True)).text
    assert [is_load(request.body) for request in studio.chats] == [True, True, False]


@pytest.mark.slow
async def test_a_failing_load_fails_all_who_wait_for_it(served: Served, studio: SimulatedLMStudio) -> None:
    """Ten clients read why, after one attempt."""
    failing = asyncio.Event()
    studio.enqueue(Script(WaitFor(failing), Error(FAILED)), when=is_load)
    asking = [asyncio.create_task(chat(served, "lmstudio/slow", stream=True)) for _ in range(10)]
    await until(lambda: studio.residency.ready)
    await asyncio.sleep(0.2)
    failing.set()
    for outcome in await asyncio.gather(*asking):
        assert outcome.status in (503, 200)  # an error in the stream, for whom it has taken long enough to be told
        assert FAILED in outcome.message
    assert len(studio.chats) == 1


async def test_without_just_in_time_loading_the_person_is_told(served: Served, studio: SimulatedLMStudio) -> None:
    """Nothing is loaded and nothing will be: 503 with LM Studio's own words, and it works once the model is loaded."""
    studio.just_in_time = False
    outcome = await chat(served, "lmstudio/slow", stream=True)
    assert outcome.status == 503
    assert "No models loaded" in outcome.message
    studio.load("slow")
    assert (await chat(served, "lmstudio/slow", stream=True)).text


async def test_another_model_does_not_answer_for_one_that_is_not_loaded(tmp_path: Path) -> None:
    """Without just-in-time loading LM Studio lets the loaded model answer; elbowroom says what to do instead."""
    async with SimulatedLMStudio([SLOW, OTHER], just_in_time=False) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            outcome = await chat(served, "lmstudio/slow", stream=True)
            assert outcome.status == 503
            assert "lms load slow" in outcome.message
            assert outcome.text == ""
        assert all(is_load(request.body) for request in studio.chats)


async def test_a_load_outlives_the_client_that_asked_for_it(served: Served, studio: SimulatedLMStudio) -> None:
    """Who leaves does not stop the load that others wait for, nor the one that nobody waits for any more."""
    loaded = asyncio.Event()
    studio.enqueue(Script(WaitFor(loaded), "-"), when=is_load)
    leaver = asyncio.create_task(chat(served, "lmstudio/slow", stream=True))
    await until(lambda: studio.open_requests)
    waiting = asyncio.create_task(chat(served, "lmstudio/slow", stream=True))
    running = served.app[SHARED].running
    await until(lambda: len(running) == 2)
    await asyncio.sleep(0.05)
    leaver.cancel()
    await until(lambda: len(running) == 1)
    loaded.set()
    assert (await waiting).text
    assert not studio.disconnects
    assert [is_load(request.body) for request in studio.chats] == [True, False]


async def test_a_client_that_leaves_alone_ends_the_load(served: Served, studio: SimulatedLMStudio) -> None:
    """Nothing is waited for on behalf of one who has left, and no prompt is sent."""
    studio.enqueue(Script(WaitFor(asyncio.Event()), "-"), when=is_load)
    leaver = asyncio.create_task(chat(served, "lmstudio/slow", stream=False))
    await until(lambda: studio.open_requests)
    leaver.cancel()
    await until(lambda: not studio.open_requests)
    await asyncio.sleep(0.1)
    assert [is_load(request.body) for request in studio.chats] == [True]


async def test_the_server_ends_in_the_middle_of_a_load(tmp_path: Path) -> None:
    """Stopping does not wait for a model of minutes."""
    endless = SimulatedModel("slow", load_seconds=600)
    async with SimulatedLMStudio([endless]) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            asking = asyncio.create_task(chat(served, "lmstudio/slow", stream=True))
            await until(lambda: studio.open_requests)
            asking.cancel()
        await until(lambda: not studio.open_requests)


async def test_a_load_by_somebody_else_is_waited_for(served: Served, studio: SimulatedLMStudio) -> None:
    """A model that a person is loading just now is used when it is ready, with the window that it got."""
    loading = asyncio.create_task(studio.residency.load_just_in_time("slow", 3600, evict=False))
    await asyncio.sleep(0.05)
    assert (await chat(served, "lmstudio/slow", stream=True)).text
    await loading
    assert len(studio.residency.instances) == 1
