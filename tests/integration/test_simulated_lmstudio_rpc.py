"""The simulated LM Studio's websocket calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from elbowroom.demo import Overflow, RpcCall, Script, SimulatedLMStudio, SimulatedModel, WaitFor

MODEL = SimulatedModel("qwen/qwen3-8b", "Qwen3 8B", publisher="qwen", loaded_context_length=8192)
SPECIFIER = {"type": "query", "query": {"identifier": MODEL.key}}
HELLO = {"authVersion": 1, "clientIdentifier": "guest:abc", "clientPasskey": "xyz"}


class Socket:
    """One open socket that numbers its calls."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls = 0

    async def call(self, endpoint: str, **parameter: Any) -> Any:
        """Return the whole answer to a call."""
        self._calls += 1
        call = {"type": "rpcCall", "endpoint": endpoint, "callId": self._calls, "parameter": parameter}
        await self._socket.send_json(call)
        answer = await self._socket.receive_json()
        assert answer["callId"] == self._calls
        return answer

    async def result(self, endpoint: str, **parameter: Any) -> Any:
        """Return the result of a call that succeeds."""
        answer = await self.call(endpoint, **parameter)
        assert answer["type"] == "rpcResult"
        return answer["result"]

    async def error(self, endpoint: str, **parameter: Any) -> str:
        """Return the code of a call that fails."""
        answer = await self.call(endpoint, **parameter)
        assert answer["type"] == "rpcError"
        code = answer["error"]["displayData"]["code"]
        assert isinstance(code, str)
        return code


@asynccontextmanager
async def connected(studio: SimulatedLMStudio, namespace: str = "llm") -> AsyncIterator[Socket]:
    """Open a socket and shake hands."""
    async with (
        aiohttp.ClientSession(studio.base_url) as http,
        http.ws_connect(f"/{namespace}") as socket,
    ):
        await socket.send_json(HELLO)
        assert await socket.receive_json() == {"success": True}
        yield Socket(socket)


async def test_model_info_of_a_loaded_model() -> None:
    """Window, maximum and identity, by identifier and by the reference of this very load."""
    async with SimulatedLMStudio([MODEL]) as studio, connected(studio) as llm:
        info = await llm.result("getModelInfo", specifier=SPECIFIER, throwIfNotFound=True)
        reference = {"type": "instanceReference", "instanceReference": info["instanceReference"]}
        assert await llm.result("getModelInfo", specifier=reference) == info
        assert await llm.result("listLoaded") == [info]
    expected = {
        "type": "llm",
        "modelKey": MODEL.key,
        "identifier": MODEL.key,
        "format": "gguf",
        "displayName": "Qwen3 8B",
        "publisher": "qwen",
        "maxContextLength": 32768,
        "contextLength": 8192,
        "deviceIdentifier": None,
        "vision": False,
        "trainedForToolUse": True,
        "ttlMs": None,
    }
    assert expected.items() <= info.items()


async def test_template_and_tokenizer_count_as_usage_does() -> None:
    """The length of the tokenised rendering is the prompt_tokens of the same chat, tools and all."""
    tools = [{"type": "function", "function": {"name": "read_note"}}]
    chat = [
        {"role": "user", "content": "Hello there"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "read_note", "arguments": '{"a": 1}'}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "Buy milk"},
    ]
    request = {"id": "1", "type": "function", "name": "read_note", "arguments": {"a": 1}}
    history = [
        {"role": "user", "content": [{"type": "text", "text": "Hello there"}]},
        {"role": "assistant", "content": [{"type": "toolCallRequest", "toolCallRequest": request}]},
        {"role": "tool", "content": [{"type": "toolCallResult", "content": "Buy milk", "toolCallId": "1"}]},
    ]
    async with SimulatedLMStudio([MODEL]) as studio, connected(studio) as llm:
        rendered = await llm.result(
            "applyPromptTemplate",
            specifier=SPECIFIER,
            history={"messages": history},
            predictionConfigStack={"layers": []},
            opts={"omitBosToken": True, "toolDefinitions": tools},
        )
        text = rendered["formatted"]
        tokens = (await llm.result("tokenize", specifier=SPECIFIER, inputString=text))["tokens"]
        counted = await llm.result("countTokens", specifier=SPECIFIER, inputString=text)
        async with aiohttp.ClientSession(studio.base_url) as http:
            body = {"model": MODEL.key, "messages": chat, "tools": tools}
            async with http.post("/v1/chat/completions", json=body) as response:
                usage = (await response.json())["usage"]
    assert counted == {"tokenCount": len(tokens)}
    assert usage["prompt_tokens"] == len(tokens)


async def test_calls_never_load_a_model() -> None:
    """A model on disk is not found, an unloaded instance is named as such, and nothing was loaded."""
    async with SimulatedLMStudio([MODEL, SimulatedModel("other")]) as studio, connected(studio) as llm:
        other = {"type": "query", "query": {"identifier": "other"}}
        gone = {"type": "instanceReference", "instanceReference": "r99"}
        assert await llm.error("countTokens", specifier=other, inputString="x") == ("generic.noModelMatchingQuery")
        assert await llm.error("getModelInfo", specifier=gone) == "generic.specificModelUnloaded"
        assert await llm.result("getModelInfo", specifier=other, throwIfNotFound=False) is None
        assert await llm.error("makeCoffee", specifier=SPECIFIER) == "generic.unknownEndpoint"
        assert list(studio.residency.instances) == [MODEL.key]
        assert studio.rpc_calls[0] == RpcCall("llm", "countTokens", {"specifier": other, "inputString": "x"})


async def test_configuration_and_state_can_be_read() -> None:
    """Overflow policy, loaded window, and what the model is doing."""
    async with (
        SimulatedLMStudio([MODEL], overflow=Overflow("rollingWindow")) as studio,
        connected(studio) as llm,
    ):
        base = await llm.result("getBasePredictionConfig", specifier=SPECIFIER)
        load = await llm.result("getLoadConfig", specifier=SPECIFIER)
        state = await llm.result("getInstanceProcessingState", specifier=SPECIFIER)
        gate = asyncio.Event()
        studio.enqueue(Script("Hi", WaitFor(gate)))
        async with aiohttp.ClientSession(studio.base_url) as http:
            body = {"messages": [{"role": "user", "content": "Hi"}]}
            asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
            await studio.wait_until(lambda: studio.chats and studio.chats[0].completion_tokens)
            busy = await llm.result("getInstanceProcessingState", specifier=SPECIFIER)
            gate.set()
            (await asking).close()
    assert busy == {"status": "generating", "queued": 0}
    assert base == {"fields": [{"key": "llm.prediction.contextOverflowPolicy", "value": "rollingWindow"}]}
    assert load == {"fields": [{"key": "llm.load.contextLength", "value": 8192}]}
    assert state == {"status": "idle", "queued": 0}


async def test_keep_alive_is_acknowledged() -> None:
    """And an open socket counts neither as a request under way nor as a departure when it closes."""
    async with SimulatedLMStudio([MODEL]) as studio:
        async with (
            aiohttp.ClientSession(studio.base_url) as http,
            http.ws_connect("/llm") as socket,
        ):
            await socket.send_json(HELLO)
            await socket.receive_json()
            await socket.send_json({"type": "keepAlive"})
            assert await socket.receive_json() == {"type": "keepAliveAck"}
            assert studio.open_requests == 0
        assert studio.disconnects == []


@pytest.mark.parametrize("hello", [HELLO, {"authVersion": 2}, {"authVersion": 1, "clientIdentifier": "abcd1234"}])
async def test_wrong_credentials_are_refused(hello: dict[str, Any]) -> None:
    """With a token set, its two groups are identifier and passkey; anything else closes the socket."""
    async with (
        SimulatedLMStudio([MODEL], api_token="sk-lm-abcd1234:ABCDEFGHIJKLMNOPQRST") as studio,
        aiohttp.ClientSession(studio.base_url) as http,
    ):
        async with http.ws_connect("/llm") as socket:
            await socket.send_json(hello)
            answer = await socket.receive_json()
            assert answer["success"] is False
            assert answer["error"]
            assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        async with http.ws_connect("/llm") as socket:
            groups = {"clientIdentifier": "abcd1234", "clientPasskey": "ABCDEFGHIJKLMNOPQRST"}
            await socket.send_json({"authVersion": 1, **groups})
            assert await socket.receive_json() == {"success": True}
