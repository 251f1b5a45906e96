"""A stream of server-sent events to one client: whole frames, real back-pressure, comments in silence."""

import asyncio
import io
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar

from aiohttp import hdrs, web

from elbowroom.agents.answer import ClientLeft
from elbowroom.errors import ElbowroomError, is_panic
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.upstream import in_parts
from elbowroom.server.encode import KEEP_ALIVE
from elbowroom.server.middleware import unexpected
from elbowroom.server.state import TIMING

log = logging.getLogger(__name__)
HEADERS: Final = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
LARGE_BYTES: Final = 1024 * 1024
PIECE_BYTES: Final = 256 * 1024
CROWDED_BYTES: Final = 16 * 1024
"""Less than this, unread and new together, is written without waiting: a paused transport goes on at this mark."""
Event_contra = TypeVar("Event_contra", contravariant=True)
Result_contra = TypeVar("Result_contra", contravariant=True)
Event = TypeVar("Event")
Result = TypeVar("Result")


async def json_answer(answer: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> web.Response:
    """Return the response that holds a whole answer; a large one is written in a thread."""
    text = b"".join(await in_parts(answer))
    # As a file it is sent piece by piece.
    body = text if len(text) < LARGE_BYTES else io.BytesIO(text)
    return web.Response(body=body, headers=headers, content_type="application/json", charset="utf-8")


def unkept(value: Mapping[str, Any], status: int = 200) -> web.Response:
    """Return an answer with a JSON object that no cache keeps."""
    return web.json_response(value, status=status, headers={hdrs.CACHE_CONTROL: "no-store"})


class Encoder(Protocol[Event_contra, Result_contra]):
    """Turns an answer into frames, in the dialect of its route."""

    def events(self, events: Sequence[Event_contra], /) -> bytes:
        """Return the frames for these events; none where the client is not to see them."""

    def end(self, result: Result_contra, /) -> bytes:
        """Return the last frames of a whole answer."""

    def failure(self, error: ElbowroomError, /) -> bytes:
        """Return the last frames of an answer that has failed after its first frame."""


class EventStream:
    """The response to one streaming request; `name` is who answers, for the log.

    Its headers go out with the first frame, or with the first `keep_alive` when the model takes long: until then a
    failure can still have a status of its own.
    """

    def __init__(self, request: web.Request, name: str, keep_alive: Callable[[], bytes] = lambda: KEEP_ALIVE) -> None:
        self._request = request
        self._name = name
        self._keep_alive = keep_alive
        self._timing = request.app[TIMING]
        self._lock = asyncio.Lock()
        self._clock = asyncio.get_running_loop().time
        self._last_write = self._clock()
        self._unsent = b""
        self._sent = 0
        self._kind: type[Any] | None = None
        self._has_ended = False
        self._timer: asyncio.TimerHandle | None = None
        self._filling: asyncio.Task[None] | None = None
        self.response = web.StreamResponse(headers=HEADERS)

    async def answer(
        self,
        encoder: Encoder[Event, Result],
        run: Callable[[Callable[[Sequence[Event]], Awaitable[None]]], Awaitable[Result]],
    ) -> web.StreamResponse:
        """Send what `run` hands to its sink and then the end, or the failure, of its result; return the response.

        Raises a failure that comes before the first frame. A client that leaves ends the run.
        """

        def sink(events: Sequence[Event]) -> Awaitable[None]:
            if self._sent >= LARGE_BYTES and self._may_repeat(events):
                return self._send_from_thread(lambda: encoder.events(events))
            return self._send(encoder.events(events))

        self._fill_silence()
        try:
            try:
                result = await run(sink)
                # The last frames may hold the whole answer once more.
                last = encoder.end(result) if self._sent < LARGE_BYTES else await asyncio.to_thread(encoder.end, result)
            except ClientLeft:
                raise
            except BaseException as error:
                if not self.response.prepared or not (isinstance(error, Exception) or is_panic(error)):
                    raise
                last = encoder.failure(self._reported(error))
            await self._send(last, is_end=True)
        except ClientLeft:
            request_facts().error = "client_left"
            log.info("The client of %s left or stopped reading; its answer was ended.", self._name)
        finally:
            await self._stop_looking()
        if self.response.prepared:
            # Clients close their side as soon as they read [DONE]; that is a normal end.
            with suppress(ConnectionResetError):
                await self.response.write_eof()
        return self.response

    def _may_repeat(self, events: Sequence[Any]) -> bool:
        """Tell whether the frames of these events may hold much once more: thoughts end, say, and words begin."""
        before, self._kind = self._kind, type(events[-1])
        return any(type(event) is not before for event in events)

    async def _send_from_thread(self, encode: Callable[[], bytes]) -> None:
        """Write frames that take long to make; where this is cancelled they go out before the next ones."""
        making = asyncio.ensure_future(asyncio.to_thread(encode))
        try:
            frames = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._unsent += await making
            raise
        await self._send(frames)

    async def _send(self, frames: bytes, *, is_end: bool = False) -> None:
        """Write whole frames; waits while the client is slow, and raises ClientLeft where it is gone.

        When this is cancelled before its frames are written, they go out before the next ones. The last frames and the
        end of the body are one write.
        """
        self._unsent += frames
        if not self._unsent:
            return
        transport = self._request.transport
        if transport is None:
            raise ClientLeft
        try:
            if not self.response.prepared:
                async with self._lock:  # a keep-alive may come at the same moment
                    if not self.response.prepared:
                        await self.response.prepare(self._request)
            frames, self._unsent = self._unsent, b""
            self._sent += len(frames)
            if len(frames) > PIECE_BYTES:
                frames = await self._write_most(frames)
            write = self.response.write_eof if is_end else self.response.write
            if transport.get_write_buffer_size() + len(frames) > CROWDED_BYTES:
                async with asyncio.timeout(self._timing.write):
                    await write(frames)
            else:
                await write(frames)
        except (ConnectionResetError, TimeoutError) as error:
            # Closing would wait until what lies in the buffers has been read.
            transport.abort()
            raise ClientLeft from error
        self._last_write = self._clock()

    async def _write_most(self, frames: bytes) -> bytes:
        """Write large frames piece by piece, so that others have their turn; return the last piece.

        When this is cancelled, the rest goes out before the next frames.
        """
        written = 0
        try:
            while len(frames) - written > PIECE_BYTES:
                piece = frames[written : written + PIECE_BYTES]
                written += PIECE_BYTES
                async with asyncio.timeout(self._timing.write):
                    await self.response.write(piece)
                self._last_write = self._clock()  # no keep-alive comes between two pieces
                await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._unsent = frames[written:]
            raise
        return frames[written:]

    def _fill_silence(self) -> None:
        """Send a keep-alive where nothing was written for a while, and look again later."""
        left = self._last_write + self._timing.keep_alive - self._clock()
        if left <= 0 and not self._has_unread_frames():
            self._filling = asyncio.create_task(self._send(self._keep_alive()))
            self._filling.add_done_callback(self._has_filled)
        else:
            seconds = left if left > 0 else self._timing.keep_alive
            self._timer = asyncio.get_running_loop().call_later(seconds, self._fill_silence)

    def _has_filled(self, filling: "asyncio.Task[None]") -> None:
        # A client that left ends the looking; whoever writes next is told.
        has_failed = filling.cancelled() or filling.exception() is not None
        if not has_failed and not self._has_ended:
            self._fill_silence()

    async def _stop_looking(self) -> None:
        self._has_ended = True
        if self._timer is not None:
            self._timer.cancel()
        if self._filling is not None and not self._filling.done():
            self._filling.cancel()
            await asyncio.wait([self._filling])

    def _has_unread_frames(self) -> bool:
        """Tell whether the client has more to read than the system takes for it."""
        transport = self._request.transport
        return transport is not None and transport.get_write_buffer_size() > 0

    def _reported(self, error: BaseException) -> ElbowroomError:
        """Log what ended the answer, and return what the client may know of it."""
        request_facts().failed(error)
        if not isinstance(error, ElbowroomError):
            return unexpected(error)
        log.warning("The answer of %s ended early: %s", self._name, error)
        return error
