"""The `openai` Python client, as most programs use it."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import openai
import openai_client
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, elbowroom_with_studio, eventually, function_spec
from openai.types.chat import ChatCompletionChunk
from openai_client import Trio, client_of, text_in

from elbowroom.demo import Cut, Error, Overflow, Pause, Raw, Reasoning, Script, ToolCall, WaitFor
from elbowroom.server.state import SHARED

pytestmark = pytest.mark.asyncio(loop_scope="module")
lasting, trio = openai_client.lasting, openai_client.trio
own_trio = openai_client.own_trio
HELLO: Any = [{"role": "user", "content": "Hello"}]
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])


@MODELS
async def test_stream(trio: Trio, model: str) -> None:
    """A stream arrives piece by piece and ends with its finish_reason."""
    client, studio, _ = trio
    studio.enqueue("One two three.")
    chunks = [chunk async for chunk in await client.chat.completions.create(model=model, messages=HELLO, stream=True)]
    assert text_in(chunks) == "One two three."
    assert len(chunks) > 4
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert {chunk.model for chunk in chunks} == {model}


async def test_pieces_come_while_the_model_speaks(trio: Trio) -> None:
    """The first words are there before the last are said."""
    client, studio, _ = trio
    release = asyncio.Event()
    studio.enqueue(Script("First. ", WaitFor(release), "Second."))
    stream = await client.chat.completions.create(model="writer", messages=HELLO, stream=True)
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        if text == "First. ":
            release.set()
    assert text == "First. Second."


@MODELS
async def test_whole(trio: Trio, model: str) -> None:
    """Without streaming, the answer comes whole, with usage."""
    client, studio, _ = trio
    studio.enqueue("One two three.")
    answer = await client.chat.completions.create(model=model, messages=HELLO)
    assert answer.choices[0].message.content == "One two three."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == studio.chats[0].prompt_tokens
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert abs(answer.created - time.time()) < 60


async def test_usage_of_a_stream(trio: Trio) -> None:
    """`include_usage` gives usage in the last chunk."""
    client, studio, _ = trio
    stream = await client.chat.completions.create(
        model="writer", messages=HELLO, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = [chunk async for chunk in stream]
    assert all(chunk.usage is None for chunk in chunks)
    assert last.usage is not None
    assert last.usage.prompt_tokens == studio.chats[0].prompt_tokens


@MODELS
async def test_tools_round_trip(trio: Trio, model: str) -> None:
    """Two calls in one step, run by the program, their results sent back, answered."""
    client, studio, _ = trio
    tools: Any = [function_spec("read_note"), function_spec("search", query={"type": "string"})]
    studio.enqueue(
        Script("Looking.", ToolCall("read_note", {"path": "a"}), ToolCall("search", {"query": "b"})), "Found both."
    )
    first = await client.chat.completions.create(model=model, messages=HELLO, tools=tools)
    said = first.choices[0].message
    assert first.choices[0].finish_reason == "tool_calls"
    assert said.tool_calls is not None
    results = [{"role": "tool", "tool_call_id": call.id, "content": f"result of {call.id}"} for call in said.tool_calls]
    history: Any = [*HELLO, said.model_dump(exclude_none=True), *results]
    second = await client.chat.completions.create(model=model, messages=history, tools=tools)
    assert second.choices[0].message.content == "Found both."
    assert studio.chats[1].body["messages"][-4:] == history


@MODELS
async def test_tools_streamed(trio: Trio, model: str) -> None:
    """The client's own accumulation of a stream gives whole, parsed calls."""
    client, studio, _ = trio
    tools: Any = [function_spec("read_note"), function_spec("search", query={"type": "string"})]
    studio.enqueue(Script(Reasoning("Hm."), ToolCall("read_note", {"path": "ä"}), ToolCall("search", {"query": "b"})))
    async with client.chat.completions.stream(model=model, messages=HELLO, tools=tools) as stream:
        async for _ in stream:
            pass
        answer = await stream.get_final_completion()
    calls = answer.choices[0].message.tool_calls
    assert calls is not None
    assert [json.loads(call.function.arguments) for call in calls] == [{"path": "ä"}, {"query": "b"}]
    assert [call.function.name for call in calls] == ["read_note", "search"]
    assert answer.choices[0].finish_reason == "tool_calls"


async def test_image(trio: Trio) -> None:
    """An image in a message reaches the model as sent."""
    client, studio, _ = trio
    url = "data:image/png;base64,iVBORw0KGgo="
    content = [{"type": "text", "text": "What is it?"}, {"type": "image_url", "image_url": {"url": url}}]
    messages: Any = [{"role": "user", "content": content}]
    answer = await client.chat.completions.create(model="writer", messages=messages)
    assert "image" in (answer.choices[0].message.content or "")
    assert studio.chats[0].body["messages"][-1]["content"] == content


async def test_response_format(trio: Trio) -> None:
    """A JSON schema reaches the model, and its answer parses."""
    client, studio, _ = trio
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    shape: Any = {"type": "json_schema", "json_schema": {"name": "title", "schema": schema}}
    answer = await client.chat.completions.create(model="writer", messages=HELLO, response_format=shape, seed=7)
    assert "title" in json.loads(answer.choices[0].message.content or "")
    assert studio.chats[0].body["response_format"] == shape
    assert studio.chats[0].body["seed"] == 7


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
async def test_either_name_of_the_limit(trio: Trio, name: str) -> None:
    """Both names of the token limit end the answer, with `length`."""
    client, studio, _ = trio
    studio.enqueue("One two three four five six seven eight.")
    limit: Any = {name: 2}
    answer = await client.chat.completions.create(model="writer", messages=HELLO, **limit)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


@pytest.mark.parametrize("model", ["gpt-4o", "lmstudio/nope"])
@pytest.mark.parametrize("stream", [True, False])
async def test_wrong_model(trio: Trio, model: str, stream: bool) -> None:
    """A model that is not there raises NotFoundError with the list of those that are."""
    client, _, _ = trio
    with pytest.raises(openai.NotFoundError) as raised:
        await client.chat.completions.create(model=model, messages=HELLO, stream=stream)
    assert raised.value.code == "model_not_found"
    assert raised.value.param == "model"
    assert MODEL in raised.value.message


@pytest.mark.parametrize("stream", [True, False])
async def test_upstream_down(own_trio: Trio, stream: bool) -> None:
    """While LM Studio is down, a 503 comes in under two seconds and says what to start."""
    client, studio, _ = own_trio
    await studio.stop()
    began = time.monotonic()
    with pytest.raises(openai.InternalServerError) as raised:
        await client.chat.completions.create(model="writer", messages=HELLO, stream=stream)
    assert time.monotonic() - began < 2
    assert raised.value.status_code == 503
    assert raised.value.code == "upstream_unreachable"
    assert "lms server start" in raised.value.message


@MODELS
@pytest.mark.parametrize("failure", [Cut(), Error("The model has crashed.")])
async def test_upstream_cut_in_the_middle(trio: Trio, model: str, failure: Any) -> None:
    """The partial text arrives, then the client raises the error with its words."""
    client, studio, served = trio
    await served.app[SHARED].store.ready()  # words that wait for it to open are lost when the connection breaks
    studio.enqueue(Script("Half an answer", Pause(0.02), failure))
    chunks: list[ChatCompletionChunk] = []
    stream = await client.chat.completions.create(model=model, messages=HELLO, stream=True)

    async def read() -> None:
        async for chunk in stream:
            chunks.append(chunk)  # noqa: PERF401  # what came before the error is the point

    with pytest.raises(openai.APIError, match="LM Studio") as raised:
        await read()
    assert text_in(chunks) == "Half an answer"
    assert raised.value.code in ("upstream_cut", "upstream_error", "model_not_loaded")


async def test_overflow(own_trio: Trio) -> None:
    """A prompt that does not fit raises BadRequestError with OpenAI's code for it."""
    client, studio, _ = own_trio
    studio.reload(MODEL, 256)
    studio.overflow = Overflow(prompt="C")
    messages: Any = [{"role": "user", "content": "word " * 400}]
    with pytest.raises(openai.BadRequestError) as raised:
        await client.chat.completions.create(model="writer", messages=messages, stream=True)
    assert raised.value.code == "context_length_exceeded"


@MODELS
async def test_long_history(trio: Trio, model: str) -> None:
    """Four hundred messages go through, in order, as sent."""
    client, studio, _ = trio
    messages: Any = [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(401)]
    answer = await client.chat.completions.create(model=model, messages=messages)
    assert answer.choices[0].message.content
    assert studio.chats[0].body["messages"][-401:] == messages


async def test_client_that_closes_its_stream(trio: Trio) -> None:
    """Closing the stream stops the model, and the client can go on."""
    client, studio, _ = trio
    studio.tokens_per_second = 200
    studio.enqueue("word " * 4000)
    stream = await client.chat.completions.create(model="writer", messages=HELLO, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    await eventually(lambda: studio.disconnects, "the model goes on for nobody")
    studio.tokens_per_second = 0
    assert (await client.chat.completions.create(model="writer", messages=HELLO)).choices


async def test_thoughts(trio: Trio) -> None:
    """Thoughts come in a field of their own, which the client keeps."""
    client, studio, _ = trio
    studio.enqueue(Script(Reasoning("Let me see."), "Yes."), Script(Reasoning("Let me see."), "Yes."))
    stream = await client.chat.completions.create(model="writer", messages=HELLO, stream=True)
    deltas = [chunk.choices[0].delta async for chunk in stream]
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "Let me see."
    message: Any = (await client.chat.completions.create(model="writer", messages=HELLO)).choices[0].message
    assert message.reasoning_content == "Let me see."
    assert message.content == "Yes."


async def test_logprobs(trio: Trio) -> None:
    """Log probabilities parse as the client's own type."""
    client, studio, _ = trio
    logprobs = {"content": [{"token": "Yes", "logprob": -0.25, "bytes": None, "top_logprobs": []}]}
    choice = {"index": 0, "delta": {"content": "Yes"}, "logprobs": logprobs, "finish_reason": None}
    studio.enqueue(Script(Raw(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")))
    answer = await client.chat.completions.create(model="writer", messages=HELLO, logprobs=True)
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.content is not None
    assert answer.choices[0].logprobs.content[0].logprob == -0.25


async def test_models(trio: Trio) -> None:
    """The list has the agents and the raw models, and each can be shown."""
    client, _, _ = trio
    models = [model async for model in client.models.list()]
    assert [model.id for model in models] == ["writer", RAW_MODEL]
    shown: Any = await client.models.retrieve(RAW_MODEL)
    assert shown.id == RAW_MODEL
    assert shown.loaded_context_length == 32_768
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("nope")


@pytest.mark.parametrize("base", ["", "/", "/v1/", "/v1/v1", "/v1/chat/completions"])
async def test_base_urls_that_people_paste(trio: Trio, base: str) -> None:
    """Every form of the address that people paste works."""
    _, _, served = trio
    async with client_of(served, base) as client:
        assert (await client.chat.completions.create(model="writer", messages=HELLO)).choices


async def test_token(tmp_path: Path) -> None:
    """With a token set, the client's key is checked, and a wrong one raises AuthenticationError."""
    async with elbowroom_with_studio(tmp_path, agents=AGENT) as (served, _):
        text = served.settings.read_text().replace("port = 0", 'port = 0\ntoken = "secret-token"')
        served.settings.write_text(text)
        async with client_of(served) as client:
            with pytest.raises(openai.AuthenticationError):
                await client.chat.completions.create(model="writer", messages=HELLO)
            right = client.with_options(api_key="secret-token")
            assert (await right.chat.completions.create(model="writer", messages=HELLO)).choices
