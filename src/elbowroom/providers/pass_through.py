"""Passes a request on to one of OpenAI's routes unchanged, and its answer back piece by piece."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp

from elbowroom.errors import StreamCut, UpstreamError, UpstreamTimeout
from elbowroom.providers.base import PassedAnswer
from elbowroom.providers.failures import Source, failure_of, not_json
from elbowroom.providers.stream import DONE, SILENCE_SECONDS, EventReader, read_body
from elbowroom.providers.upstream import Upstream, WatchedBody, error_in, parse_upstream_json

WHOLE_TYPES: Final = ("application/json", "text/html", "text/plain")


@asynccontextmanager
async def pass_through(upstream: Upstream, url: str, body: Mapping[str, Any]) -> AsyncGenerator[PassedAnswer, None]:
    """Send a body and yield the answer. Leaving before its end closes the connection at once."""
    response = await upstream.post(url, body)
    try:
        yield HttpAnswer(response, upstream.source)
    finally:
        response.close()


class HttpAnswer:
    """A response with the status 200, as a PassedAnswer."""

    def __init__(self, response: aiohttp.ClientResponse, source: Source) -> None:
        self._response = response
        self._source = source

    async def whole(self) -> dict[str, Any]:
        """Return an answer that is one JSON object."""
        return self._parsed(await read_body(self._response, self._source))

    async def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the objects of a stream up to its end, and no faster than they are taken."""
        if self._response.content_type in WHOLE_TYPES:
            yield await self.whole()
            return
        reader, body = EventReader(), WatchedBody(self._response)
        try:
            while True:
                received = await self._received(body)
                body.wait_at_most(SILENCE_SECONDS)
                for event in reader.feed(received) if received else reader.close():
                    if event.data.strip() == DONE:
                        return
                    yield self._parsed(event.data)
                if not received:
                    break
        finally:
            body.end()
        raise StreamCut(f"{self._source.name} ended its answer without saying that it was finished.")

    async def _received(self, body: WatchedBody) -> bytes:
        try:
            return await body.read()
        except TimeoutError as error:
            raise UpstreamTimeout(f"{self._source.name} fell silent in the middle of its answer.") from error
        except aiohttp.ClientError as error:
            raise StreamCut(f"The connection to {self._source.name} broke in the middle of the answer.") from error

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
