"""Passes a request on to one of OpenAI's routes unchanged, and its answer back byte for byte but for the model's name.

Of a stream the text of each event is passed on: comments and the ends of its lines belong to the connection.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import aiohttp

from elbowroom.errors import ElbowroomError, StreamCut, UpstreamError
from elbowroom.providers.base import Finished, PassedAnswer, StreamEvent, UsageReport
from elbowroom.providers.failures import Source, failure_of, not_json
from elbowroom.providers.renaming import renamed
from elbowroom.providers.stream import (
    DONE,
    MOST_AT_ONCE,
    ChunkReader,
    EventReader,
    ServerSentEvent,
    parsed_completion,
    read_at_leisure,
    read_body,
)
from elbowroom.providers.upstream import LARGE_ANSWER, Upstream, WatchedBody, error_in, parse_upstream_json

CHATS: Final = "chat/completions"
WHOLE_TYPES: Final = ("application/json", "text/html", "text/plain")
SILENT: Final = frozenset({"id", "object", "created", "model", "system_fingerprint", "choices", "usage"})
"""Fields of a chunk that say nothing where its choices do not."""
Check = Callable[[str], Awaitable[None]]
"""Takes the name of the model that answers, and raises an ElbowroomError where it must not."""


@asynccontextmanager
async def pass_through(
    upstream: Upstream, url: str, body: Mapping[str, Any], check: Check | None = None
) -> AsyncGenerator[PassedAnswer, None]:
    """Send a body and yield the answer. Leaving before its end closes the connection at once."""
    response = await upstream.post(url, body)
    is_chat = url.endswith(CHATS)
    try:
        yield HttpAnswer(response, upstream.source, is_chat=is_chat, check=check)
    finally:
        response.close()


class HttpAnswer:
    """A response with the status 200, as a PassedAnswer; the answer to a chat has to have words and an end."""

    def __init__(self, response: aiohttp.ClientResponse, source: Source, *, is_chat: bool, check: Check | None) -> None:
        self._response = response
        self._source = source
        self._is_chat = is_chat
        self._check = check
        self._chunks: ChunkReader | _Objects = ChunkReader(source) if is_chat else _Objects(source)
        self._held: list[bytes] = []
        self._ready = 0

    @property
    def usage(self) -> dict[str, Any] | None:
        """Return the usage that the answer has reported so far."""
        return self._chunks.usage

    @property
    def finish_reason(self) -> str:
        """Return why a chat's answer has ended; empty before its end, and for other answers."""
        return self._chunks.finish_reason or ""

    async def whole(self) -> dict[str, Any]:
        """Return an answer that is one JSON object."""
        text = await read_body(self._response, self._source)
        return await read_at_leisure(text, lambda: self._read_whole(text))

    async def text(self, model: str) -> bytes:
        """Return an answer that is one JSON object as it came, but under the name of `model`."""
        text = await read_body(self._response, self._source)
        await read_at_leisure(text, lambda: self._read_whole(text))
        await self._checked()
        name = json.dumps(model).encode()
        return await read_at_leisure(text, lambda: renamed(text, name))

    async def frames(self, model: str) -> AsyncGenerator[bytes, None]:
        """Yield the frames of a stream under the name of `model`, some at a time, and no faster than they are taken.

        Frames that say nothing wait for the first that does, since a failure before it can still have a status of its
        own. The finish_reason waits for the end, since a failure may come between them.
        """
        if self._response.content_type in WHOLE_TYPES:
            yield await self._whole_as_frame(model)
            return
        name = json.dumps(model).encode()
        async with aclosing(self._arrivals()) as arrivals:
            async for events in arrivals:
                is_large = any(len(event.data) > LARGE_ANSWER for event in events)
                read = asyncio.to_thread(self._read, events, name) if is_large else None
                frames, failure = await read if read else self._read(events, name)
                await self._checked()
                if frames:
                    yield b"".join(frames)
                if failure is not None:
                    raise failure
                if self._chunks.done:
                    break
        self._chunks.judge_end()
        if self._held:
            yield b"".join(self._held)
        self._response.release()

    async def _arrivals(self) -> AsyncGenerator[Sequence[ServerSentEvent], None]:
        """Yield the events of a stream as they come, a few at a time, and a large one by itself."""
        reader, body = EventReader(), WatchedBody(self._response, self._source)
        try:
            while part := await body.read(has_begun=self._chunks.has_output):
                is_large = len(reader.rest) > LARGE_ANSWER
                arrived = await asyncio.to_thread(reader.feed, part) if is_large else reader.feed(part)
                for start in range(0, len(arrived), MOST_AT_ONCE):
                    if start:
                        await asyncio.sleep(0)
                    yield arrived[start : start + MOST_AT_ONCE]
            yield reader.feed(b"")
        finally:
            body.end()

    async def _whole_as_frame(self, model: str) -> bytes:
        """Return the one frame for an answer that came whole though a stream was asked for."""
        answer = await self.whole()
        await self._checked()
        if self._is_chat:
            answer = _as_chunk(answer)
            self._chunks.judge_end()
        return _frame(renamed(json.dumps(answer).encode(), json.dumps(model).encode()))

    def _read_whole(self, text: bytes) -> dict[str, Any]:
        if not isinstance(self._chunks, ChunkReader):
            return self._chunks.parsed(text)
        completion = parsed_completion(text, self._source)
        self._chunks.read_whole(completion)
        return completion

    def _read(self, events: Sequence[ServerSentEvent], name: bytes) -> tuple[list[bytes], ElbowroomError | None]:
        """Return the frames that these events let go, and the failure that one of them is, before which they stop."""
        for event in events:
            try:
                said = self._chunks.read(event)
                if self._chunks.finish_reason == "error":
                    self._chunks.judge_end()
            except ElbowroomError as failure:
                return self._let_go(), failure
            if self._chunks.done:
                break
            self._held.append(_frame(renamed(event.data, name)))
            if not self._waits(event, said):
                self._ready = len(self._held)
        return self._let_go(), None

    def _waits(self, event: ServerSentEvent, said: Sequence[StreamEvent]) -> bool:
        """Tell whether a frame belongs to the silence before the words, or to the end after them."""
        if any(isinstance(one, Finished) for one in said):
            return True
        if any(not isinstance(one, UsageReport) for one in said):
            return False
        if self._chunks.finish_reason:
            return True
        return not self._chunks.has_output and _is_silent(event.data)

    def _let_go(self) -> list[bytes]:
        frames, self._held, self._ready = self._held[: self._ready], self._held[self._ready :], 0
        return frames

    async def _checked(self) -> None:
        """Have the name of the model that answers checked, once."""
        if self._check is not None and self._chunks.model is not None:
            check, self._check = self._check, None
            await check(self._chunks.model)


class _Objects:
    """Reads the objects of answers that are no chats: nothing is known of them but whether they are failures."""

    has_output = True
    finish_reason: str | None = None
    model: str | None = None

    def __init__(self, source: Source) -> None:
        self._source = source
        self.done = False
        self.usage: dict[str, Any] | None = None

    def read(self, event: ServerSentEvent) -> Sequence[StreamEvent]:
        """Take one server-sent event; none of its words are known. Raises the error that it carries."""
        self.done = event.data.strip() == DONE
        if not self.done:
            self.parsed(event.data)
        return ()

    def parsed(self, text: bytes) -> dict[str, Any]:
        """Return the object in a text. Raises the error that it is, or UpstreamError where it is no object."""
        try:
            value = parse_upstream_json(text)
        except ValueError:
            raise not_json(text, self._source) from None
        if (problem := error_in(value)) is not None or isinstance(value, str):
            raise failure_of(value if problem is None else problem, self._source)
        if not isinstance(value, dict):
            raise UpstreamError(f"{self._source.name} at {self._source.url} answered with something else than asked.")
        if isinstance(usage := value.get("usage"), dict):
            self.usage = usage
        return value

    def judge_end(self) -> None:
        """Raise StreamCut where the answer has ended without its last event."""
        if not self.done:
            raise StreamCut(f"{self._source.name} ended its answer without saying that it was finished.")


def _is_silent(text: bytes) -> bool:
    """Tell whether a chunk without words has nothing else to say either, such as how much of the prompt is read."""
    return set(parse_upstream_json(text)) <= SILENT


def _as_chunk(completion: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole completion as the one chunk of a stream."""
    choices = [dict(choice) for choice in completion["choices"] if isinstance(choice, dict)]
    for choice in choices:
        choice["delta"] = _as_delta(choice.pop("message", None))
    return {**completion, "object": "chat.completion.chunk", "choices": choices}


def _as_delta(message: Any) -> dict[str, Any]:
    delta = dict(message) if isinstance(message, dict) else {}
    if isinstance(calls := delta.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls) if isinstance(call, dict)]
    return delta


def _frame(data: bytes) -> bytes:
    return b"data: %b\n\n" % (data if b"\n" not in data else data.replace(b"\n", b"\ndata: "))
