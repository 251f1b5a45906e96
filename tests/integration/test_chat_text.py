"""Text that breaks careless code: separators, frames inside text, surrogates, characters split over reads."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
import pytest_asyncio
from chatting import (
    MODEL,
    RAW_MODEL,
    calls_of,
    chat_body,
    chunks_of,
    delta_frame,
    elbowroom_with_studio,
    function_spec,
    stream_bytes,
)
from own_tools import own_tool
from pair_fixtures import Pair
from serving import text_of
from spread_variants import spread

from elbowroom.demo import Pause, Raw, Script, SimulatedModel, Text, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
pair = pair_fixtures.pair
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
TEXTS = {
    "separators": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei",
    "frame": 'x\n\ndata: [DONE]\n\ndata: {"error": {"message": "no"}}\n\n: comment\n\nevent: error\n\n',
    "carriage returns": "a\rb\r\nc\r\r\n",
    "controls": "\x00\x01\x7f\u200b\ufeff\u202e",
    "emoji": "👩‍👩‍👧‍👦🏳️‍🌈é e\u0301",
    "lone surrogate": "a\ud83d b\ude00",
    "json": '"}]}\\"\\\\ \\u0041 </script>',
    "done": "[DONE]",
    "non-characters": "\ufffe\uffff\U0010ffff",
}


def whole(text: str) -> str:
    """Return a text with a replacement for each half of a character that stands alone: no client reads such halves."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


EXOTIC = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
EXOTIC_OF_MODELS = pytest.mark.parametrize(("text", "model"), spread(TEXTS.values(), ["writer", RAW_MODEL]))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom in front of a simulated LM Studio, with a window that holds everything in these tests."""
    large = SimulatedModel(MODEL, max_context_length=4_000_000, loaded_context_length=4_000_000)
    async with elbowroom_with_studio(tmp_path_factory.mktemp("chats"), model=large) as both:
        yield both


@EXOTIC_OF_MODELS
async def test_text_of_the_model(pair: Pair, model: str, text: str) -> None:
    """What the model says arrives as it was said, in one [DONE]-ended stream of one-line frames, and whole.

    Halves of characters, which have no encoding, are replaced.
    """
    served, studio = pair
    frame = delta_frame({"content": text}) + delta_frame({"reasoning_content": text})
    studio.enqueue(Script(Raw(frame)), Script(Raw(frame)))
    stream = await stream_bytes(served, chat_body(model=model))
    assert stream.isascii()
    assert text_of(chunks_of(stream)) == whole(text)
    message = (await served.chat(model))["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == (whole(text), whole(text))


@EXOTIC_OF_MODELS
async def test_text_of_the_client(pair: Pair, model: str, text: str) -> None:
    """What the client writes reaches the model as it was written: in messages, names, tools, calls and results.

    Halves of characters, for which an engine may refuse a request, are replaced. Arguments with an escaped one are put
    into JSON that engines can read.
    """
    served, studio = pair
    arguments = json.dumps({"x": text})
    call = {"id": "a", "type": "function", "function": {"name": "t", "arguments": arguments}}
    messages = [
        {"role": "user", "content": text, "name": text},
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": text},
    ]
    tool = function_spec("t", x={"description": text})
    await stream_bytes(served, {"model": model, "messages": messages, "tools": [tool], "user": text})
    body = studio.chats[0].body
    sent = body["messages"][-3:]
    told = sent[1]["tool_calls"][0]["function"]["arguments"]
    assert told in (arguments, json.dumps({"malformed_arguments": arguments}))
    sent[1]["tool_calls"][0]["function"]["arguments"] = arguments
    read = json.loads(whole(json.dumps([messages, tool, text], ensure_ascii=False)))
    assert [sent, body["tools"][0], body["user"]] == read


@EXOTIC
async def test_calls_of_client_tools(pair: Pair, text: str) -> None:
    """Names and arguments of calls arrive as the model wrote them."""
    served, studio = pair
    function = {"name": text, "arguments": json.dumps({"x": text})}
    delta = {"tool_calls": [{"index": 0, "id": text, "type": "function", "function": function}]}
    studio.enqueue(Script(Raw(delta_frame(delta))))
    stream = await stream_bytes(served, chat_body(tools=[function_spec(text)]))
    [call] = calls_of(chunks_of(stream))
    assert call["name"] == text
    assert json.loads(call["arguments"]) == {"x": text}


@EXOTIC
async def test_results_of_server_tools(tmp_path: Path, text: str) -> None:
    """Arguments and results of the server's tools go both ways unharmed."""
    seen: list[str] = []
    value = whole(text)  # JSON can say more than a tool takes

    @own_tool
    async def echo(value: str) -> str:
        """Say it again."""
        seen.append(value)
        return value

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [echo]) as (served, studio):
        said = Raw(delta_frame({"content": text}) + delta_frame({"reasoning_content": text}))
        studio.enqueue(Script(said, ToolCall("echo", {"value": text})), "Done.")
        await stream_bytes(served, chat_body())
        call, result = studio.chats[1].body["messages"][-2:]
        assert seen == [value]
        assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"value": value}
        assert call["content"] == value
        assert result["content"] == value


async def test_invented_name_of_half_a_character(tmp_path: Path) -> None:
    """A tool name that cannot be encoded is answered like any other name that nobody offered."""

    @own_tool
    async def unused() -> None:
        """Do nothing."""

    function = {"name": "a\ud83d", "arguments": '{"x": "\ud83d'}
    calls = {"tool_calls": [{"index": 0, "id": "0", "type": "function", "function": function}]}
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [unused]) as (served, studio):
        studio.enqueue(Script(Raw(delta_frame(calls))), "I see.")
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "I see."


@EXOTIC
async def test_names_of_models(pair: Pair, text: str) -> None:
    """A model name that is anything but a name is refused in words that can be read."""
    served, _ = pair
    answer = await served.chat(text)
    assert answer["error"]["code"] == "model_not_found"


@pytest.mark.fault("characters split over reads", "streaming", "the same characters")
@MODELS
async def test_characters_split_over_reads(pair: Pair, model: str) -> None:
    """A character whose bytes arrive one by one is that character."""
    served, studio = pair
    text = "é👍🏽\u2028ß"
    frame = b'data: {"choices":[{"index":0,"delta":{"content":"' + text.encode() + b'"}}]}\r\n\r\n'
    steps: list[Any] = []
    for byte in frame:
        steps += [Raw(bytes([byte])), Pause(0.001)]
    studio.enqueue(Script(*steps))
    assert text_of(chunks_of(await stream_bytes(served, chat_body(model=model)))) == text


@MODELS
async def test_surrogate_pair_split_over_deltas(pair: Pair, model: str) -> None:
    """An emoji whose halves come in two deltas is an emoji for a client that joins them, streamed or not."""
    served, studio = pair
    frames: list[Raw | Pause] = [
        Raw(b'data: {"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}\n\n'),
        Pause(0.01),
        Raw(b'data: {"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}\n\n'),
    ]
    studio.enqueue(Script(*frames), Script(*frames))
    joined = text_of(chunks_of(await stream_bytes(served, chat_body(model=model))))
    assert joined.encode("utf-16", "surrogatepass").decode("utf-16") == "😀"
    assert (await served.chat(model))["choices"][0]["message"]["content"] == "😀"


@pytest.mark.fault("odd event stream", "streaming", "read over")
@pytest.mark.parametrize(
    "noise",
    [
        b"\xef\xbb\xbf",
        b": comment\n\n",
        b"retry: 100\nid: 7\n\n",
        b"\n\n\n",
        b"event: message\n",
    ],
    ids=["byte order mark", "comment", "fields", "blank lines", "event name"],
)
async def test_tolerant_reader(pair: Pair, noise: bytes) -> None:
    """Everything that event streams may contain besides data is read over."""
    served, studio = pair
    frame = b'data:{"choices":[{"index":0,\r\ndata: "delta":{"content":"Yes."}}]}\r\n\r\n'
    studio.enqueue(Script(Raw(noise + frame)))
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Yes."


@pytest.mark.slow
@pytest.mark.fault("huge result or frame", "streaming", "whole")
@MODELS
async def test_large_pieces(pair: Pair, model: str) -> None:
    """Nearly a megabyte in one event and in a message goes through."""
    served, studio = pair
    studio.count_tokens = lambda messages, tools: 10
    large = "0123456789abcdef" * 60_000
    studio.enqueue(Script(Raw(delta_frame({"content": large})), Text("!", whole=True)))
    assert text_of(chunks_of(await stream_bytes(served, chat_body(large, model=model)))) == f"{large}!"
    assert studio.chats[0].body["messages"][-1]["content"] == large


async def test_long_history(pair: Pair) -> None:
    """Four hundred messages reach the model in their order, as sent."""
    served, studio = pair
    studio.count_tokens = lambda messages, tools: 10
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"{n} " * 100} for n in range(399)]
    await stream_bytes(served, {"model": "writer", "messages": messages})
    assert studio.chats[0].body["messages"][1:] == messages
