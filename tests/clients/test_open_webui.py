"""Requests as Open WebUI really sends them, replayed from a recording."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pair_fixtures
import pytest
import pytest_asyncio
from chatting import chunks_of, elbowroom_with_studio, finish_of, forget
from open_webui_recording import RECORDED_MODEL, headers_of, is_chat, recorded
from pair_fixtures import Pair
from serving import Served, text_of

from elbowroom.demo import RecordedRequest, Script, SimulatedModel, ToolCall

AGENT = f'[[agents]]\nid = "{RECORDED_MODEL}"\nmodel = "tiny"\n'

pytestmark = pytest.mark.asyncio(loop_scope="module")
pair = pair_fixtures.pair


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom with the recorded model as an agent without instructions."""
    model = SimulatedModel("tiny", type="vlm", loaded_context_length=131_072)
    async with elbowroom_with_studio(tmp_path_factory.mktemp("pair"), agents=AGENT, model=model) as both:
        yield both


async def replay(served: Served, request: dict[str, Any]) -> tuple[int, str, bytes]:
    """Send a recorded request with its headers and return status, content type and body of the answer."""
    data = json.dumps(request["body"]).encode()
    async with served.http.post(f"{served.url}{request['path']}", data=data, headers=headers_of(request)) as response:
        return response.status, response.content_type, await response.read()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A recorded request, its answer, and what the model was asked for it."""

    request: dict[str, Any]
    status: int
    content_type: str
    answer: bytes
    chats: list[RecordedRequest]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=recorded())
async def replayed(both: Pair, request: pytest.FixtureRequest) -> Replayed:
    """Replay each recorded request once."""
    served, studio = both
    forget(studio)
    studio.enqueue("An answer.", repeat=True)
    return Replayed(request.param, *await replay(served, request.param), [*studio.chats])


async def test_every_request_is_answered_in_its_form(replayed: Replayed) -> None:
    """A stream where one was asked for, one object otherwise; what is not served is an error object."""
    if not is_chat(replayed.request):
        assert replayed.status == 404
        assert set(json.loads(replayed.answer)["error"]) == {"message", "type", "param", "code"}
        return
    assert replayed.status == 200, replayed.answer
    if replayed.request["body"]["stream"]:
        assert replayed.content_type == "text/event-stream"
        chunks = chunks_of(replayed.answer)
        assert text_of(chunks) == "An answer."
        assert finish_of(chunks) == "stop"
    else:
        assert replayed.content_type == "application/json"
        assert json.loads(replayed.answer)["choices"][0]["message"]["content"] == "An answer."


async def test_what_reaches_the_model_is_what_was_sent(replayed: Replayed) -> None:
    """Messages, tools and parameters reach the model exactly as Open WebUI sent them; its headers stay here."""
    if not is_chat(replayed.request):
        assert replayed.chats == []
        return
    [sent] = replayed.chats
    asked = replayed.request["body"]
    changed = {"model": "tiny", "stream": True, "stream_options": {"include_usage": True}}
    room = sent.body.pop("max_tokens")  # what is left of the window, or less where the client wants less
    assert sent.prompt_tokens is not None
    assert 0 < room <= min(asked.get("max_tokens", 131_072), 131_072 - sent.prompt_tokens)
    assert sent.body == {**{name: value for name, value in asked.items() if name != "max_tokens"}, **changed}
    assert not [name for name in sent.headers if name.lower().startswith("x-")]
    assert "Authorization" not in sent.headers


async def test_usage_comes_in_one_chunk(replayed: Replayed) -> None:
    """Open WebUI adds chunks up, so usage comes once: in a chunk of its own if asked for, else at the finish."""
    if not is_chat(replayed.request) or not replayed.request["body"]["stream"]:
        return
    having = [chunk for chunk in chunks_of(replayed.answer) if "usage" in chunk]
    is_known = any(name.lower().startswith("x-openwebui-") for name in replayed.request["headers"])
    if "stream_options" in replayed.request["body"]:
        assert [chunk["choices"] for chunk in having] == [[]]
    elif is_known:
        assert [chunk["choices"][0]["finish_reason"] for chunk in having] == ["stop"]
    else:
        assert having == []
    assert all(chunk["usage"]["prompt_tokens"] == replayed.chats[0].prompt_tokens for chunk in having)


async def test_usage_comes_unasked_with_the_header_set(pair: Pair) -> None:
    """The headers of the documentation tell who asks; its gauge then works without a setting of each model."""
    served, studio = pair
    body = {"stream": True, "model": RECORDED_MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    request = {"path": "/v1/chat/completions", "headers": _json({"X-Elbowroom-Message-Id": "6e6b"}), "body": body}
    _, _, answer = await replay(served, request)
    [having] = [chunk for chunk in chunks_of(answer) if "usage" in chunk]
    assert having["choices"][0]["finish_reason"] == "stop"
    assert having["usage"]["prompt_tokens"] == studio.chats[0].prompt_tokens


async def test_tool_loop(pair: Pair) -> None:
    """Its built-in tools are called, run by it, and their results answered."""
    served, studio = pair
    function = {"name": "get_current_timestamp", "description": "", "parameters": {"type": "object", "properties": {}}}
    tools = [{"type": "function", "function": function}]
    headers = {"X-OpenWebUI-Chat-Id": "b20804b6"}
    question = {"role": "user", "content": "What time is it?"}
    studio.enqueue(Script(ToolCall("get_current_timestamp")), "Late.")
    body = {"stream": True, "model": RECORDED_MODEL, "messages": [question], "tools": tools}
    status, _, answer = await replay(served, {"path": "/v1/chat/completions", "headers": _json(headers), "body": body})
    assert status == 200
    chunks = chunks_of(answer)
    assert finish_of(chunks) == "tool_calls"
    [opening] = [
        delta
        for chunk in chunks
        for delta in chunk["choices"][0]["delta"].get("tool_calls", ())
        if "name" in delta["function"]
    ]
    call = {"id": opening["id"], "type": "function", "function": {"name": function["name"], "arguments": "{}"}}
    result = {"role": "tool", "tool_call_id": opening["id"], "content": '{"current_timestamp": 1795170290}'}
    history = [question, {"role": "assistant", "content": "", "tool_calls": [call]}, result]
    body = {**body, "messages": history}
    _, _, answer = await replay(served, {"path": "/v1/chat/completions", "headers": _json(headers), "body": body})
    assert text_of(chunks_of(answer)) == "Late."
    assert studio.chats[1].body["messages"] == history


def _json(headers: dict[str, str]) -> dict[str, str]:
    return {**headers, "Content-Type": "application/json"}
