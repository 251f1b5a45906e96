"""Requests that go to an upstream as they are, and whose answers come back piece by piece."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from elbowroom.errors import StreamCut, UpstreamError, UpstreamTimeout
from elbowroom.providers.base import PassedAnswer
from elbowroom.providers.stream import SILENCE_SECONDS, EventReader, SilenceWatch
from elbowroom.providers.upstream import Poster, Source, error_in, failure_of, not_json, parse_upstream_json

DONE = b"[DONE]"
WHOLE_TYPES = ("application/json", "text/html", "text/plain")


class HttpAnswer:
    """An answer that has begun well. Its methods raise only ElbowroomErrors."""

    def __init__(self, response: aiohttp.ClientResponse, source: Source) -> None:
        self._response = response
        self._source = source

    async def whole(self) -> dict[str, Any]:
        """Return an answer that is one JSON object."""
        try:
            text = await self._response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StreamCut(f"The connection to {self._source.name} broke in the middle of the answer.") from error
        return self._parsed(text)

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the objects of a stream up to its end, and no faster than they are taken."""
        if self._response.content_type in WHOLE_TYPES:
            yield await self.whole()
            return
        reader, watch = EventReader(), SilenceWatch(self._response, SILENCE_SECONDS)
        try:
            while True:
                received = await self._read(watch)
                watch.heard()
                for event in reader.feed(received) if received else reader.close():
                    if event.data.strip() == DONE:
                        return
                    yield self._parsed(event.data)
                if not received:
                    break
        finally:
            watch.end()
        raise StreamCut(f"{self._source.name} ended its answer without saying that it was finished.")

    async def _read(self, watch: SilenceWatch) -> bytes:
        watch.is_reading = True
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            if watch.has_expired or isinstance(error, TimeoutError):
                raise UpstreamTimeout(f"{self._source.name} fell silent in the middle of its answer.") from error
            raise StreamCut(f"The connection to {self._source.name} broke in the middle of the answer.") from error
        finally:
            watch.is_reading = False

    def _parsed(self, text: bytes) -> dict[str, Any]:
        try:
            value = parse_upstream_json(text)
        except ValueError:
            raise not_json(text, self._source) from None
        if (problem := error_in(value)) is not None or isinstance(value, str):
            raise failure_of(value if problem is None else problem, self._source)
        if not isinstance(value, dict):
            raise UpstreamError(f"{self._source.name} at {self._source.url} answered with something else than asked.")
        return value


class PassThrough:
    """Passes requests on to one upstream; `base` is its address with the version."""

    def __init__(self, poster: Poster, base: str, source: Source) -> None:
        self._poster = poster
        self._base = base
        self._source = source

    @asynccontextmanager
    async def opened(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[PassedAnswer, None]:
        """Send a body and give the answer. Leaving before its end closes the connection at once."""
        response = await self._poster.post(f"{self._base}/{path}", body)
        try:
            yield HttpAnswer(response, self._source)
        finally:
            response.close()
