"""The `openai` Python client on the Responses API."""

from pathlib import Path
from typing import Any

import openai
import openai_client
import pytest
from chatting import RAW_MODEL
from openai import AsyncOpenAI
from openai.types.responses import FunctionToolParam, Response, ResponseStreamEvent
from openai_client import Trio, client_of
from patient_counting import wait_for_counts
from pydantic import BaseModel
from request_checks import assert_fits
from small_window import ANSWER, history, orders_of, small_window, turns_of

from elbowroom.demo import Error, Reasoning, Script, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
lasting, trio = openai_client.lasting, openai_client.trio
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
READ_NOTE: FunctionToolParam = {
    "type": "function",
    "name": "read_note",
    "description": "Reads a note.",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
    "strict": False,
}


class Wanted(BaseModel):
    """What an answer has to be."""

    path: str


async def events_of(client: AsyncOpenAI, **fields: Any) -> list[ResponseStreamEvent]:
    """Ask with streaming and return the events, whose numbers have no gaps."""
    stream: Any = await client.responses.create(stream=True, **fields)
    events = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def last_response(events: list[ResponseStreamEvent]) -> Response:
    """Return the response that a stream ends with."""
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete", "response.failed")
    return last.response


@MODELS
async def test_whole(trio: Trio, model: str) -> None:
    """Without streaming, the response comes whole, with usage."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Hm."), "One two three."))
    answer = await client.responses.create(model=model, input="Hello", instructions="Be short.")
    assert answer.output_text == "One two three."
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert (answer.status, answer.model, answer.instructions) == ("completed", model, "Be short.")
    assert answer.usage is not None
    assert answer.usage.input_tokens == studio.chats[0].prompt_tokens
    assert studio.chats[0].body["messages"][-1] == {"role": "user", "content": "Hello"}
    assert "Be short." in studio.chats[0].body["messages"][0]["content"]


@MODELS
async def test_stream(trio: Trio, model: str) -> None:
    """A stream begins with the response, gives each item from its beginning to its end, and ends with all of them."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Hm."), "One two three."))
    events = await events_of(client, model=model, input="Hello")
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "One two three."
    assert last_response(events).output_text == "One two three."
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == last_response(events).output


@MODELS
async def test_goes_on_from_the_response_before(trio: Trio, model: str) -> None:
    """With `previous_response_id` the model is told all that was said before, but not the instructions of then."""
    client, studio, _ = trio
    studio.enqueue("One.", "Two.", "Three.")
    first = await client.responses.create(model=model, input="First?", instructions="Be short.")
    second = await client.responses.create(model=model, input="Second?", previous_response_id=first.id)
    third = last_response(
        await events_of(client, model=model, input="Third?", previous_response_id=second.id, instructions="Be long.")
    )
    said = [message["content"] for message in studio.chats[2].body["messages"] if message["role"] != "system"]
    assert said == ["First?", "One.", "Second?", "Two.", "Third?"]
    system = [message["content"] for message in studio.chats[2].body["messages"] if message["role"] == "system"]
    assert "Be long." in system[0]
    assert "Be short." not in str(system)
    assert third.previous_response_id == second.id
    kept = await client.responses.retrieve(second.id)
    assert kept.output == second.output
    assert kept.previous_response_id == first.id


@MODELS
async def test_tools_loop(trio: Trio, model: str) -> None:
    """A call is handed out, and goes on with its result, by the id of the response or with all items sent back."""
    client, studio, _ = trio
    calls = Script(Reasoning("Look."), "Looking.", ToolCall("read_note", {"path": "a"}))
    studio.enqueue(calls, "It says oats.", "Really oats.")
    events = await events_of(client, model=model, input="What is in it?", tools=[READ_NOTE])
    first = last_response(events)
    [call] = [item for item in first.output if item.type == "function_call"]
    assert (call.name, call.arguments) == ("read_note", '{"path": "a"}')
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "oats"}
    second = await client.responses.create(
        model=model, input=[result], previous_response_id=first.id, tools=[READ_NOTE]
    )
    assert second.output_text == "It says oats."
    items: Any = [item.model_dump(exclude_none=True) for item in first.output]
    asked: Any = {"role": "user", "content": "What is in it?"}
    third = await client.responses.create(model=model, input=[asked, *items, result], tools=[READ_NOTE])
    assert third.output_text == "Really oats."
    assert studio.chats[1].body["messages"] == studio.chats[2].body["messages"]
    assert studio.chats[1].body["messages"][-1] == {"role": "tool", "tool_call_id": call.call_id, "content": "oats"}


async def test_errors(trio: Trio) -> None:
    """What cannot be done is refused in words, and a model that fails is told as what it is."""
    client, studio, _ = trio
    with pytest.raises(openai.NotFoundError, match="no model"):
        await client.responses.create(model="nobody", input="Hello")
    with pytest.raises(openai.NotFoundError, match="to go on from") as unknown:
        await client.responses.create(model="writer", input="Hello", previous_response_id="resp_0")
    assert unknown.value.code == "previous_response_not_found"
    with pytest.raises(openai.BadRequestError, match="background"):
        await client.responses.create(model="writer", input="Hello", background=True, store=False)
    studio.enqueue(Script("Begun", Error("it broke")))
    events = await events_of(client, model="writer", input="Hello")
    assert [event.type for event in events[-2:]] == ["error", "response.failed"]
    failed = last_response(events)
    assert failed.error is not None
    assert "it broke" in failed.error.message


@MODELS
async def test_helpers(trio: Trio, model: str) -> None:
    """The client's own accumulation of a stream, its parsing into a type, and all other calls work."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Hm."), '{"path": "a"}'), '{"path": "b"}')
    async with client.responses.stream(model=model, input="Which?", text_format=Wanted) as stream:
        async for _ in stream:
            pass
        first = await stream.get_final_response()
    assert first.output_parsed == Wanted(path="a")
    second = await client.responses.parse(
        model=model, input="And now?", text_format=Wanted, previous_response_id=first.id
    )
    assert second.output_parsed == Wanted(path="b")
    assert [chat.body["response_format"]["type"] for chat in studio.chats] == ["json_schema"] * 2
    size = await client.responses.input_tokens.count(model=model, input="And now?", previous_response_id=first.id)
    assert size.input_tokens == studio.chats[1].prompt_tokens
    assert (await client.responses.cancel(second.id)).status == "completed"
    await client.responses.delete(second.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(second.id)
    await client.responses.create(model=model, input="On?", previous_response_id=first.id)
    with pytest.raises(openai.ConflictError):
        await client.responses.delete(first.id)


@MODELS
async def test_compaction_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """A history that outgrows the window is compacted; every event is read, and the chain goes on."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path) as (served, studio), client_of(served) as client:
        events = await events_of(client, model=model, input=history(12))
        assert last_response(events).output_text == ANSWER
        assert orders_of(studio)
        again = await client.responses.create(
            model=model, input="Are you sure?", previous_response_id=last_response(events).id
        )
        assert again.output_text == ANSWER
        assert_fits(turns_of(studio)[-1])
