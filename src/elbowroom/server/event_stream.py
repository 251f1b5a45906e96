"""A stream of server-sent events to one client: whole frames, real back-pressure, comments in silence."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

from aiohttp import web

from elbowroom.server.encode import KEEP_ALIVE
from elbowroom.server.state import TIMING, ClientLeft

HEADERS = {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
CROWDED_BYTES = 16 * 1024
"""Less than this, unread and new together, is written without waiting: a paused transport goes on at this mark."""


class EventStream:
    """The response to a streaming request, used as an async context manager.

    Its headers go out with the first frame, or with the first comment when the model takes long: until then a
    failure can still have a status of its own. `keep_alive` returns what fills a silence.
    """

    def __init__(self, request: web.Request, keep_alive: Callable[[], bytes] = lambda: KEEP_ALIVE) -> None:
        self._request = request
        self._keep_alive = keep_alive
        self._timing = request.app[TIMING]
        self._lock = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._last_write = self._clock()
        self._unsent = b""
        self.response = web.StreamResponse(headers=HEADERS)

    @property
    def has_begun(self) -> bool:
        """Tell whether the headers are out."""
        return self.response.prepared

    async def send(self, frames: bytes) -> None:
        """Write whole frames; waits while the client is slow, and raises ClientLeft where it is gone.

        Frames whose turn to be written had not come when this was cancelled go out before the next ones.
        """
        self._unsent += frames
        async with self._lock:
            transport = self._request.transport
            if transport is None:
                raise ClientLeft
            try:
                if not self.response.prepared:
                    await self.response.prepare(self._request)
                frames, self._unsent = self._unsent, b""
                if transport.get_write_buffer_size() + len(frames) > CROWDED_BYTES:
                    async with asyncio.timeout(self._timing.write):
                        await self.response.write(frames)
                else:
                    await self.response.write(frames)
            except (ConnectionResetError, TimeoutError) as error:
                # Closing would wait until what lies in the buffers has been read.
                transport.abort()
                raise ClientLeft from error
            self._last_write = self._clock()

    async def __aenter__(self) -> Self:
        self._ticker = asyncio.create_task(self._fill_silence())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticker.cancel()
        await asyncio.wait([self._ticker])
        if not self._ticker.cancelled():
            self._ticker.exception()  # a client that left; whoever writes next is told
        if kind is None and self.response.prepared:
            # Clients close their side as soon as they read [DONE]; that is a normal end.
            with suppress(ConnectionResetError):
                await self.response.write_eof()

    async def _fill_silence(self) -> None:
        while True:
            silence = self._clock() - self._last_write
            if silence < self._timing.keep_alive:
                await asyncio.sleep(self._timing.keep_alive - silence)
            elif self._lock.locked():
                await asyncio.sleep(self._timing.keep_alive)
            else:
                await self.send(self._keep_alive())
