"""How much of each prompt the engine has had in its cache already, by its own report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recording_relay import Request


@dataclass(frozen=True, slots=True)
class Reading:
    """What the engine had to do for one request: its prompt, and the beginning of it that it had read before."""

    prompt: int
    cached: int


def readings_of(requests: Sequence[Request]) -> list[Reading]:
    """Return what the engine reports for each chat request, oldest first."""
    return [reading_of(bytes(request.answer)) for request in requests if request.is_chat]


def reading_of(answer: bytes) -> Reading:
    """Return the report in one answer, streamed or whole."""
    *_, timings = [timings for chunk in _objects(answer) if (timings := chunk.get("timings"))]
    return Reading(timings["cache_n"] + timings["prompt_n"], timings["cache_n"])


def _objects(answer: bytes) -> Iterator[dict[str, Any]]:
    if not answer.startswith(b"data: "):
        yield json.loads(answer)
        return
    for line in answer.splitlines():
        if line.startswith(b"data: {"):
            yield json.loads(line[6:])
