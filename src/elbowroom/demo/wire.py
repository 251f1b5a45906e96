"""The wire format of answers: chunks, completions, usage, and the event stream."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from elbowroom.demo.journal import RECORD

DONE = b"data: [DONE]\n\n"
_HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "Connection": "keep-alive"}


@dataclass(frozen=True, slots=True)
class Heading:
    """The fields that all chunks of an answer share; `model` is the id of the instance."""

    id: str
    created: int
    model: str


def chunk(heading: Heading, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """Return one chunk of the stream; every delta that is not empty repeats the role, as with LM Studio."""
    role = {"role": "assistant"} if delta else {}
    choice = {"index": 0, "delta": role | delta, "logprobs": None, "finish_reason": finish_reason}
    return _chunk_head(heading) | {"choices": [choice]}


def usage_chunk(heading: Heading, usage: Any) -> dict[str, Any]:
    """Return the chunk with the usage and without choices."""
    return _chunk_head(heading) | {"choices": [], "usage": usage}


def _chunk_head(heading: Heading) -> dict[str, Any]:
    return {
        "id": heading.id,
        "object": "chat.completion.chunk",
        "created": heading.created,
        "model": heading.model,
        "system_fingerprint": heading.model,
    }


def call_opened(index: int, call_id: str, name: str) -> dict[str, Any]:
    """Return the first delta of a tool call."""
    function = {"name": name, "arguments": ""}
    return {"tool_calls": [{"index": index, "id": call_id, "type": "function", "function": function}]}


def call_continued(index: int, arguments: str) -> dict[str, Any]:
    """Return a later delta of a tool call: id and name are null."""
    function = {"name": None, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": None, "type": "function", "function": function}]}


def usage_of(prompt_tokens: int, completion_tokens: int, cached: int | None = None) -> dict[str, Any]:
    """Return the usage of a stream; LM Studio never reports `cached` tokens, as llama.cpp does."""
    total = prompt_tokens + completion_tokens
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}
    return usage if cached is None else {**usage, "prompt_tokens_details": {"cached_tokens": cached}}


def completion(heading: Heading, message: dict[str, Any], finish_reason: str | None, usage: Any) -> dict[str, Any]:
    """Return the whole answer of a request that is not streamed."""
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason}
    whole = {
        "id": heading.id,
        "object": "chat.completion",
        "created": heading.created,
        "model": heading.model,
        "choices": [choice],
    }
    if usage is not None:
        whole["usage"] = usage
    return whole | {"stats": {}, "system_fingerprint": heading.model}


def frame(payload: Any) -> bytes:
    """Return one event of the stream, as compact JSON."""
    return b"data: " + json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def error_frame(message: str) -> bytes:
    """Return the event that ends a stream that failed."""
    return b"event: error\n" + frame({"error": {"message": message}, "message": message})


def text_completion(heading: Heading, text: str | None, finish_reason: str | None) -> dict[str, Any]:
    """Return an answer of `/v1/completions`, or a chunk of one; without choices where there is no text."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": heading.id,
        "object": "text_completion",
        "created": heading.created,
        "model": heading.model,
        "choices": [] if text is None else [choice],
    }


class EventStream:
    """An event stream to one client; `cut_after` closes the socket after that many bytes of it."""

    def __init__(self, request: web.Request, cut_after: int | None = None) -> None:
        self._request = request
        self._cut_after = cut_after
        self._sent = 0
        self.response = web.StreamResponse(headers=_HEADERS)

    async def open(self) -> None:
        """Send the status and the headers."""
        await self.response.prepare(self._request)

    async def send(self, data: bytes) -> None:
        """Send these bytes, up to the cut."""
        if self._cut_after is not None and self._sent + len(data) >= self._cut_after:
            await self.response.write(data[: self._cut_after - self._sent])
            hang_up(self._request)
        self._sent += len(data)
        await self.response.write(data)

    async def end(self, *, done: bool) -> web.StreamResponse:
        """End the response, after `[DONE]` if `done`."""
        if done:
            await self.send(DONE)
        self._request[RECORD].phase = "done"
        await self.response.write_eof()
        return self.response

    async def fail(self, message: str) -> web.StreamResponse:
        """Send the error event, after which there is no `[DONE]`."""
        await self.send(error_frame(message))
        return await self.end(done=False)


def hang_up(request: web.Request) -> None:
    """Close the socket without ending the response."""
    request[RECORD].phase = "cut"
    if request.transport is not None:
        request.transport.close()
    raise asyncio.CancelledError
