"""What every provider offers, the values it speaks in, and how pieces of them are put together."""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec

from elbowroom.tokens.counter import TokenCounter
from elbowroom.tokens.files import whole_characters


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the answer; `logprobs` as the upstream sent them, where the client asked for them."""

    text: str
    logprobs: Any = None


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of the model's thinking."""

    text: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of the tool call number `index`: the name, a part of it, or a part of the arguments, in any order."""

    index: int
    name: str | None
    arguments: str


@dataclass(frozen=True, slots=True)
class Finished:
    """The upstream's finish_reason: stop, length, tool_calls or content_filter."""

    reason: str


@dataclass(frozen=True, slots=True)
class UsageReport:
    """The upstream's usage object, unchanged; its numbers are tokens."""

    usage: dict[str, Any]


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the upstream says of itself at the end: its `system_fingerprint`, and the `timings` of llama.cpp."""

    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ReadingProgress:
    """How far the upstream has read a prompt of `total` tokens after so many seconds; `cached` it had read before."""

    total: int
    cached: int
    processed: int
    seconds: float

    @property
    def left(self) -> int:
        """Return how many tokens it has still to read."""
        return max(0, self.total - self.processed)

    @property
    def speed(self) -> float:
        """Return how many tokens it reads in a second, 0 while nobody knows."""
        return max(0, self.processed - self.cached) / self.seconds if self.seconds > 0 else 0.0


StreamEvent = TextDelta | ReasoningDelta | ToolCallDelta | EngineFacts | ReadingProgress | Finished | UsageReport

State = Literal["loaded", "loading", "not-loaded"]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of a provider.

    `loaded_context` is the window of the loaded instance in tokens, the only number to budget from; None while
    nothing is loaded or where the provider does not tell. `max_context` is the window that the model was trained
    for. `instances` maps the ids of loaded instances to their windows. Where `id` names an instance, `key` names the
    model on disk. `size_bytes` and `format` ("gguf" or "safetensors") describe its file. `slots` is how many requests
    the engine reads side by side, each with a cache of its own; None where nobody tells. An engine that
    `tells_reading` says how far it has read a prompt.
    """

    id: str
    provider: str
    name: str
    kind: Literal["llm", "vlm", "embedding"] = "llm"
    state: State | None = None
    loaded_context: int | None = None
    max_context: int | None = None
    architecture: str | None = None
    capabilities: frozenset[str] = frozenset()
    instances: Mapping[str, int] | None = None
    key: str | None = None
    size_bytes: int | None = None
    format: str | None = None
    slots: int | None = None
    tells_reading: bool = False


class PassedAnswer(Protocol):
    """An answer of an upstream with the status 200. Its methods raise only ElbowroomErrors.

    What is passed on is what came, byte for byte, but under the name by which the client has asked for the model.
    """

    @property
    def usage(self) -> dict[str, Any] | None:
        """The usage that the answer has reported so far."""

    @property
    def finish_reason(self) -> str:
        """Why a chat's answer has ended; empty before its end, and for other answers."""

    async def whole(self) -> dict[str, Any]:
        """Return an answer that is one JSON object."""

    async def text(self, model: str) -> bytes:
        """Return an answer that is one JSON object, as text."""

    def frames(self, model: str) -> AsyncGenerator[bytes, None]:
        """Yield the frames of a stream up to its end, without the last one, and no faster than they are taken."""


class ModelManagement(Protocol):
    """Lists, loads and downloads models by LM Studio's routes, whose bodies come and go unchanged."""

    async def catalog(self) -> dict[str, Any]:
        """Return all downloaded models with their loaded instances: `{"models": [...]}`."""

    async def load(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Load `model`; another instance of it where it is loaded already. Returns when it is ready."""

    async def unload(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Unload the instance `instance_id`."""

    async def download(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Begin to download `model`; the answer has the `job_id` for `download_status`."""

    async def download_status(self, job_id: str) -> dict[str, Any]:
        """Return how far a download is."""


@dataclass(frozen=True, slots=True)
class SlotMoved:
    """A slot of an engine that was saved or restored: how many tokens it has, and how many seconds that took."""

    tokens: int
    seconds: float


class SlotState(NamedTuple):
    """Whether something is read or written in a slot, and the number of the last request there, None if not told."""

    is_busy: bool
    request: int | None

    def has_begun(self, before: "SlotState | None") -> bool:
        """Tell whether a request has come to the slot since."""
        busy, request = before if before is not None else (False, None)
        return self.request != request or (self.is_busy and not busy)


class SlotFiles(Protocol):
    """Files in which an engine keeps what it has read in a slot, by llama.cpp's routes. They raise ElbowroomErrors."""

    async def can_save(self, model: str) -> bool:
        """Return whether the engine was started with a folder for such files."""

    async def states(self, model: str) -> Mapping[int, SlotState] | None:
        """Return what each slot does; None where the engine does not tell."""

    async def save(self, model: str, slot: int, number: int, seconds: float) -> SlotMoved:
        """Write what the slot has into the file with this number, over what that had; within so many seconds."""

    async def restore(self, model: str, slot: int, number: int, seconds: float) -> SlotMoved:
        """Put what the file with this number has into the slot, in place of what that has; within so many seconds."""


class Provider(Protocol):
    """A server that runs models. Its methods raise ElbowroomErrors in words for the person."""

    @property
    def id(self) -> str:
        """Its id in the settings: the first part of a raw model's name."""

    @property
    def manages_context(self) -> bool:
        """Whether requests are kept inside the model's window; otherwise they are passed through as sent."""

    @property
    def has_own_tool_format(self) -> bool:
        """Whether it writes tool calls and results in its own form for a model whose template knows no tools."""

    @property
    def management(self) -> ModelManagement | None:
        """The routes by which its models are listed and loaded, None where it has none."""

    @property
    def slot_files(self) -> SlotFiles | None:
        """The routes by which its models' slots are saved and restored, None where it can have none."""

    async def models(self) -> Sequence[ModelInfo]:
        """Return all models, at most a few seconds old."""

    async def ready(self, model: str) -> ModelInfo:
        """Return the model with the window that it has now, loaded where the provider can load it.

        Raises ModelNotFound, ModelUnavailable, or what `models` raises.
        """

    def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request and yield its events, as many at a time as arrived together.

        The generator ends where a complete answer ends, and raises a failure. Closing it closes the socket.
        """

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Send a request unchanged to one of OpenAI's routes, such as `embeddings`; yields the answer.

        Leaving the context before the answer's end closes the socket.
        """

    async def overflow_policy(self, model: str) -> str | None:
        """Return what the engine does with a prompt that is too long, such as truncateMiddle; None where unknown."""

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the counter of this model; the same object as long as the model stays loaded as it is."""

    async def aclose(self) -> None:
        """Cancel the provider's own work, such as loading a model, and close its connections."""


FIRST_HALVES: Final = ("\ud800", "\udbff")
"""The first and the last half character that another half has to follow."""


@dataclass(slots=True)
class Halves:
    """Joins characters whose halves come in two pieces of one text, and replaces halves that stay alone."""

    held: str = ""

    def joined(self, text: str) -> str:
        """Return a piece of the text; half a character at its end waits for the next piece."""
        text, self.held = self.held + text, ""
        if text and FIRST_HALVES[0] <= text[-1] <= FIRST_HALVES[1]:
            text, self.held = text[:-1], text[-1]
        return whole_characters(text)

    def rest(self) -> str:
        """Return what stands for a half that has waited in vain."""
        held, self.held = self.held, ""
        return whole_characters(held)


@dataclass(slots=True)
class CallPieces:
    """Reads the pieces of the tool calls in one answer, and finds the number of a call that a piece does not give."""

    _latest: int = 0
    _by_id: dict[str, int] = field(default_factory=dict)

    def read(self, tool_calls: Any, *, is_whole: bool = False) -> list[ToolCallDelta]:
        """Return the pieces in a delta's `tool_calls`, or the calls of a whole answer; what says nothing is none."""
        deltas = []
        for position, call in enumerate(tool_calls if isinstance(tool_calls, list) else []):
            if not isinstance(call, dict):
                continue
            function = call["function"] if isinstance(call.get("function"), dict) else {}
            name = function.get("name") if isinstance(function.get("name"), str) else None
            arguments, call_id = function.get("arguments"), call.get("id")
            if not isinstance(arguments, str):
                arguments = "" if arguments is None else json.dumps(arguments, ensure_ascii=False)
            if name or arguments or call_id:
                self._latest = position if is_whole else self._index_of(call, position, begins=bool(name))
                deltas.append(ToolCallDelta(self._latest, whole_characters(name or "") or None, arguments))
        return deltas

    def _index_of(self, call: dict[str, Any], position: int, *, begins: bool) -> int:
        """Return the number that a piece gives, else that of its id, else its place; a bare piece goes on."""
        index, call_id = call.get("index"), call.get("id")
        if not isinstance(index, int):
            if isinstance(call_id, str) and call_id in self._by_id:
                return self._by_id[call_id]
            index = position if begins or call_id or position else self._latest
            while begins and call_id and index in self._by_id.values():
                index += 1
        if isinstance(call_id, str) and call_id:
            self._by_id[call_id] = index
        return index
