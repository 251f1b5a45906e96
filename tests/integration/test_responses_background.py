"""Responses in the background, as the `openai` client asks for them, follows them and stops them."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, elbowroom_with_studio, eventually
from openai import AsyncOpenAI, NotFoundError
from openai.types.responses import Response
from openai_client import Trio, client_of
from openai_schemas import check_schema
from responding import send, text_in
from serving import serve, settings_for
from stored_conversations import begun, turn_begun

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor
from elbowroom.server.responses import background
from elbowroom.server.responses.encode import ResponseEncoder
from elbowroom.server.state import SHARED


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Run elbowroom in front of a simulated LM Studio, and a client."""
    async with elbowroom_with_studio(tmp_path) as (served, studio), client_of(served) as client:
        yield client, studio, served


async def ended(client: AsyncOpenAI, response_id: str) -> Response:
    """Ask for a response until it has ended."""
    return await when(client, response_id, lambda response: response.status not in ("queued", "in_progress"))


async def when(client: AsyncOpenAI, response_id: str, holds: Callable[[Response], bool]) -> Response:
    """Ask for a response, as clients do, until something holds for it."""
    for _ in range(1000):
        if holds(response := await client.responses.retrieve(response_id)):
            return response
        await asyncio.sleep(0.005)
    raise AssertionError("it does not come")


async def test_a_response_is_answered_while_nobody_waits(trio: Trio) -> None:
    """It is there at once, queued; GET tells how far it is, and in the end what it says; others go on from it."""
    client, studio, _ = trio
    release = asyncio.Event()
    studio.enqueue(Script("One two three. ", WaitFor(release), "Four."), "Five.")
    first = await client.responses.create(model="writer", input="Count.", background=True)
    assert (first.status, first.background, first.output) == ("queued", True, [])
    assert (await when(client, first.id, lambda response: response.status != "queued")).status == "in_progress"
    release.set()
    last = await ended(client, first.id)
    assert (last.status, last.output_text, last.background) == ("completed", "One two three. Four.", True)
    assert last.usage is not None
    assert last.usage.output_tokens > 0
    second = await client.responses.create(model="writer", input="Go on.", previous_response_id=first.id)
    assert second.output_text == "Five."


async def test_events_are_followed_from_a_number(trio: Trio) -> None:
    """A client that leaves a stream finds the rest of the very same events by their numbers, also while they come."""
    client, studio, _ = trio
    release = asyncio.Event()
    studio.enqueue(Script("One two three. ", WaitFor(release), "Four five."))
    stream = await client.responses.create(model="writer", input="Count.", background=True, stream=True)
    seen: list[Any] = []
    async for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta" and "three" in event.delta:
            break
    await stream.close()
    assert [event.type for event in seen[:3]] == ["response.created", "response.queued", "response.in_progress"]
    assert seen[0].response.status == seen[1].response.status == "queued"
    response_id = seen[0].response.id
    going_on = await client.responses.retrieve(response_id, stream=True, starting_after=seen[-1].sequence_number)
    release.set()
    rest = [event async for event in going_on]
    numbers = [event.sequence_number for event in [*seen, *rest]]
    assert numbers == list(range(len(numbers)))
    said = [event.delta for event in [*seen, *rest] if event.type == "response.output_text.delta"]
    assert "".join(said) == "One two three. Four five."
    assert rest[-1].type == "response.completed"
    again = [event async for event in await client.responses.retrieve(response_id, stream=True)]
    assert again == [*seen, *rest]
    for event in again:
        if event.type != "response.queued":  # which OpenAI's own description leaves out
            check_schema("ResponseStreamEvent", event.to_dict(mode="json"))
    [last] = [event async for event in await client.responses.retrieve(response_id, stream=True, starting_after=5000)]
    assert last == rest[-1]


async def test_it_is_stopped(trio: Trio) -> None:
    """Cancelling ends it with the words that it has, for those too that follow it; the engine is left alone."""
    client, studio, _ = trio
    studio.enqueue(Script("One two three. ", WaitFor(asyncio.Event())))
    stream = await client.responses.create(model="writer", input="Count.", background=True, stream=True)
    seen, answers = list[Any](), list[Response]()
    async for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta" and "three" in event.delta:
            answers.append(await client.responses.cancel(seen[0].response.id))
    [stopped] = answers
    assert stopped.status == "cancelled"
    assert stopped.output_text.startswith("One two three")
    assert seen[-1].response.status == "cancelled"
    assert (await client.responses.retrieve(stopped.id)).status == "cancelled"
    assert (await client.responses.cancel(stopped.id)).status == "cancelled"
    await eventually(lambda: studio.open_requests == 0, "the engine goes on")


async def test_it_is_stopped_before_its_first_word(trio: Trio) -> None:
    """One that still waits for the engine is cancelled as well, whenever the order comes."""
    client, studio, _ = trio
    for _ in range(3):
        studio.enqueue(Script(WaitFor(asyncio.Event())))
        asked = await client.responses.create(model="writer", input="Count.", background=True)
        assert (await client.responses.cancel(asked.id)).status == "cancelled"
    await eventually(lambda: studio.open_requests == 0, "the engine goes on")


async def test_an_order_to_stop_that_comes_after_the_last_word(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all is said, a stop changes nothing, though the end is still being written: the response is whole."""
    client, studio, _ = trio
    is_written, may_end, is_waited_for = asyncio.Event(), threading.Event(), asyncio.Event()
    loop, end, has_ended = asyncio.get_running_loop(), ResponseEncoder.end, background.BackgroundResponse.has_ended

    def held(self: ResponseEncoder, answer: Any) -> bytes:
        if not is_written.is_set():  # a second end does not wait
            loop.call_soon_threadsafe(is_written.set)
            assert may_end.wait(timeout=10)
        return end(self, answer)

    async def waited(self: background.BackgroundResponse) -> None:
        is_waited_for.set()
        await has_ended(self)

    monkeypatch.setattr(ResponseEncoder, "end", held)
    monkeypatch.setattr(background.BackgroundResponse, "has_ended", waited)
    studio.enqueue("One two three.")
    asked = await client.responses.create(model="writer", input="Count.", background=True)
    await is_written.wait()
    stopping = asyncio.create_task(client.responses.cancel(asked.id))
    await is_waited_for.wait()
    may_end.set()
    for response in (await stopping, await ended(client, asked.id)):
        assert (response.status, response.output_text, len(response.output)) == ("completed", "One two three.", 1)
    events = [event async for event in await client.responses.retrieve(asked.id, stream=True)]
    assert [event.type for event in events[-2:]] == ["response.output_item.done", "response.completed"]


async def test_its_failure_is_told(trio: Trio) -> None:
    """A response that fails says so with the reason, and keeps what was said."""
    client, studio, served = trio
    await studio.stop()
    asked = await client.responses.create(model="writer", input="Count.", background=True)
    failed = await ended(client, asked.id)
    assert failed.status == "failed"
    assert failed.error is not None
    assert "Start its server" in failed.error.message
    check_schema("Response", await send(served, f"/{asked.id}", "GET"))
    events = [event async for event in await client.responses.retrieve(asked.id, stream=True)]
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]


async def test_it_is_the_owners_and_can_be_deleted(trio: Trio) -> None:
    """Others get a 404; after its end it can be deleted, and then it is gone."""
    nobody, studio, served = trio
    client = nobody.with_options(default_headers={"X-Elbowroom-User": "ann"})
    studio.enqueue("One.")
    asked = await client.responses.create(model="writer", input="Count.", background=True)
    await ended(client, asked.id)
    for path, method in (("", "GET"), ("/cancel", "POST")):
        refused = await send(served, f"/{asked.id}{path}", method, owner="bob")
        assert refused["status_code"] == 404
    await client.responses.delete(asked.id)
    with pytest.raises(NotFoundError):
        await client.responses.retrieve(asked.id)


async def test_events_of_old_ones_are_let_go(trio: Trio, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the last ones keep their events; the others are told from their turns, and only so many run at once."""
    client, studio, served = trio
    monkeypatch.setattr(background, "MOST_ENDED", 1)
    asked = []
    for number in range(4):
        studio.enqueue(f"Answer {number}.")
        asked.append(await client.responses.create(model="writer", input=f"Question {number}?", background=True))
        await ended(client, asked[-1].id)
    assert len(served.app[background.BACKGROUND]._known) <= 3
    for number, each in enumerate(asked):
        kept = await client.responses.retrieve(each.id)
        assert (kept.status, kept.output_text, kept.background) == ("completed", f"Answer {number}.", True)
    monkeypatch.setattr(background, "MOST_AT_ONCE", 0)
    refused = await send(served, model="writer", input="a", background=True)
    assert (refused["status_code"], refused["error"]["code"]) == (429, "queue_full")


async def test_the_end_of_the_server_ends_it(tmp_path: Path) -> None:
    """What was said is there after a restart, as an incomplete response that others go on from."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        settings = settings_for(studio.base_url, agents=AGENT)
        async with serve(tmp_path, settings) as served:
            studio.enqueue(Script("One two three. ", WaitFor(asyncio.Event())))
            asked = await send(served, model="writer", input="Count.", background=True)
            await eventually(lambda: served.app[SHARED].running.phases() == ["streaming"], "it does not begin")
        async with serve(tmp_path, settings) as served:
            kept = await send(served, f"/{asked['id']}", "GET")
            assert (kept["status"], kept["background"]) == ("incomplete", True)
            assert text_in(kept).startswith("One two three")
            check_schema("Response", kept)
            async with client_of(served) as client:
                events = [event async for event in await client.responses.retrieve(asked["id"], stream=True)]
                assert events[-1].type == "response.incomplete"
            studio.enqueue("Four.")
            assert (await send(served, model="writer", input="Go on.", previous_response_id=asked["id"]))["output"]


async def test_a_crash_leaves_what_was_written(tmp_path: Path) -> None:
    """After a crash it is incomplete, with the words that had been written."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        settings = settings_for(studio.base_url, agents=AGENT)
        async with serve(tmp_path, settings) as served:
            conversations = served.app[SHARED].store.conversations
            conversations.note([*begun("conv_1", "First?", owner=""), *turn_begun("turn_1bg", "conv_1", "conv_1.1")])
            assert await conversations.settled()
        async with serve(tmp_path, settings) as served:
            kept = await send(served, "/resp_1bg", "GET")
            assert (kept["status"], text_in(kept)) == ("incomplete", "Let me look.")
