"""Tool calls as broken models and engines make them: the model is told what was wrong, or the client is."""

import json
from collections.abc import AsyncIterator
from typing import Any, Final

import pair_fixtures
import pytest
import pytest_asyncio
from agent_teams import agent, speaker
from chatting import (
    AGENT,
    MODEL,
    RAW_MODEL,
    calls_of,
    chunks_of,
    delta_frame,
    elbowroom_with_studio,
    split_frames,
    stream_bytes,
)
from own_tools import own_tool
from pair_fixtures import Pair
from serving import Served, text_of
from spread_variants import spread

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Raw, Script, SimulatedModel, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
pair = pair_fixtures.pair
Json = dict[str, Any]
TEAM: Final = [AGENT, agent("boss", agent_tools=["helper"], handoffs=["editor"]), agent("helper"), agent("editor")]
DEEP: Final = 5000
BOMBS: Final[dict[str, str]] = {
    "brackets": "[" * DEEP,
    "braces": '{"path":' * DEEP,
    "closed brackets": '{"path": ' + "[" * DEEP + "]" * DEEP + "}",
    "closed braces": '{"path":' * DEEP + "1" + "}" * DEEP,
    "just below the depth": '{"path": ' + "[" * 120 + "]" * 120 + "}",
    "deep in a text": json.dumps("[" * DEEP),
    "two megabytes": json.dumps({"path": "x" * 2_000_000}),
    "thirty thousand lists": '{"path": [' + "[]," * 30_000 + "[]]}",
    "lone surrogates": '{"path": "\\ud800 \\udfff", "\\ud83d": 1}',
    "no numbers": '{"path": NaN, "a": Infinity, "b": -Infinity, "c": 1e999}',
    "a huge number": '{"path": ' + "9" * 5000 + "}",
    "a huge exponent": '{"path": 1e' + "9" * 100 + "}",
    "zeros": '{"path": "\\u0000"}\x00',
    "no object": "[1, 2]",
    "half": '{"path": "a',
    "broken lone surrogates": '{"path": "\\ud800 \\udfff",}',
}


@own_tool
async def look(path: str) -> str:
    """Look at a path."""
    return f"{len(path)} characters"


def tools(target: Target) -> list[ServerTool]:
    """Give every agent the tool."""
    return [look] if target.agent else []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom with a team of agents, and a model whose window holds whatever it is made to say."""
    large = SimulatedModel(MODEL, max_context_length=8_000_000, loaded_context_length=8_000_000)
    folder = tmp_path_factory.mktemp("hostile")
    async with elbowroom_with_studio(folder, agents="".join(TEAM), toolbox=tools, model=large) as both:
        yield both


@pytest.mark.fault("arguments nested without end", "tool", "an error for the model")
@pytest.mark.parametrize(("tool", "bomb"), spread(["look", "ask_helper", "transfer_to_editor", "unknown"], BOMBS))
async def test_bomb_in_arguments_is_for_the_model(pair: Pair, tool: str, bomb: str) -> None:
    """The run goes on with a result or an error, whatever is called: a tool, an agent as one, a handoff, nothing."""
    arguments = BOMBS[bomb]
    served, studio = pair

    def says(body: Json) -> Script | str:
        if speaker(body) == "boss" and body["messages"][-1]["role"] == "user":
            return Script(ToolCall(tool, arguments, pieces=[arguments]))
        return "Helped." if speaker(body) == "helper" else "Fine."

    studio.on_request = says
    body = {"model": "boss", "messages": [{"role": "user", "content": "Go."}]}
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 200, (await response.text())[:500]
        assert (await response.json())["choices"][0]["message"]["content"] == "Fine."
    last = studio.chats[-1].body["messages"]
    [result] = [message["content"] for message in last if message["role"] == "tool"]
    assert result
    if tool == "look" and bomb in ("two megabytes", "zeros", "broken lone surrogates"):
        assert result == {"two megabytes": "2000000", "zeros": "1"}.get(bomb, "3") + " characters"
    elif tool in ("look", "ask_helper"):
        assert "rror" in result


def piece(name: str | None = None, arguments: str | None = None, **more: Any) -> bytes:
    """Return a frame with one piece of a tool call."""
    return delta_frame({"tool_calls": [{"function": {"name": name, "arguments": arguments}, **more}]})


ORDERS: Final = {
    "name last": [piece(None, '{"path": ', index=0), piece(None, '"ab"}', index=0), piece("look", index=0)],
    "name in the middle": [piece(None, '{"path": ', index=0), piece("look", '"ab"}', index=0)],
    "no index": [piece(None, '{"path": '), piece("look", None), piece(None, '"ab"}')],
    "id later": [piece("look", "", index=0), piece(None, '{"path": "ab"}', index=0, id="x")],
    "name in pieces": [piece("lo", "", index=0), piece("ok", "", index=0), piece(None, '{"path": "ab"}', index=0)],
}


@pytest.mark.fault("arguments before the name", ("streaming", "tool"), "the whole call")
@pytest.mark.parametrize("frames", ORDERS.values(), ids=ORDERS.keys())
async def test_pieces_in_any_order_make_the_call(pair: Pair, frames: list[bytes]) -> None:
    """Arguments that come before the name are the tool's, and the client's where it runs the tool."""
    served, studio = pair
    studio.enqueue(Script(*map(Raw, frames)), "Fine.", Script(*map(Raw, frames)))
    body = {"model": "boss", "messages": [{"role": "user", "content": "Go."}]}
    assert text_of(chunks_of(await stream_bytes(served, body))) == "Fine."
    [result] = [message for message in studio.chats[-1].body["messages"] if message["role"] == "tool"]
    assert result["content"] == "2 characters"
    spec = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Go."}], "tools": [spec]}
    [call] = calls_of(chunks_of(await stream_bytes(served, body)))
    assert (call["name"], json.loads(call["arguments"])) == ("look", {"path": "ab"})


async def failure_of(served: Served, model: str, *, stream: bool) -> Json:
    """Return the error that a chat ends with."""
    body = {"model": model, "messages": [{"role": "user", "content": "Go."}], "stream": stream}
    if stream:
        *_, last = split_frames(await stream_bytes(served, body))
        return dict(json.loads(last.removeprefix(b"data: "))["error"])
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 502
        return dict((await response.json())["error"])


@pytest.mark.fault("arguments before the name", ("streaming", "tool"), "without a name: a failure in words")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_call_without_a_name_is_a_failure(pair: Pair, model: str, *, stream: bool) -> None:
    """It is said, and no tool runs with empty arguments."""
    served, studio = pair
    studio.enqueue(Script("I look.", Raw(piece(None, '{"path": "ab"}', index=0))))
    assert "without saying which" in (await failure_of(served, model, stream=stream))["message"]
