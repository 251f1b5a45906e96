"""Responses that are answered in the background: their events are held in memory for whoever asks for them.

What they say is kept as a turn, as with all others; here is what a turn does not have: the numbers of the events, the
usage, and why it failed.
"""

import asyncio
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.errors import ElbowroomError, TooManyRequests
from elbowroom.logs.request_facts import requested
from elbowroom.server.middleware import unexpected
from elbowroom.server.responses.encode import BACKGROUND_END, TURN, ResponseEncoder

log = logging.getLogger(__name__)
MOST_AT_ONCE: Final = 100
AGAIN_SECONDS: Final = 30
MOST_ENDED: Final = 16
"""How many that have ended are held with their events; of the others the kept turn is told."""
FRAMES_END: Final = b"\n\n"
EVENT: Final = b"event: "
Frames = Callable[[Sequence[bytes]], Awaitable[None]]


def new_turn() -> str:
    """Return the id of a turn that answers in the background, which tells so."""
    return f"{TURN}{secrets.token_hex(12)}{BACKGROUND_END}"


class BackgroundResponse:
    """One response with the frames of its events by their numbers; `ended` is the whole of it once it has ended."""

    def __init__(self, encoder: ResponseEncoder) -> None:
        self._encoder = encoder
        self._frames: list[bytes] = []
        self._has_grown = asyncio.Event()
        self.is_answered = False
        self.ended: dict[str, Any] | None = None
        self._take(encoder.queued())

    @property
    def response(self) -> dict[str, Any]:
        """Return the response as it is now, with the items that are whole."""
        return self.ended or self._encoder.so_far()

    async def run(self, answering: Callable[[Sink], Awaitable[Answer]], body: Mapping[str, Any]) -> None:
        """Hold what is answered to this body until its end, or its failure."""
        with requested() as facts:
            facts.quotable = (body,)
            try:
                last = await self._last_frames(answering)
            finally:
                facts.quotable = ()
        self._take(last)
        self.ended = json.loads(self._frames[-1].partition(b"data: ")[2])["response"]
        self._take(b"")
        log.info("The response %s was answered in the background: %s.", self._encoder.id, self.ended["status"])

    async def _last_frames(self, answering: Callable[[Sink], Awaitable[Answer]]) -> bytes:
        try:
            answer = await answering(self._keep)
            self.is_answered = True
            return await asyncio.to_thread(self._encoder.end, answer)
        except asyncio.CancelledError:  # stopped before it was entered among what runs
            stopped = Answer()
            stopped.interrupt(calls_are_out=False)
            return self._encoder.end(stopped)
        except ElbowroomError as error:
            log.warning("The response %s failed in the background: %s", self._encoder.id, error)
            return self._encoder.failure(error)
        except Exception as error:  # noqa: BLE001  # nobody waits for this task
            return self._encoder.failure(unexpected(error))

    async def follow(self, after: int, sink: Frames) -> None:
        """Hand all frames after the event with this number to the sink, as they come; the last one always."""
        place = after + 1
        while True:
            if new := self._frames[place:]:
                place += len(new)
                await sink(new)
            elif self.ended is None:
                await self._has_grown.wait()
            else:
                break
        if after + 1 >= len(self._frames):
            await sink(self._frames[-1:])

    async def has_ended(self) -> None:
        """Wait until it has ended."""
        while self.ended is None:
            await self._has_grown.wait()

    async def _keep(self, events: Sequence[AnswerEvent]) -> None:
        self._take(self._encoder.events(events))

    def _take(self, frames: bytes) -> None:
        """Hold these frames without comments, which have no number, and wake all that follow."""
        self._frames += [frame + FRAMES_END for frame in frames.split(FRAMES_END) if frame.startswith(EVENT)]
        self._has_grown.set()
        self._has_grown = asyncio.Event()


class BackgroundResponses:
    """The responses of one server that are answered in the background, and the last ones that were."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], BackgroundResponse] = {}
        self._tasks: dict[tuple[str, str], asyncio.Task[None]] = {}

    def begin(
        self,
        owner: str,
        encoder: ResponseEncoder,
        answering: Callable[[Sink], Awaitable[Answer]],
        body: Mapping[str, Any],
        until: ExitStack,
    ) -> BackgroundResponse:
        """Begin to answer, whoever waits; the stack is closed at the end of the answer then, and not by its owner.

        Raises TooManyRequests where as many as may are being answered.
        """
        if len(self._tasks) >= MOST_AT_ONCE:
            raise TooManyRequests(str(body.get("model")), waiting=MOST_AT_ONCE, retry_after=AGAIN_SECONDS)
        ended = [key for key, known in self._known.items() if known.ended is not None]
        for old in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._known[old]
        key, response = (owner, encoder.id), BackgroundResponse(encoder)
        self._known[key] = response
        self._tasks[key] = task = asyncio.create_task(response.run(answering, body))
        held = until.pop_all()
        held.callback(self._tasks.pop, key)
        task.add_done_callback(lambda _: held.close())
        return response

    def find(self, owner: str, response_id: str) -> BackgroundResponse | None:
        """Return the owner's response with this id, as long as its events are held."""
        return self._known.get((owner, response_id))

    async def stop(self, owner: str, response_id: str) -> None:
        """Stop a response that is not among what runs yet, and wait for its end; one that has its answer keeps it."""
        task = self._tasks.get((owner, response_id))
        if task is not None and not self._known[owner, response_id].is_answered:
            task.cancel()
            await asyncio.wait([task])

    def forget(self, owner: str, response_id: str) -> None:
        """Let go of a response that was deleted."""
        self._known.pop((owner, response_id), None)


BACKGROUND: web.AppKey[BackgroundResponses] = web.AppKey("BACKGROUND", BackgroundResponses)
