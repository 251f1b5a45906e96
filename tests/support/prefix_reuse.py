"""How much of each prompt the engine has had in its cache already, by its own report; templates to try that with."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from long_conversations import Kind
    from recording_relay import Request


@dataclass(frozen=True, slots=True)
class Reading:
    """What the engine had to do for one request: its prompt, and the beginning of it that it had read before."""

    prompt: int
    cached: int


@dataclass(frozen=True, slots=True)
class Template:
    """A real template with its vocabulary or one near to it.

    `moves` are the kinds of conversation in which it moves text of earlier turns, or drops some, by itself;
    `refuses` those that it does not take, or not whole, as the client sends them.
    """

    name: str
    vocabulary: str
    moves: frozenset[Kind] = frozenset()
    refuses: frozenset[Kind] = frozenset()


PLAIN_AND_TOOLS: Final[tuple[Kind, ...]] = ("plain", "tools")
TOOLS: Final[frozenset[Kind]] = frozenset({"tools"})
REAL: Final = [
    Template("Qwen-Qwen2.5-7B-Instruct", "qwen2"),
    Template("Qwen-Qwen3-0.6B", "qwen2", moves=TOOLS),
    Template("meta-llama-Llama-3.1-8B-Instruct", "llama-bpe", refuses=TOOLS),
    Template("mistralai-Mistral-Nemo-Instruct-2407", "llama-spm", moves=TOOLS, refuses=frozenset(PLAIN_AND_TOOLS)),
    Template("Mistral-Small-3.2-24B-Instruct-2506", "llama-bpe", moves=TOOLS),
]


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
