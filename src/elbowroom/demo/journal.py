"""Records all requests, and the clients that left early; and the keys of what belongs to an app and a request."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from aiohttp import web

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

Phase = Literal["received", "loading", "queued", "prefill", "streaming", "generating", "done", "cut"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True, eq=False)
class RecordedRequest:
    """One whole HTTP request and its progress; times are `time.monotonic()` seconds.

    The token counts are set for chat requests that reached a model: `counted_tokens` is the prompt as it
    arrived, `prompt_tokens` what the model got to read of it, `completion_tokens` what it has generated so
    far, `reused_tokens` about how many of the prompt's first tokens are those of the prompt before it on
    the same instance.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Any
    received_at: float
    number: int
    phase: Phase = "received"
    status: int | None = None
    finished_at: float | None = None
    instance_id: str | None = None
    window: int | None = None
    counted_tokens: int | None = None
    prompt_tokens: int | None = None
    completion_tokens: int = 0
    dropped_messages: int = 0
    reused_tokens: int = 0

    @property
    def fitted(self) -> bool:
        """Whether the whole prompt was smaller than the window it went to."""
        return self.counted_tokens is not None and self.window is not None and self.counted_tokens < self.window


@dataclass(frozen=True, slots=True)
class Disconnect:
    """A client that closed its socket too early: when the simulator noticed (monotonic), in which phase."""

    request: RecordedRequest
    at: float
    phase: Phase


RECORD: web.RequestKey[RecordedRequest] = web.RequestKey("record", RecordedRequest)
STUDIO: web.AppKey["SimulatedLMStudio"] = web.AppKey("studio")


@dataclass(slots=True)
class Journal:
    """All requests in the order of their arrival."""

    requests: list[RecordedRequest] = field(default_factory=list)
    disconnects: list[Disconnect] = field(default_factory=list)
    open: int = 0
    closing: bool = False

    @web.middleware
    async def record(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Record the request, its end, and whether the client left before it."""
        received_at = time.monotonic()
        raw = await request.read()
        headers = request.headers.copy()
        number = len(self.requests)
        record = RecordedRequest(request.method, request.path_qs, headers, raw, _parsed(raw), received_at, number)
        self.requests.append(record)
        request[RECORD] = record
        if "websocket" in headers.get("Upgrade", "").lower():
            return await handler(request)
        self.open += 1
        try:
            response = await handler(request)
            record.status = response.status
            record.phase = "done"
            return response
        except (asyncio.CancelledError, ConnectionResetError) as gone:
            if record.phase not in ("done", "cut") and not self.closing:
                self.disconnects.append(Disconnect(record, time.monotonic(), record.phase))
            raise asyncio.CancelledError from gone
        finally:
            record.finished_at = time.monotonic()
            self.open -= 1


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
        return None
