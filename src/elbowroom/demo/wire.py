"""The JSON of LM Studio's chat route: chunks, whole completions, usage and frames of the stream."""

import json
from dataclasses import dataclass
from typing import Any

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Heading:
    """What is the same in every chunk of one answer; `model` is the id of the instance that answers."""

    id: str
    created: int
    model: str


def chunk(heading: Heading, delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """Return one chunk of the stream; LM Studio repeats the role in every delta that has something in it."""
    role = {"role": "assistant"} if delta else {}
    choice = {"index": 0, "delta": role | delta, "logprobs": None, "finish_reason": finish_reason}
    return _chunk_head(heading) | {"choices": [choice]}


def usage_chunk(heading: Heading, usage: Any) -> dict[str, Any]:
    """Return the chunk of its own that carries the usage, without choices."""
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


def usage_of(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """Return the usage as a stream shows it; LM Studio never tells cached tokens."""
    total = prompt_tokens + completion_tokens
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total}


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
