"""Bounds what an MCP server answers over HTTP: a message that is too large becomes an error of its call, in words."""

import json
import re
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from elbowroom.agents.tools.mcp import lines

END_OF_EVENT: Final = re.compile(rb"\r?\n\r?\n")
SAVED_BY_UTF8: Final = 4
MARK_BYTES: Final = 3
"""Bytes of an end of an event that may have come without its last one."""


def bound_answer(response: httpx2.Response) -> None:
    """Let the body of a response that has not been read yet be bounded, unless it is packed."""
    if isinstance(response.stream, httpx2.AsyncByteStream) and "content-encoding" not in response.headers:
        response.stream = BoundedAnswer(response.stream, response)


class BoundedAnswer(httpx2.AsyncByteStream):
    """The body of a response: one message as JSON, or server-sent events with a message each."""

    def __init__(self, stream: httpx2.AsyncByteStream, response: httpx2.Response) -> None:
        self._stream = stream
        self._call = _call_of(response.request)
        self._is_events = response.headers.get("content-type", "").startswith("text/event-stream")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts = self._events() if self._is_events else self._message()
        async for part in parts:
            yield part

    async def aclose(self) -> None:
        """Close the connection where the body was not read to its end."""
        await self._stream.aclose()

    async def _message(self) -> AsyncIterator[bytes]:
        """Yield the only message, or the error in its place."""
        body, size = bytearray(), 0
        async for piece in self._stream:
            body += piece
            size += _size(piece)
            if size > lines.LARGEST_MESSAGE:
                yield self._refusal()
                return
        yield await lines.without_more_tools(bytes(body))

    async def _events(self) -> AsyncIterator[bytes]:
        """Yield whole events; the error in place of one that is too large, whose rest is dropped."""
        event, size, dropped = bytearray(), 0, 0
        async for piece in self._stream:
            looked_at = max(0, len(event) - MARK_BYTES)
            event += piece
            size += _size(piece)
            while end := END_OF_EVENT.search(event, looked_at):
                if not dropped:
                    yield await _with_fewer_tools(bytes(event[: end.end()]))
                del event[: end.end()]
                dropped = looked_at = 0
                size = len(event)
            if not dropped and size > lines.LARGEST_MESSAGE:
                yield b"event: message\ndata: %b\n\n" % self._refusal()
                dropped = len(event)
            if dropped:
                dropped += len(piece)
                del event[:-MARK_BYTES]
            if dropped > lines.MOST_DROPPED:
                return
        if not dropped:
            yield bytes(event)

    def _refusal(self) -> bytes:
        """Return the error that answers the call. Raises httpx2.ReadError where no call is answered."""
        if self._call is None:
            raise httpx2.ReadError("a message was too large")
        return lines.refusal(self._call).encode()


async def _with_fewer_tools(event: bytes) -> bytes:
    """Return an event; where its data are a list of tools, without those that are not taken."""
    head, mark, data = event.partition(b"data: ")
    return head + mark + await lines.without_more_tools(data)


def _size(piece: bytes) -> int:
    """Return how many bytes of a message come with a piece: a letter that is escaped has six, and two in UTF-8."""
    return len(piece) - SAVED_BY_UTF8 * piece.count(rb"\u")


def _call_of(request: httpx2.Request) -> int | str | None:
    """Return the id of the call that a request makes, None where it makes none."""
    try:
        message = json.loads(request.content)
    except (ValueError, httpx2.RequestNotRead):
        return None
    call = message.get("id") if isinstance(message, dict) else None
    return call if isinstance(call, int | str) else None
