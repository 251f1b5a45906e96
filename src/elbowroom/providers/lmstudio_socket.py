"""One websocket to LM Studio: the handshake, calls, and the answers that come back in any order."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

import aiohttp

MAX_FRAME_BYTES = 64 * 1024 * 1024
CLOSE_SECONDS = 0.5


class SocketLost(Exception):
    """The socket was refused, closed, or spoke something else; the message says which."""


class RpcSocket:
    """An open socket, and the calls that wait for their answers on it."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._reader = asyncio.create_task(self._read())

    @classmethod
    async def open(
        cls, http: aiohttp.ClientSession, url: str, login: Mapping[str, Any], headers: Mapping[str, str]
    ) -> Self:
        """Connect and log in. Raises SocketLost where LM Studio refuses, or aiohttp's errors."""
        socket = await http.ws_connect(
            url,
            headers=headers,
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
        """Tell whether calls can be made."""
        return not (self._socket.closed or self._reader.done())

    async def ask(self, call: Mapping[str, Any]) -> dict[str, Any]:
        """Send a call and return the frame that answers it. Raises SocketLost, or aiohttp's errors."""
        call_id: int = call["callId"]
        answer = self._calls[call_id] = asyncio.get_running_loop().create_future()
        try:
            await self._socket.send_str(json.dumps(call))
            frame: dict[str, Any] = await answer
            return frame
        finally:
            del self._calls[call_id]

    async def close(self) -> None:
        """Close the socket; calls that wait fail."""
        self._reader.cancel()
        await asyncio.wait([self._reader])
        await self._socket.close()

    async def _read(self) -> None:
        reason = "it was closed"
        try:
            while True:
                self._settle(_parsed(await self._socket.receive()))
        except SocketLost as lost:
            reason = str(lost)
        finally:
            for call in self._calls.values():
                if not call.done():
                    call.set_exception(SocketLost(reason))
        await self._socket.close()

    def _settle(self, frame: dict[str, Any]) -> None:
        call_id = frame.get("callId")
        call = self._calls.get(call_id) if type(call_id) is int else None  # true would pass for 1
        if call is not None and not call.done():
            call.set_result(frame)


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
