"""One upstream's `/chat/completions`: opens it, reads it, closes it at once, and translates its failures."""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, NamedTuple

import aiohttp

from elbowroom.errors import ElbowroomError, EmptyReply, StreamCut, UpstreamError, UpstreamTimeout
from elbowroom.providers.base import Finished, ReasoningDelta, StreamEvent, TextDelta, ToolCallDelta, UsageReport
from elbowroom.providers.upstream import (
    CONNECT_SECONDS,
    FIRST_BYTE_SECONDS,
    Overflow,
    Poster,
    Source,
    error_in,
    failure_of,
    not_json,
    overflow_error,
    parse_upstream_json,
)

MAX_EVENT_BYTES = 16 * 1024 * 1024
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class ServerSentEvent(NamedTuple):
    """One event: its data as it was sent, and its name where it has one."""

    data: bytes
    name: str | None = None


class EventReader:
    """Turns bytes as they arrive into events."""

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = bytearray()
        self._at_start = True
        self._data: list[bytes] = []
        self._data_bytes = 0
        self._name: str | None = None

    def feed(self, received: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete.

        Raises StreamCut where a single event has grown beyond the limit and still goes on.
        """
        self._check_size()
        self._rest += received
        if self._at_start and not self._is_past_mark():
            return []
        if b"\n" not in received:
            return []
        complete, _, rest = self._rest.rpartition(b"\n")
        self._rest = rest
        events: list[ServerSentEvent] = []
        for line in bytes(complete).split(b"\n"):
            if line[:6] == b"data: " and line[-1:] != b"\r":  # nearly all lines that are not empty
                self._data.append(line[6:])
                self._data_bytes += len(line)
            else:
                self._read_line(line, events)
        return events

    def close(self) -> list[ServerSentEvent]:
        """Return the event that was not followed by its blank line, if the stream ended there."""
        self._check_size()
        events: list[ServerSentEvent] = []
        for line in (bytes(self._rest), b""):
            self._read_line(line, events)
        self._rest.clear()
        return events

    def _is_past_mark(self) -> bool:
        """Skip a byte order mark; tell whether enough has come to know."""
        if len(self._rest) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(self._rest):
            return False
        self._at_start = False
        if self._rest.startswith(BYTE_ORDER_MARK):
            del self._rest[: len(BYTE_ORDER_MARK)]
        return True

    def _read_line(self, line: bytes, events: list[ServerSentEvent]) -> None:
        if line[-1:] == b"\r":
            line = line[:-1]
        if line.startswith(b"data:"):
            self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            self._data_bytes += len(line)
        elif line.startswith(b"event:"):
            self._name = line[6:].strip().decode("utf-8", "replace") or None
        elif not line:
            if self._data:
                data = self._data[0] if len(self._data) == 1 else b"\n".join(self._data)
                events.append(ServerSentEvent(data, self._name))
                self._data.clear()
                self._data_bytes = 0
            self._name = None

    def _check_size(self) -> None:
        if len(self._rest) + self._data_bytes > self._max_event_bytes:
            raise StreamCut(
                f"The upstream sent a single event of more than {self._max_event_bytes // 2**20} MiB; "
                "elbowroom stopped reading."
            )


DONE = b"[DONE]"


class ChunkReader:
    """Reads one streamed answer; remembers what was seen, so that the end can be judged.

    `model` is the model that the upstream says has answered, None before the first chunk.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self.model: str | None = None
        self.done = False
        self.has_output = False
        self.finish_reason: str | None = None
        self.usage: dict[str, Any] | None = None

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return what one server-sent event says.

        Raises the error that the event carries, or UpstreamError where it is no chunk at all.
        """
        if event.data.strip() == DONE:
            self.done = True
            return []
        try:
            chunk = parse_upstream_json(event.data)
        except ValueError:
            if event.name == "error":
                raise failure_of(event.data.decode("utf-8", "replace"), self._source) from None
            raise not_json(event.data, self._source) from None
        if (error := error_in(chunk)) is not None:
            raise failure_of(error, self._source)
        if event.name == "error":
            raise failure_of(chunk, self._source)
        if not isinstance(chunk, dict):
            raise UpstreamError(f"{self._source.name} sent something that is not a chat chunk.")
        return self._read_chunk(chunk, "delta")

    def read_whole(self, completion: dict[str, Any]) -> list[StreamEvent]:
        """Return what an answer says that came in one piece, from an upstream that does not stream."""
        self.done = True
        return self._read_chunk(completion, "message")

    def judge_end(self) -> None:
        """Raise StreamCut or EmptyReply where the answer that has ended was none."""
        if self.finish_reason is None:
            raise StreamCut(
                f"{self._source.name} ended the answer without saying that it was finished; it may be incomplete. "
                "Its log tells why: a crash, an unloaded model, or a full memory."
            )
        if self.finish_reason == "error":
            raise UpstreamError(f"{self._source.name} ended the answer with an error; its log tells which.")
        if not self.has_output and self.finish_reason != "length":
            raise EmptyReply(
                f"{self._source.name} finished without a word. With a prompt near the model's context length this "
                "means that it did not fit: shorten the conversation or load the model with a larger context."
            )

    def prompt_reached(self, window: int) -> Overflow | None:
        """Return the overflow that an empty answer near the window stands for."""
        prompt = self.usage.get("prompt_tokens") if self.usage else None
        if isinstance(prompt, int) and prompt >= 0.95 * window:
            return Overflow(window, prompt)
        return None

    def _read_chunk(self, chunk: dict[str, Any], part: str) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self.model is None and isinstance(chunk.get("model"), str):
            self.model = chunk["model"]
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            choice = choices[0]
            if error := choice.get("error"):
                raise failure_of(error, self._source)
            if isinstance(delta := choice.get(part), dict):
                self._read_delta(delta, choice.get("logprobs"), events)
            if isinstance(reason := choice.get("finish_reason"), str) and reason:
                self.finish_reason = reason
                events.append(Finished(reason))
        if isinstance(usage := chunk.get("usage"), dict) and usage:
            self.usage = usage
            events.append(UsageReport(usage))
        return events

    def _read_delta(self, delta: dict[str, Any], logprobs: Any, events: list[StreamEvent]) -> None:
        if isinstance(thought := delta.get("reasoning_content"), str) and thought:
            events.append(ReasoningDelta(thought, "reasoning_content"))
        elif isinstance(thought := delta.get("reasoning"), str) and thought:
            events.append(ReasoningDelta(thought, "reasoning"))
        text = delta.get("content")
        if isinstance(text, str) and text:
            events.append(TextDelta(text, logprobs))
        if tool_calls := delta.get("tool_calls"):
            events.extend(_tool_call_deltas(tool_calls))
        if events:
            self.has_output = True


def _tool_call_deltas(tool_calls: Any) -> list[ToolCallDelta]:
    deltas = []
    for position, call in enumerate(tool_calls if isinstance(tool_calls, list) else []):
        if not isinstance(call, dict):
            continue
        function = call["function"] if isinstance(call.get("function"), dict) else {}
        index = call.get("index")
        name, arguments = function.get("name"), function.get("arguments")
        if isinstance(arguments, dict):
            arguments = json.dumps(arguments, ensure_ascii=False)
        deltas.append(
            ToolCallDelta(
                index if isinstance(index, int) else position,
                name if isinstance(name, str) and name else None,
                arguments if isinstance(arguments, str) else "",
            )
        )
    return deltas


class SilenceWatch:
    """Watches one response from the first `heard` on. Time counts only while somebody reads.

    A timeout around each read would cost a timer for every token; this has one timer, which looks again later.
    """

    def __init__(self, response: aiohttp.ClientResponse, seconds: float) -> None:
        self._response = response
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._heard_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.is_reading = False
        self.has_expired = False

    def heard(self) -> None:
        """Note that something has come."""
        self._heard_at = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if not self.is_reading:  # the client is slow, not the upstream
            self._heard_at = self._loop.time()
        left = self._heard_at + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self.has_expired = True
            self._response.close()


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
