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
from contextvars import Context
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Self

import aiohttp

from elbowroom.errors import UpstreamError
from elbowroom.providers.upstream import LARGE_ANSWER, Upstream, in_parts
from elbowroom.tokens.count import MOST_LETTERS, left_of
from elbowroom.tokens.templates import arguments_as_object, canonical_messages

MAX_FRAME_BYTES = 64 * 1024 * 1024
CLOSE_SECONDS = 0.5
MOST_CHARACTERS: Final = 4_000_000
"""More than a window holds; sending it would hold up the event loop."""


class SocketLost(Exception):
    """The socket was refused, closed, or spoke something else; the message says which."""


class RpcSocket:
    """An open socket, and the calls that wait for their answers on it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read(), context=Context())  # the request that opens it ends before it

    @classmethod
    async def open(cls, upstream: Upstream, url: str, login: Mapping[str, Any]) -> Self:
        """Connect and log in. Raises SocketLost where LM Studio refuses, or aiohttp's errors."""
        socket = await upstream.http.ws_connect(
            url,
            headers=upstream.headers,
            max_msg_size=MAX_FRAME_BYTES,
            timeout=aiohttp.ClientWSTimeout(ws_close=CLOSE_SECONDS),
        )
        try:
            await socket.send_str(json.dumps(login))
            _check_greeting(_parsed(await socket.receive()))
        except BaseException:
            await socket.close()
            raise
        return cls(socket)

    @property
    def is_open(self) -> bool:
        """Whether calls can be made."""
        return not (self._socket.closed or self._reader.done())

    async def ask(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Send a call and return the frame that answers it. Raises SocketLost, or aiohttp's errors."""
        call_id: int = call["callId"]
        text = b"".join(await in_parts(call)).decode()
        answer = self._calls[call_id] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send_str(text)
            frame: dict[str, Any] = await answer
            return frame
        finally:
            del self._calls[call_id]
            if answer.done() and not answer.cancelled():
                answer.exception()  # which is taken note of where sending has failed too

    async def close(self) -> None:
        """Close the socket; calls that wait fail."""
        self._reader.cancel()
        await asyncio.wait([self._reader])
        await self._socket.close()

    async def _read(self) -> None:
        reason = "it was closed"
        try:
            while True:
                message = await self._socket.receive()
                is_large = message.type is aiohttp.WSMsgType.TEXT and len(message.data) > LARGE_ANSWER
                frame = await asyncio.to_thread(_parsed, message) if is_large else _parsed(message)
                call_id = frame.get("callId")
                call = self._calls.get(call_id) if type(call_id) is int else None  # true would pass for 1
                if call is not None and not call.done():
                    call.set_result(frame)
        except SocketLost as lost:
            reason = str(lost)
        finally:
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(SocketLost(reason))
        await self._socket.close()


def _check_greeting(greeting: Mapping[str, Any]) -> None:
    if not greeting.get("success"):
        raise SocketLost(f"it refuses elbowroom ({greeting.get('error')})")


def _parsed(message: aiohttp.WSMessage) -> dict[str, Any]:
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise SocketLost("it was closed")
    try:
        frame = json.loads(message.data)
    except (ValueError, RecursionError) as error:
        raise SocketLost("what it sends is not JSON") from error
    if not isinstance(frame, dict):
        raise SocketLost("what it sends is no object")
    return frame


TOKEN_FORM = re.compile(r"sk-lm-(?P<identifier>[A-Za-z0-9]{8}):(?P<passkey>[A-Za-z0-9]{20})")
REFUSED_SECONDS = 5.0  # for which an LM Studio without this interface is not asked again


class RpcError(UpstreamError):
    """LM Studio refused a call, or does not offer this interface."""

    code = "upstream_rpc_error"


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds: for opening a socket, for an answer, and for which nothing is asked after a silence."""

    connect: float = 2.0
    answer: float = 3.0
    pause: float = 30.0


class LMStudioRpc:
    """The `/llm` namespace of one LM Studio; connects at the first call and again after a loss.

    After a silence every call fails at once for a while, so that chats need not wait for LM Studio.
    """

    def __init__(self, upstream: Upstream, url: str, *, patience: Patience | None = None) -> None:
        self._upstream = upstream
        self._url = url
        self._login = _login(upstream.source.key)
        self._patience = patience or Patience()
        self._ids = itertools.count(1)
        self._opening = asyncio.Lock()
        self._socket: RpcSocket | None = None
        self._paused_until = float("-inf")
        self._pause_reason = ""

    async def render(
        self, model: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> str:
        """Return the prompt that LM Studio's template makes of these OpenAI messages.

        Raises RpcError for messages that this interface cannot carry, such as images.
        """
        self._check()
        left = left_of(MOST_CHARACTERS, [messages, tools])
        self._check(left)  # before messages are converted for nothing
        is_short = MOST_CHARACTERS - left < MOST_LETTERS
        converted = _to_histories(messages) if is_short else await asyncio.to_thread(_to_histories, messages)
        options = {"omitBosToken": True, **({"toolDefinitions": list(tools)} if tools else {})}
        parameters = {"history": {"messages": converted}, "predictionConfigStack": {"layers": []}, "opts": options}
        result = await self._call("applyPromptTemplate", model, parameters)
        if not isinstance(prompt := result.get("formatted"), str):
            raise RpcError("LM Studio answered applyPromptTemplate without a prompt.")
        return prompt

    async def tokenize(self, model: str, text: str) -> list[int]:
        """Return the tokens of a text."""
        self._check(MOST_CHARACTERS - len(text))
        tokens = (await self._call("tokenize", model, {"inputString": text})).get("tokens")
        if not isinstance(tokens, list):
            raise RpcError("LM Studio answered tokenize without tokens.")
        return tokens

    async def prediction_config(self, model: str) -> dict[str, Any]:
        """Return the model's prediction settings by key, among them `llm.prediction.contextOverflowPolicy`."""
        self._check()
        fields = (await self._call("getBasePredictionConfig", model, {})).get("fields")
        rows = [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
        return {key: field.get("value") for field in rows if isinstance(key := field.get("key"), str)}

    async def aclose(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            await self._socket.close()

    def _check(self, left: int = 0) -> None:
        """Raise RpcError where LM Studio is left alone, or nothing is left of the letters that may be sent."""
        if asyncio.get_running_loop().time() < self._paused_until:
            raise RpcError(self._pause_reason)
        if left < 0:
            raise RpcError(
                f"A prompt of more than {MOST_CHARACTERS:,} characters is too long for LM Studio's counting."
            )

    async def _call(self, endpoint: str, model: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        specifier = {"type": "query", "query": {"identifier": model}}
        call = {
            "type": "rpcCall",
            "endpoint": endpoint,
            "callId": next(self._ids),
            "parameter": {"specifier": specifier, **parameters},
        }
        try:
            async with asyncio.timeout(self._patience.connect):
                socket = await self._connected()
            async with asyncio.timeout(self._patience.answer):
                answer = await socket.ask(call)
        except TimeoutError as error:
            await self._give_up()
            raise RpcError(f"LM Studio did not answer {endpoint} at {self._url} in time.") from error
        except (aiohttp.ClientError, ConnectionError, SocketLost) as error:
            raise RpcError(self._unusable(error)) from error
        return _result_of(answer, endpoint)

    async def _connected(self) -> RpcSocket:
        async with self._opening:
            if self._socket is None or not self._socket.is_open:
                try:
                    self._socket = await RpcSocket.open(self._upstream, self._url, self._login)
                except aiohttp.WSServerHandshakeError as error:
                    self._pause(REFUSED_SECONDS, self._unusable(error))
                    raise
            return self._socket

    def _unusable(self, error: Exception) -> str:
        return f"LM Studio's websocket at {self._url} cannot be used: {error}."

    def _pause(self, seconds: float, reason: str) -> None:
        """Let every call of the next seconds fail with a reason."""
        self._paused_until = asyncio.get_running_loop().time() + seconds
        self._pause_reason = reason

    async def _give_up(self) -> None:
        reason = f"LM Studio's websocket at {self._url} was silent a moment ago and is left alone for now."
        self._pause(self._patience.pause, reason)
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


def _result_of(answer: Mapping[str, Any], endpoint: str) -> dict[str, Any]:
    if answer.get("type") == "rpcError":
        error = answer.get("error")
        title = (error.get("rootTitle") or error.get("title")) if isinstance(error, dict) else None
        raise RpcError(f"LM Studio: {title or error}")
    if answer.get("type") != "rpcResult" or not isinstance(result := answer.get("result"), dict):
        raise RpcError(f"LM Studio answered {endpoint} with something that is no result.")
    return result


def _login(api_key: str | None) -> dict[str, Any]:
    if api_key and (parts := TOKEN_FORM.fullmatch(api_key)):
        return {"authVersion": 1, "clientIdentifier": parts["identifier"], "clientPasskey": parts["passkey"]}
    guest = {"clientIdentifier": f"guest:{secrets.token_hex(16)}", "clientPasskey": secrets.token_hex(16)}
    return {"authVersion": 1, **guest}


def _to_histories(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages in the form of this interface."""
    return list(map(_to_history, canonical_messages(messages)))


def _to_history(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a canonical message in the form of this interface."""
    content = message["content"]
    texts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for part in texts:
        if part["type"] != "text":
            raise RpcError("LM Studio's counting takes text only, no images.")
    if message["role"] == "tool":
        text = "".join(map(itemgetter("text"), texts))
        result = {"type": "toolCallResult", "content": text, "toolCallId": message.get("tool_call_id")}
        return {"role": "tool", "content": [result]}
    calls = list(map(_to_request, message.get("tool_calls", ())))
    parts = [] if calls and not content else texts
    return {"role": "system" if message["role"] == "developer" else message["role"], "content": [*parts, *calls]}


def _to_request(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = arguments_as_object(function["arguments"])
    if not isinstance(arguments, Mapping):
        raise RpcError("A tool call's arguments are no JSON object; LM Studio's counting takes only objects.")
    request = {"id": call.get("id"), "type": "function", "name": function["name"], "arguments": arguments}
    return {"type": "toolCallRequest", "toolCallRequest": request}
