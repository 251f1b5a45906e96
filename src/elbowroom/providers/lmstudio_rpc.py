"""LM Studio's websocket calls for counting: the prompt as it renders it, the tokens as it cuts them.

One socket on the HTTP port, JSON text frames, calls answered by their ids in any order. A query names a loaded model
by its identifier, so that counting never causes a load.
"""

import asyncio
import itertools
import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

from elbowroom.errors import UpstreamError

TOKEN_FORM = re.compile(r"sk-lm-(?P<identifier>[A-Za-z0-9]{8}):(?P<passkey>[A-Za-z0-9]{20})")
ANSWER_SECONDS = 10.0
MAX_FRAME_BYTES = 64 * 1024 * 1024


class RpcError(UpstreamError):
    """LM Studio refused a call, or does not offer this interface."""

    code = "upstream_rpc_error"


class RpcUnavailable(RpcError):
    """LM Studio does not offer this interface at all just now."""


class LMStudioRpc:
    """The `/llm` namespace of one LM Studio; connects at the first call and again after a loss."""

    def __init__(self, http: aiohttp.ClientSession, root: str, api_key: str | None) -> None:
        self._http = http
        self._url = root + "/llm"
        self._login = _login(api_key)
        self._ids = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._opening = asyncio.Lock()
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reader: asyncio.Task[None] | None = None

    async def render(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> str:
        """Return the prompt that LM Studio's template makes of these OpenAI messages.

        Raises RpcError for messages that this interface cannot carry, such as images.
        """
        options: dict[str, Any] = {"omitBosToken": True}
        if tools:
            options["toolDefinitions"] = list(tools)
        history = {"messages": [_to_history(message) for message in messages]}
        stack: dict[str, Any] = {"layers": []}
        result = await self._call(
            "applyPromptTemplate", model, history=history, predictionConfigStack=stack, opts=options
        )
        return str(result["formatted"])

    async def tokenize(self, model: str, text: str) -> list[int]:
        """Return the tokens of a text."""
        tokens: list[int] = (await self._call("tokenize", model, inputString=text))["tokens"]
        return tokens

    async def prediction_config(self, model: str) -> dict[str, Any]:
        """Return the model's prediction settings by key, among them `llm.prediction.contextOverflowPolicy`."""
        result = await self._call("getBasePredictionConfig", model)
        return {field["key"]: field.get("value") for field in result.get("fields", [])}

    async def aclose(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            await self._socket.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader])

    async def _call(self, endpoint: str, model: str, **parameters: Any) -> dict[str, Any]:
        call_id = next(self._ids)
        specifier = {"type": "query", "query": {"identifier": model}}
        frame = {
            "type": "rpcCall",
            "endpoint": endpoint,
            "callId": call_id,
            "parameter": {"specifier": specifier, **parameters},
        }
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                socket = await self._connected()
                self._calls[call_id] = answer
                await socket.send_str(json.dumps(frame))
                result = await answer
        except TimeoutError as error:
            raise RpcError(f"LM Studio did not answer {endpoint} at {self._url} in time.") from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise RpcUnavailable(f"LM Studio's websocket at {self._url} cannot be used: {error}.") from error
        finally:
            self._calls.pop(call_id, None)
        if not isinstance(result, dict):
            raise RpcError(f"LM Studio answered {endpoint} with something that is no result.")
        return result

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        async with self._opening:
            if self._socket is None or self._socket.closed:
                socket = await self._http.ws_connect(self._url, max_msg_size=MAX_FRAME_BYTES)
                await socket.send_str(json.dumps(self._login))
                greeting = await socket.receive_json()
                if not isinstance(greeting, dict) or not greeting.get("success"):
                    await socket.close()
                    raise RpcError(f"LM Studio refuses elbowroom at {self._url}: {greeting}.")
                self._socket = socket
                self._reader = asyncio.create_task(self._read(socket))
            return self._socket

    async def _read(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        try:
            async for frame in socket:
                if frame.type is aiohttp.WSMsgType.TEXT:
                    self._settle(json.loads(frame.data))
        except (ValueError, KeyError, TypeError):
            await socket.close()
        finally:
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(RpcError(f"LM Studio closed its websocket at {self._url}."))

    def _settle(self, frame: dict[str, Any]) -> None:
        call = self._calls.get(frame.get("callId", 0))
        if call is None or call.done():
            return
        if frame["type"] == "rpcResult":
            call.set_result(frame.get("result"))
        elif frame["type"] == "rpcError":
            error = frame.get("error") or {}
            call.set_exception(RpcError(f"LM Studio: {error.get('rootTitle') or error.get('title') or error}"))


def _login(api_key: str | None) -> dict[str, Any]:
    if api_key and (parts := TOKEN_FORM.fullmatch(api_key)):
        return {"authVersion": 1, "clientIdentifier": parts["identifier"], "clientPasskey": parts["passkey"]}
    guest = {"clientIdentifier": f"guest:{secrets.token_hex(16)}", "clientPasskey": secrets.token_hex(16)}
    return {"authVersion": 1, **guest}


def _to_history(message: Mapping[str, Any]) -> dict[str, Any]:
    role = message["role"]
    if role == "tool":
        result = {
            "type": "toolCallResult",
            "content": _text(message.get("content")),
            "toolCallId": message.get("tool_call_id"),
        }
        return {"role": "tool", "content": [result]}
    text = _text(message.get("content"))
    parts: list[dict[str, Any]] = [{"type": "text", "text": text}] if text or not message.get("tool_calls") else []
    parts += [
        {"type": "toolCallRequest", "toolCallRequest": _to_request(call)} for call in message.get("tool_calls") or []
    ]
    return {"role": "system" if role == "developer" else role, "content": parts}


def _to_request(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    try:
        arguments = json.loads(function.get("arguments") or "{}")
    except ValueError as error:
        raise RpcError("A tool call's arguments are not JSON; LM Studio's counting takes only objects.") from error
    return {"id": call.get("id"), "type": "function", "name": function["name"], "arguments": arguments}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(part["text"] for part in content)
    raise RpcError("LM Studio's counting takes text only, no images.")
