"""Tools that the client brings and runs itself."""

import json
from typing import Any

import pair_fixtures
import pytest
from chatting import (
    RAW_MODEL,
    calls_of,
    chat_body,
    chunks_of,
    delta_frame,
    finish_of,
    function_spec,
    split_frames,
    stream_bytes,
)
from pair_fixtures import Pair
from serving import text_of

from elbowroom.demo import Cut, Pause, Raw, Script, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
TOOLS = [function_spec("read_note"), function_spec("search", query={"type": "string"})]


def piece(index: int, arguments: str, name: str | None = None, call_id: str | None = None) -> bytes:
    """Return the frame of one piece of a tool call, as LM Studio sends it."""
    function = {"name": name, "arguments": arguments}
    return delta_frame({"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]})


@MODELS
async def test_several_calls_in_one_step(pair: Pair, model: str) -> None:
    """All calls of a step arrive whole, in order, with ids of their own, and `tool_calls` as the finish."""
    served, studio = pair
    studio.enqueue(Script("Let me look.", ToolCall("read_note", {"path": "ä.md"}), ToolCall("search", {"query": "b"})))
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model, tools=TOOLS)))
    first, second = calls_of(chunks)
    assert (first["name"], json.loads(first["arguments"])) == ("read_note", {"path": "ä.md"})
    assert (second["name"], json.loads(second["arguments"])) == ("search", {"query": "b"})
    assert first["id"] != second["id"]
    assert finish_of(chunks) == "tool_calls"
    assert text_of(chunks) == "Let me look."


async def test_form_of_tool_deltas(pair: Pair) -> None:
    """A call opens with index, id, type, name and empty arguments; what follows has index and arguments only."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", {"path": "a.md"})))
    chunks = chunks_of(await stream_bytes(served, chat_body(tools=TOOLS)))
    deltas = [delta for chunk in chunks for delta in chunk["choices"][0]["delta"].get("tool_calls", ())]
    opening, *later = deltas
    assert set(opening) == {"index", "id", "type", "function"}
    assert opening["type"] == "function"
    assert opening["function"] == {"name": "read_note", "arguments": ""}
    assert later
    assert all(set(delta) == {"index", "function"} and set(delta["function"]) == {"arguments"} for delta in later)


@pytest.mark.fault("odd tool calls", "streaming", "two whole calls")
@MODELS
async def test_interleaved_calls(pair: Pair, model: str) -> None:
    """Two calls whose pieces the upstream mixes arrive as two whole calls."""
    served, studio = pair
    pieces = [
        piece(0, "", "read_note", "x"),
        piece(1, "", "search", "y"),
        piece(0, '{"path":'),
        piece(1, '{"query":'),
        piece(0, '"a.md"}'),
        piece(1, '"b"}'),
    ]
    studio.enqueue(Script(*map(Raw, pieces), finish_reason="tool_calls"))
    calls = calls_of(chunks_of(await stream_bytes(served, chat_body(model=model, tools=TOOLS))))
    assert [(call["name"], json.loads(call["arguments"])) for call in calls] == [
        ("read_note", {"path": "a.md"}),
        ("search", {"query": "b"}),
    ]


@pytest.mark.fault("odd tool calls", "streaming", "ids made here")
@MODELS
@pytest.mark.parametrize("their_id", [None, "", "call_0", "same"])
async def test_ids_are_ours(pair: Pair, model: str, their_id: str | None) -> None:
    """Missing, repeated or restarting ids of the upstream never reach the client: ours are nine letters and digits."""
    served, studio = pair
    seen: list[str] = []
    for _ in range(2):
        frames = [piece(number, '{"path":"a"}', "read_note", their_id) for number in range(2)]
        studio.enqueue(Script(*map(Raw, frames), finish_reason="tool_calls"))
        calls = calls_of(chunks_of(await stream_bytes(served, chat_body(model=model, tools=TOOLS))))
        seen += [call["id"] for call in calls]
    assert len(set(seen)) == 4
    assert all(len(one) == 9 and one.isascii() and one.isalnum() for one in seen)


@MODELS
async def test_cut_inside_a_call_hands_out_no_half_call(pair: Pair, model: str) -> None:
    """A call that breaks off in the middle of its arguments is not handed out; the stream ends with an error."""
    served, studio = pair
    studio.enqueue(Script("Well. ", Pause(0.02), ToolCall("search", pieces=['{"query": "ha']), Pause(0.02), Cut()))
    stream = await stream_bytes(served, chat_body(model=model, tools=TOOLS))
    assert b"tool_calls" not in stream
    assert "error" in json.loads(split_frames(stream)[-1])


@MODELS
async def test_token_limit_inside_a_call_hands_out_no_half_call(pair: Pair, model: str) -> None:
    """A call that the token limit broke off is not handed out, and the finish says `length`."""
    served, studio = pair
    studio.enqueue(Script("Well. ", ToolCall("search", pieces=['{"query": "ha']), finish_reason="length"))
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model, tools=TOOLS)))
    assert calls_of(chunks) == []
    assert finish_of(chunks) == "length"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"path": "a",}', '{"path": "a"}'),
        ("{'path': 1}", '{"path": 1}'),
        *((same, same) for same in ('{"path":"a"}', '{"path": "a', "[1]", "[1,", '"text"')),
    ],
)
async def test_broken_arguments_reach_the_client(pair: Pair, written: str, meant: str) -> None:
    """Broken JSON that means an object comes as its JSON; all else is the client's to answer, as the model wrote it."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", written)))
    [call] = calls_of(chunks_of(await stream_bytes(served, chat_body(tools=TOOLS))))
    assert call["arguments"] == meant


async def test_names_that_lm_studio_normalised(pair: Pair) -> None:
    """A tool is called by the name that the client gave it, whatever LM Studio made of it."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("vault.read note")))
    chunks = chunks_of(await stream_bytes(served, chat_body(tools=[function_spec("vault.read note")])))
    assert calls_of(chunks)[0]["name"] == "vault.read note"


@MODELS
async def test_unknown_tool_is_the_clients_to_answer(pair: Pair, model: str) -> None:
    """Where all tools are the client's, so is a call of one that nobody offered."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("invented", {"a": 1})))
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model, tools=TOOLS)))
    assert calls_of(chunks)[0]["name"] == "invented"
    assert finish_of(chunks) == "tool_calls"


@MODELS
async def test_tools_reach_the_model_as_sent(pair: Pair, model: str) -> None:
    """Foreign schemas, extra keys and tools of other kinds are on the upstream's body untouched, in their order."""
    served, studio = pair
    tools: list[dict[str, Any]] = [
        {
            "type": "function",
            "strict": None,
            "function": {
                "name": "odd",
                "description": "",
                "parameters": {
                    "$defs": {"x": {"type": "string"}},
                    "type": "object",
                    "properties": {"a": {"$ref": "#/$defs/x", "default": None}, "ü": {}},
                    "additionalProperties": True,
                },
                "x-vendor": [1, 2.5, None],
            },
        },
        {"type": "function", "function": {"name": "bare"}},
        {"type": "web_search", "filters": {"allowed_domains": ["example.test"]}},
    ]
    fields = {"tool_choice": "auto", "parallel_tool_calls": False}
    await stream_bytes(served, chat_body(model=model, tools=tools, **fields))
    body = studio.chats[0].body
    assert body["tools"] == tools
    assert body["tool_choice"] == "auto"
    assert body["parallel_tool_calls"] is False


@MODELS
async def test_named_function(pair: Pair, model: str) -> None:
    """A choice that names a function offers that one alone and has it called, in words that LM Studio takes."""
    served, studio = pair
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "write")]
    choice = {"type": "function", "function": {"name": "write"}}
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model, tools=tools, tool_choice=choice)))
    assert [call["name"] for call in calls_of(chunks)] == ["write"]
    assert studio.chats[0].body["tools"] == tools[1:]
    assert studio.chats[0].body["tool_choice"] == "required"


@MODELS
@pytest.mark.parametrize("stream", [True, False])
async def test_named_function_that_nobody_offers(pair: Pair, model: str, stream: bool) -> None:
    """It is a 400 that lists the tools, also where a stream was asked for; the model is not asked."""
    served, studio = pair
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("read", "write")]
    choice = {"type": "function", "function": {"name": "delete"}}
    body = chat_body(model=model, tools=tools, tool_choice=choice, stream=stream)
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert (error["param"], error["type"]) == ("tool_choice", "invalid_request_error")
    assert "read, write" in error["message"]
    assert not studio.chats


@MODELS
async def test_round_trip(pair: Pair, model: str) -> None:
    """Calls and results of the history reach the model as sent, odd keys included; a repeated id becomes a new one."""
    served, studio = pair
    call = {"id": "call_0", "type": "function", "function": {"name": "read_note", "arguments": '{"path": "a"}'}}
    other = {**call, "function": {"name": "read_note", "arguments": '{ "path":"b" }'}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Read both."},
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "Hm."},
        {"role": "tool", "tool_call_id": "call_0", "content": "A"},
        {"role": "assistant", "content": "", "tool_calls": [other], "refusal": None},
        {"role": "tool", "tool_call_id": "call_0", "content": [{"type": "text", "text": "B"}], "name": "read_note"},
    ]
    studio.enqueue("Done.")
    chunks = chunks_of(await stream_bytes(served, {"model": model, "messages": messages, "tools": TOOLS}))
    assert text_of(chunks) == "Done."
    sent = studio.chats[0].body["messages"][-5:]
    assert sent[:3] == messages[:3]
    renamed = sent[4]["tool_call_id"]
    assert renamed != "call_0"
    assert sent[3:] == [
        {**messages[3], "tool_calls": [{**other, "id": renamed}]},
        {**messages[4], "tool_call_id": renamed},
    ]
    assert len(studio.chats) == 1


async def test_calls_of_an_answer_that_is_not_streamed(pair: Pair) -> None:
    """Without streaming, the calls stand in the message, whose content is null where nothing was said."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", {"path": "a"}), ToolCall("search", {"query": "b"})))
    [choice] = (await served.chat("writer", tools=TOOLS))["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert [call["function"]["name"] for call in choice["message"]["tool_calls"]] == ["read_note", "search"]
    assert {call["type"] for call in choice["message"]["tool_calls"]} == {"function"}
    assert all(len(call["id"]) == 9 for call in choice["message"]["tool_calls"])


async def test_text_beside_calls_of_an_answer_that_is_not_streamed(pair: Pair) -> None:
    """What the model says before it calls is kept."""
    served, studio = pair
    studio.enqueue(Script("Let me look.", ToolCall("read_note")))
    message = (await served.chat("writer", tools=TOOLS))["choices"][0]["message"]
    assert message["content"] == "Let me look."
    assert message["tool_calls"][0]["function"]["arguments"] == "{}"
