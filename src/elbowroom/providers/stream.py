"""Reads one upstream's answer to a chat: server-sent events as they arrive, the chunks in them, and how it ended."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import aiohttp
import msgspec

from elbowroom.errors import ElbowroomError, EmptyReply, StreamCut, UpstreamError
from elbowroom.providers.base import (
    CallPieces,
    EngineFacts,
    Finished,
    Halves,
    ReadingProgress,
    ReasoningDelta,
    StreamEvent,
    TextDelta,
    UsageReport,
)
from elbowroom.providers.failures import Overflow, Source, failure_of, not_json, overflow_error
from elbowroom.providers.upstream import LARGE_ANSWER, WatchedBody, error_in, parse_upstream_json

MAX_EVENT_BYTES: Final = 16 * 1024 * 1024
BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
ONE_EVENT: Final = re.compile(rb"data: ([^\n]*[^\r\n])\n\n")
"""A whole event of one line and nothing else, as an engine writes nearly all of them."""
DONE: Final = b"[DONE]"
WHOLE_TYPES: Final = ("application/json", "text/html")
"""Content types of an upstream that did not stream its answer, or that answered with a page."""
PIECE: Final = 16 * 1024
"""Letters of an event from which on its text is handed on in pieces."""
MOST_AT_ONCE: Final = 64
"""Events that are handed on at once; between so many others have their turn."""


Read = TypeVar("Read")


class ServerSentEvent(msgspec.Struct, frozen=True, gc=False):
    """One event: its data as it was sent, and its name where it has one."""

    data: bytes
    name: str | None = None


@dataclass(slots=True)
class EventReader:
    """Turns bytes as they arrive into events; `rest` has come of a line that is not whole."""

    max_event_bytes: int = MAX_EVENT_BYTES
    rest: bytearray = field(default_factory=bytearray)
    _at_start: bool = True
    _data: list[bytes] = field(default_factory=list)
    _data_bytes: int = 0
    _name: str | None = None

    def feed(self, received: bytes) -> list[ServerSentEvent]:
        """Return the events that these bytes complete; no bytes are the end of the stream.

        Raises StreamCut where a single event grows beyond the limit.
        """
        if not received:
            return self.close()
        is_between_events = not (self.rest or self._data or self._name)
        if is_between_events and (one := ONE_EVENT.fullmatch(received)):
            self._at_start = False
            return [ServerSentEvent(one[1])]
        lines = self._whole_lines(received)
        return self._read_lines(lines) if lines else []

    def close(self) -> list[ServerSentEvent]:
        """Return the last event where the stream ended without the blank line after it."""
        return self._read_lines(self._whole_lines(b"\n\n"))

    def _whole_lines(self, received: bytes) -> bytes:
        """Return the lines that these bytes complete, and keep the beginning of the next."""
        if len(self.rest) + self._data_bytes > self.max_event_bytes:
            raise StreamCut(
                f"The upstream sent a single event of more than {self.max_event_bytes // 2**20} MiB; "
                "elbowroom stopped reading."
            )
        end = received.rfind(b"\n") + 1
        if not end:
            self.rest += received
            return b""
        lines = bytes(self.rest) + received[:end]
        self.rest[:] = received[end:]
        return lines

    def _read_lines(self, lines: bytes) -> list[ServerSentEvent]:
        """Return the events in these lines, the last of which has come whole."""
        if self._at_start:
            self._at_start, lines = False, lines.removeprefix(BYTE_ORDER_MARK)
        events: list[ServerSentEvent] = []
        *blocks, rest = lines.split(b"\n\n")
        for block in blocks:
            is_plain = block[:6] == b"data: " and b"\n" not in block and block[-1:] != b"\r"
            if is_plain and not self._data and self._name is None:  # nearly all of them
                events.append(ServerSentEvent(block[6:]))
                continue
            for line in block.split(b"\n"):
                self._read_line(line, events)
            self._read_line(b"", events)
        for line in rest.split(b"\n")[:-1]:
            self._read_line(line, events)
        return events

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


class _PlainDelta(msgspec.Struct, gc=False):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: None = None


class _PlainChoice(msgspec.Struct, gc=False):
    delta: _PlainDelta | None = None
    finish_reason: None = None
    logprobs: None = None
    error: None = None


class _PlainChunk(msgspec.Struct, gc=False):
    """A chunk that brings nothing but words or thoughts, as nearly all do; other keys are not even decoded."""

    choices: list[_PlainChoice] = []
    model: str | None = None
    object: Literal["chat.completion.chunk"] | None = None
    type: None = None
    error: None = None
    usage: None = None
    prompt_progress: None = None


_PLAIN: Final = msgspec.json.Decoder(_PlainChunk)


@dataclass(slots=True)
class ChunkReader:
    """Reads the chunks of one answer, and remembers what `judge_end` needs.

    `model` is the model that the upstream says has answered, None before the first chunk.
    """

    source: Source
    model: str | None = None
    done: bool = False
    has_output: bool = False
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    _calls: CallPieces = field(default_factory=CallPieces)
    _words: Halves = field(default_factory=Halves)
    _thoughts: Halves = field(default_factory=Halves)

    def read(self, event: ServerSentEvent) -> list[StreamEvent]:
        """Return the events in one server-sent event.

        Raises the error that the event carries, or UpstreamError where it is no chunk at all.
        """
        try:
            chunk = _PLAIN.decode(event.data)
        except (ValueError, RecursionError):
            chunk = None
        if chunk is None or event.name == "error" or self._words.held or self._thoughts.held:
            return self._read_any(event)
        if self.model is None:
            self.model = chunk.model
        delta = chunk.choices[0].delta if chunk.choices else None
        if delta is None:
            return []
        events: list[StreamEvent] = []
        if thought := delta.reasoning_content or delta.reasoning:
            events += [ReasoningDelta(thought)] if len(thought) <= PIECE else map(ReasoningDelta, _pieces(thought))
        if text := delta.content:
            events += [TextDelta(text)] if len(text) <= PIECE else map(TextDelta, _pieces(text))
        if events:
            self.has_output = True
        return events

    def read_whole(self, completion: dict[str, Any]) -> list[StreamEvent]:
        """Return the events of an answer that came in one piece, from an upstream that does not stream."""
        self.done = True
        return self._read_chunk(completion, "message")

    def _read_any(self, event: ServerSentEvent) -> list[StreamEvent]:
        if event.data.strip() == DONE:
            self.done = True
            return []
        try:
            chunk = parse_upstream_json(event.data)
        except ValueError:
            if event.name == "error":
                raise failure_of(event.data.decode("utf-8", "replace"), self.source) from None
            raise not_json(event.data, self.source) from None
        if (error := error_in(chunk)) is not None:
            raise failure_of(error, self.source)
        if event.name == "error":
            raise failure_of(chunk, self.source)
        if not isinstance(chunk, dict):
            raise UpstreamError(f"{self.source.name} sent something that is not a chat chunk.")
        return self._read_chunk(chunk, "delta")

    def _read_chunk(self, chunk: dict[str, Any], part: str) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        if self.model is None and isinstance(chunk.get("model"), str):
            self.model = chunk["model"]
        choices = chunk.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], dict):
            choice = choices[0]
            if error := choice.get("error"):
                raise failure_of(error, self.source)
            if isinstance(delta := choice.get(part), dict):
                self._read_delta(delta, part, choice.get("logprobs"), events)
            if isinstance(reason := choice.get("finish_reason"), str) and reason:
                self.finish_reason = reason
                events += self._rest() if self._words.held or self._thoughts.held else ()
                events.append(Finished(reason))
        if told := chunk.get("prompt_progress"):
            events += _reading_progress(told)
        if isinstance(usage := chunk.get("usage"), dict) and usage:
            self.usage = usage
            events.append(UsageReport(usage))
        if events and isinstance(events[-1], Finished | UsageReport) and (facts := _engine_facts(chunk)):
            events.insert(len(events) - 1, EngineFacts(facts))
        return events

    def _read_delta(self, delta: dict[str, Any], part: str, logprobs: Any, events: list[StreamEvent]) -> None:
        for name in ("reasoning_content", "reasoning"):
            if isinstance(thought := delta.get(name), str) and thought:
                self.has_output = True
                events += map(ReasoningDelta, _pieces(self._thoughts.joined(thought)))
                break
        text = delta.get("content")
        if isinstance(text, str) and text:
            self.has_output = True
            whole = self._words.joined(text)
            events += [TextDelta(whole, logprobs)] if logprobs is not None else map(TextDelta, _pieces(whole))
        if tool_calls := delta.get("tool_calls"):
            events.extend(self._calls.read(tool_calls, is_whole=part == "message"))
        if events:
            self.has_output = True

    def _rest(self) -> list[StreamEvent]:
        """Return what stands for halves of characters whose other half has not come."""
        thought, text = self._thoughts.rest(), self._words.rest()
        return [*([ReasoningDelta(thought)] if thought else []), *([TextDelta(text)] if text else [])]

    def judge_end(self, window: int | None = None) -> None:
        """Raise StreamCut, EmptyReply or ContextOverflow where the answer that ended is incomplete or empty."""
        if not self.has_output and window and (overflow := self._overflow(window)):
            raise overflow_error(overflow, "the answer came back empty.", self.source)
        if self.finish_reason is None:
            raise StreamCut(
                f"{self.source.name} ended the answer without saying that it was finished; it may be incomplete. "
                "Its log tells why: a crash, an unloaded model, or a full memory."
            )
        if self.finish_reason == "error":
            raise UpstreamError(f"{self.source.name} ended the answer with an error; its log tells which.")
        if not self.has_output and self.finish_reason != "length":
            raise EmptyReply(
                f"{self.source.name} finished without a word. With a prompt near the model's context length this "
                "means that it did not fit: shorten the conversation or load the model with a larger context."
            )

    def _overflow(self, window: int) -> Overflow | None:
        """Return the overflow that an empty answer near the window stands for."""
        prompt = self.usage.get("prompt_tokens") if self.usage else None
        return Overflow(window, prompt) if isinstance(prompt, int) and prompt >= 0.95 * window else None


def _pieces(text: str) -> list[str]:
    """Return a text in pieces that are short enough to be worked on at once."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)]


def _reading_progress(told: Any) -> list[StreamEvent]:
    """Return what llama.cpp tells in `prompt_progress` while it reads."""
    match told:
        case {"total": int(total), "cache": int(cached), "processed": int(read), "time_ms": int() | float() as passed}:
            return [ReadingProgress(total, cached, read, passed / 1000)]
        case _:
            return []


def _engine_facts(chunk: dict[str, Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for name, kind in (("system_fingerprint", str), ("timings", dict)):
        if isinstance(told := chunk.get(name), kind):
            facts[name] = told
    return facts


class ChatAnswer:
    """The answer to one chat request as it comes; closing it early closes the connection.

    `window`, in tokens, tells an empty answer at the window's edge from other empty answers. `chunks` has read it so
    far.
    """

    def __init__(self, response: aiohttp.ClientResponse, source: Source, window: int | None) -> None:
        self._response = response
        self._window = window
        self._comes_whole = response.content_type in WHOLE_TYPES
        self._has_ended = False
        self._failure: ElbowroomError | None = None
        self._left: list[StreamEvent] = []
        self._body = WatchedBody(response, source)
        self._events = EventReader()
        self.chunks = ChunkReader(source)

    async def more(self) -> list[StreamEvent]:
        """Return what has arrived, as soon as something has; nothing where the answer is complete."""
        said, self._left = self._left, []
        if said:
            await asyncio.sleep(0)
        elif self._failure is not None:
            raise self._failure
        while not said and not self._has_ended:
            if self._comes_whole:
                said = await self._whole()
            else:
                received = await self._body.read(has_begun=self.chunks.has_output)
                is_large = len(self._events.rest) > LARGE_ANSWER
                said = await asyncio.to_thread(self._read, received) if is_large else self._read(received)
            if self._has_ended:
                self._response.release()
        if not said:
            self.chunks.judge_end(self._window)
        if len(said) > MOST_AT_ONCE:
            said, self._left = said[:MOST_AT_ONCE], said[MOST_AT_ONCE:]
        return said

    def close(self) -> None:
        """Read no more."""
        self._body.end()
        self._response.close()

    async def _whole(self) -> list[StreamEvent]:
        said = self.chunks.read_whole(await read_completion(self._response, self.chunks.source))
        self._has_ended = True
        return said

    def _read(self, received: bytes) -> list[StreamEvent]:
        """Return what these bytes say up to the first failure, which `more` raises after words that came with it."""
        said: list[StreamEvent] = []
        for event in self._events.feed(received):
            if self.chunks.done:
                break
            try:
                said += self.chunks.read(event)
            except ElbowroomError as failure:
                if not said:
                    raise
                self._failure = failure.with_traceback(None)  # whose frames know this answer
                return said
        if self.chunks.done or not received:
            self._has_ended = True
        return said


async def read_completion(response: aiohttp.ClientResponse, source: Source) -> dict[str, Any]:
    """Return the chat completion that a response carries in one piece, as the upstream sent it."""
    text = await read_body(response, source)
    return await read_at_leisure(text, lambda: parsed_completion(text, source))


async def read_at_leisure(text: bytes, read: Callable[[], Read]) -> Read:
    """Return what is read in the text of an answer; a large one is read in a thread."""
    return read() if len(text) <= LARGE_ANSWER else await asyncio.to_thread(read)


def parsed_completion(text: bytes, source: Source) -> dict[str, Any]:
    """Return the chat completion in a text. Raises the error that it is, or UpstreamError where it is none."""
    try:
        answer = parse_upstream_json(text)
    except ValueError:
        raise not_json(text, source) from None
    if (problem := error_in(answer)) is not None:
        raise failure_of(problem, source)
    if not isinstance(answer, dict) or "choices" not in answer:
        raise UpstreamError(f"{source.name} at {source.url} did not answer with a chat completion.")
    return answer


async def read_body(response: aiohttp.ClientResponse, source: Source) -> bytes:
    """Return the whole body of a response. Raises UpstreamTimeout and StreamCut."""
    body, parts = WatchedBody(response, source), list[bytes]()
    try:
        while part := await body.read(has_begun=False):
            parts.append(part)
    finally:
        body.end()
    return b"".join(parts)
