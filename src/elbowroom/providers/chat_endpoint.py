"""One upstream's `/chat/completions`: opens it, reads it, closes it at once, and translates its failures."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any

import aiohttp

from elbowroom.providers.connecting import CONNECT_SECONDS, FIRST_BYTE_SECONDS
from elbowroom.errors import ElbowroomError, StreamCut, UpstreamError, UpstreamTimeout
from elbowroom.providers.chat_chunks import ChunkReader
from elbowroom.providers.events import StreamEvent
from elbowroom.providers.failures import (
    Source,
    error_in,
    failure_of,
    not_json,
    overflow_error,
)
from elbowroom.providers.posting import Poster
from elbowroom.providers.silence_watch import SilenceWatch
from elbowroom.providers.sse import EventReader, ServerSentEvent
from elbowroom.providers.upstream_json import parse_upstream_json

SILENCE_SECONDS = 300.0
IDLE_SECONDS = 2.0  # shorter than the five seconds after which LM Studio's server closes an idle connection


def open_session() -> aiohttp.ClientSession:
    """Return the HTTP session for all upstreams: no proxy from the environment, no cookies, no total timeout."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=FIRST_BYTE_SECONDS),
        trust_env=False,
    )


class ChatEndpoint:
    """The chat completions of one upstream. Raises only ElbowroomErrors; leaving early closes the socket."""

    def __init__(
        self,
        http: aiohttp.ClientSession,
        url: str,
        headers: Mapping[str, str],
        source: Source,
        start_hint: str,
    ) -> None:
        self._poster = Poster(http, headers, source, start_hint)
        self._url = url
        self._source = source

    async def stream(
        self, body: Mapping[str, Any], reader: ChunkReader, window: int | None = None
    ) -> AsyncGenerator[list[StreamEvent], None]:
        """Yield what the model says, as many events at a time as arrived together.

        The generator's end means that the answer is complete. Closing it closes the connection. `window`, in
        tokens, tells an empty answer at the window's edge from other empty answers.
        """
        response = await self._poster.post(self._url, body)
        complete = False
        try:
            if response.content_type in ("application/json", "text/html"):
                yield reader.read_whole(await self._read_json(response))
            else:
                async for events in self._read_events(response, reader):
                    yield events
            complete = True
        finally:
            if complete:
                response.release()
            else:
                response.close()
        if not reader.has_output and window and (overflow := reader.prompt_reached(window)):
            raise overflow_error(overflow, "the answer came back empty.", self._source)
        reader.judge_end()

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request that does not stream."""
        response = await self._poster.post(self._url, body)
        try:
            return await self._read_json(response)
        finally:
            response.close()

    async def _read_events(
        self, response: aiohttp.ClientResponse, reader: ChunkReader
    ) -> AsyncGenerator[list[StreamEvent], None]:
        sse = EventReader()
        watch = SilenceWatch(response, SILENCE_SECONDS)
        try:
            while not reader.done:
                received = await self._read(response, watch)
                said, failure = _read_all(sse.feed(received) if received else sse.close(), reader)
                if reader.has_output:
                    watch.heard()
                if said:
                    yield said
                if failure is not None:
                    raise failure
                if not received:
                    return
        finally:
            watch.end()

    async def _read(self, response: aiohttp.ClientResponse, watch: SilenceWatch) -> bytes:
        watch.is_reading = True
        try:
            return await response.content.readany()
        except (aiohttp.ClientError, TimeoutError) as error:
            if watch.has_expired or isinstance(error, TimeoutError):
                raise UpstreamTimeout(
                    f"{self._source.name} fell silent in the middle of its answer. It may still be computing; "
                    "its log tells more."
                ) from error
            raise StreamCut(
                f"The connection to {self._source.name} broke in the middle of the answer. "
                "The text so far is kept; ask again to go on."
            ) from error
        finally:
            watch.is_reading = False

    async def _read_json(self, response: aiohttp.ClientResponse) -> dict[str, Any]:
        try:
            text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise StreamCut(f"The connection to {self._source.name} broke in the middle of the answer.") from error
        try:
            answer = parse_upstream_json(text)
        except ValueError:
            raise not_json(text, self._source) from None
        if (problem := error_in(answer)) is not None:
            raise failure_of(problem, self._source)
        if not isinstance(answer, dict) or "choices" not in answer:
            raise UpstreamError(f"{self._source.name} at {self._source.url} did not answer with a chat completion.")
        return answer


def _read_all(
    events: Iterable[ServerSentEvent], reader: ChunkReader
) -> tuple[list[StreamEvent], ElbowroomError | None]:
    """Return what the events say up to the first that is a failure: words that came along with it are not lost."""
    said: list[StreamEvent] = []
    for event in events:
        try:
            said += reader.read(event)
        except ElbowroomError as failure:
            return said, failure
    return said, None
