"""Kept responses as OpenAI's clients read them: as a stream of events, and the items that they answer."""

import asyncio
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import MODEL, elbowroom_with_studio
from openai_schemas import check_schema
from pair_fixtures import Pair
from responding import respond, send
from serving import Served, parse_frames

from elbowroom.demo import Reasoning, Script, SimulatedModel, ToolCall, WaitFor

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
TOOLS = [{"type": "function", "name": "read_note", "parameters": {"type": "object", "properties": {}}}]


async def retold(served: Served, response_id: str, query: str = "") -> list[Any]:
    """Return the events of a kept response."""
    url = f"{served.url}/v1/responses/{response_id}?stream=true{query}"
    async with served.http.get(url) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        return parse_frames(await response.read())


@pytest.mark.fault("kept response asked as a stream", "streaming", "events of OpenAI's form")
async def test_a_kept_response_is_streamed(pair: Pair) -> None:
    """Thoughts, words and calls come as events of OpenAI's form, and the last one holds what GET shows."""
    served, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), "Looking.", ToolCall("read_note", {"path": "a"})))
    first = await respond(served, "First?", tools=TOOLS)
    events = await retold(served, first["id"])
    for event in events:
        check_schema("ResponseStreamEvent", event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
    assert [event["delta"] for event in events if event["type"] == "response.output_text.delta"] == ["Looking."]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == first["output"]
    shown = await send(served, f"/{first['id']}", "GET")
    assert events[-1]["response"] == {name: value for name, value in shown.items() if name != "status_code"}
    assert events[-1]["type"] == "response.completed"


async def test_a_kept_response_tells_when_it_was_completed(pair: Pair) -> None:
    """It was at the time that the answer itself has told."""
    served, _ = pair
    first = await respond(served, "First?")
    shown = await send(served, f"/{first['id']}", "GET")
    assert shown["completed_at"] == pytest.approx(first["completed_at"], abs=1)


async def test_a_stream_goes_on_after_a_number(pair: Pair) -> None:
    """Only later events come; the last comes always, since the numbers of the first stream were others."""
    served, studio = pair
    studio.enqueue("One.")
    first = await respond(served, "First?")
    events = await retold(served, first["id"])
    assert await retold(served, first["id"], "&starting_after=3") == events[4:]
    [last] = await retold(served, first["id"], "&starting_after=5000")
    assert (last["type"], last["sequence_number"]) == ("response.completed", 5001)
    assert last["response"]["output"] == first["output"]
    url = f"{served.url}/v1/responses/{first['id']}?stream=true&starting_after=x"
    async with served.http.get(url) as refused:
        assert refused.status == 400
        assert (await refused.json())["error"]["param"] == "starting_after"


async def test_a_response_that_is_being_given_is_waited_for(pair: Pair) -> None:
    """Its stream holds all that it has said in the end; one that is not there is a 404."""
    served, studio = pair
    release = asyncio.Event()
    studio.enqueue(Script("One ", WaitFor(release), "two."))
    body = {"model": "writer", "input": "Count.", "stream": True}
    async with served.http.post(f"{served.url}/v1/responses", json=body) as streaming:
        received = b""
        while b"One" not in received:
            received += await streaming.content.readline()
        response_id = received.split(b'"id":"')[1].split(b'"')[0].decode()
        again = asyncio.create_task(retold(served, response_id))
        await asyncio.sleep(0)
        assert not again.done()
        release.set()
        await streaming.content.read()
        events = await again
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == "One two."
    async with served.http.get(f"{served.url}/v1/responses/resp_none?stream=true") as response:
        assert response.status == 404


async def test_the_items_that_a_response_answers(pair: Pair) -> None:
    """All that was said before it, the newest first, in pages; its own output is none of them."""
    served, studio = pair
    studio.enqueue(Script("Looking.", ToolCall("read_note", {"path": "a"})), "Two.")
    first = await respond(served, "First?", tools=TOOLS, instructions="Be short.")
    result = {"type": "function_call_output", "call_id": first["output"][-1]["call_id"], "output": "oats"}
    second = await respond(served, [result], tools=TOOLS, previous_response_id=first["id"])
    listed = await send(served, f"/{second['id']}/input_items?order=asc", "GET")
    asked, *answered, returned = listed["data"]
    assert asked["content"] == [{"type": "input_text", "text": "First?"}]
    assert answered == first["output"]
    assert (returned["type"], returned["output"], returned["call_id"]) == (
        "function_call_output",
        "oats",
        result["call_id"],
    )
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (asked["id"], returned["id"], False)
    page = await send(served, f"/{second['id']}/input_items?limit=2", "GET")
    assert page["data"] == listed["data"][:1:-1]
    assert page["has_more"]
    rest = await send(served, f"/{second['id']}/input_items?limit=100&after={page['last_id']}", "GET")
    assert rest["data"] == listed["data"][1::-1]
    own = await send(served, f"/{first['id']}/input_items", "GET")
    assert [item["content"][0]["text"] for item in own["data"]] == ["First?"]


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nothing"])
async def test_pages_that_cannot_be(pair: Pair, query: str) -> None:
    """A wrong page is a 400 that names the field, an unknown response a 404."""
    served, _ = pair
    first = await respond(served)
    refused = await send(served, f"/{first['id']}/input_items?{query}", "GET")
    assert (refused["status_code"], refused["error"]["param"]) == (400, query.partition("=")[0])
    assert (await send(served, "/resp_none/input_items", "GET"))["status_code"] == 404
    assert (await send(served, f"/{first['id']}/input_items", "GET", owner="bob"))["status_code"] == 404


async def test_pictures_and_calls_that_a_client_sent(tmp_path: Path) -> None:
    """What stood in the input stands in the list in its own form."""
    seeing = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
    async with elbowroom_with_studio(tmp_path, model=seeing) as (served, _):
        pixel = "data:image/png;base64,iVBORw0KGgo="
        parts = [{"type": "input_text", "text": "What?"}, {"type": "input_image", "image_url": pixel}]
        call = {"type": "function_call", "call_id": "c1", "name": "read_note", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": "c1", "output": "oats"}
        asked = [{"role": "user", "content": parts}, call, result, {"role": "user", "content": "And?"}]
        only = await respond(served, asked)
        listed = await send(served, f"/{only['id']}/input_items?order=asc", "GET")
        kinds = ["message", "function_call", "function_call_output", "message"]
        assert [item["type"] for item in listed["data"]] == kinds
        assert listed["data"][0]["content"][1] == {"type": "input_image", "image_url": pixel, "detail": "auto"}
        assert (listed["data"][1]["name"], listed["data"][1]["arguments"]) == ("read_note", "{}")
