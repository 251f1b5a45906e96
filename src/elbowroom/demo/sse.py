"""The stream of an answer on the wire, and how it is cut."""

import asyncio

from aiohttp import web

from elbowroom.demo import wire
from elbowroom.demo.journal import RECORD

_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Connection": "keep-alive"}


class EventStream:
    """An event stream to one client; `cut_after` closes the socket after that many bytes of it."""

    def __init__(self, request: web.Request, cut_after: int | None = None) -> None:
        self._request = request
        self._cut_after = cut_after
        self._sent = 0
        self.response = web.StreamResponse(headers=_HEADERS)

    async def open(self) -> None:
        """Send the status and the headers."""
        await self.response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        """Send these bytes, or as many of them as come before the cut."""
        if self._cut_after is not None and self._sent + len(data) >= self._cut_after:
            await self.response.write(data[: self._cut_after - self._sent])
            hang_up(self._request)
        self._sent += len(data)
        await self.response.write(data)

    async def end(self, *, done: bool) -> web.StreamResponse:
        """Send `[DONE]` where wanted, and the end of the response."""
        if done:
            await self.send(wire.DONE)
        self._request[RECORD].phase = "done"
        await self.response.write_eof()
        return self.response

    async def fail(self, message: str) -> web.StreamResponse:
        """Send the error event, after which there is no `[DONE]`."""
        await self.send(wire.error_frame(message))
        return await self.end(done=False)


def hang_up(request: web.Request) -> None:
    """Close the socket after what has been written so far, without ending the response."""
    request[RECORD].phase = "cut"
    if request.transport is not None:
        request.transport.close()
    raise asyncio.CancelledError
