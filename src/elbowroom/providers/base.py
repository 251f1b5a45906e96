"""What every provider offers, and the values it speaks in."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from elbowroom.errors import ElbowroomError, UpstreamTimeout
from elbowroom.tokens.counter import TokenCounter


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer; `logprobs` as the upstream sent them, where the client asked for them."""

    text: str
    logprobs: Any = None


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's thinking, under the field name that its upstream uses."""

    text: str
    field: Literal["reasoning_content", "reasoning"] = "reasoning_content"


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a tool call: the first piece of an index has the name, the others more of the arguments."""

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


StreamEvent = TextDelta | ReasoningDelta | ToolCallDelta | Finished | UsageReport


State = Literal["loaded", "loading", "not-loaded"]
FRESH_SECONDS = 3.0
PATIENCE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One model of a provider.

    `loaded_context` is the window of the loaded instance, in tokens: the only number to budget from; None while
    nothing is loaded or where the provider does not tell. `max_context` is what the model was trained for.
    `instances` maps the ids of loaded instances to their windows. `key` is the model's name on
    disk where `id` is that of an instance; `size_bytes` and `format` ("gguf" or "safetensors") are its file's.
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


class PassedAnswer(Protocol):
    """An answer that an upstream has begun well. Its methods raise only ElbowroomErrors."""

    async def whole(self) -> dict[str, Any]:
        """Return an answer that is one JSON object."""

    def chunks(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the objects of a stream up to its end, and no faster than they are taken."""


class Provider(Protocol):
    """A server that runs models. Its methods raise ElbowroomErrors in words for the person."""

    @property
    def id(self) -> str:
        """Its id in the settings: the first part of a raw model's name."""

    @property
    def manages_context(self) -> bool:
        """Tell whether requests are kept inside the model's window; otherwise they are passed through as sent."""

    async def models(self) -> Sequence[ModelInfo]:
        """Return all models, at most a few seconds old."""

    async def ready(self, model: str) -> ModelInfo:
        """Return the model with the window that it has now, loaded where the provider can load it.

        Raises ModelNotFound, ModelUnavailable, or what `models` raises.
        """

    def stream(self, body: Mapping[str, Any], info: ModelInfo) -> AsyncGenerator[list[StreamEvent], None]:
        """Send a chat request and yield what comes back, as many events at a time as arrived together.

        The end of the generator is the end of a complete answer; a failure is raised. Closing it closes the socket.
        """

    async def complete(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Send a chat request that does not stream and return the completion as the upstream sent it."""

    def passed(self, path: str, body: Mapping[str, Any]) -> AbstractAsyncContextManager[PassedAnswer]:
        """Send a request to another of OpenAI's routes as it is, such as `embeddings`, and give the answer.

        Leaving before the answer's end closes the socket.
        """

    async def overflow_policy(self, model: str) -> str | None:
        """Return what the engine does with a prompt that is too long, such as truncateMiddle; None where unknown."""

    async def counter(self, info: ModelInfo) -> TokenCounter:
        """Return the counter of this model, the same one as long as the model stays as it is."""

    async def aclose(self) -> None:
        """End what is under way on the provider's own account."""


class RecentModels:
    """Asks for a list of models once for all who want it at the same time, and keeps it for a few seconds.

    Those who waited for an attempt that failed share its failure, so that a crowd does not queue up at an upstream
    that is down, each with a time limit of its own.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[Sequence[ModelInfo]]], clock: Callable[[], float], seconds: float
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._seconds = seconds
        self._lock = asyncio.Lock()
        self._models: Sequence[ModelInfo] | None = None
        self._read_at = 0.0
        self._read_by = 0
        self._begun = 0
        self._attempts = 0
        self._failure: ElbowroomError | None = None
        self._changes = 0

    async def get(self) -> Sequence[ModelInfo]:
        """Return the list, at most as old as the time that was chosen; raises what asking for it raises."""
        attempts_before = self._attempts
        async with self._lock:
            if self._failure is not None and self._attempts > attempts_before:
                raise self._failure
            return self._kept() or await self._ask()

    async def get_new(self) -> Sequence[ModelInfo]:
        """Return a list that was asked for after this call; who calls meanwhile shares the next one.

        An upstream that is too busy to answer soon is not waited for where a list is there that is at most as old as
        the time that was chosen. Raises what asking for it raises.
        """
        kept = self._kept()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS if kept else None):
                return await self._asked_after(self._begun, self._attempts)
        except (TimeoutError, UpstreamTimeout):
            if not kept:
                raise
            return kept

    async def _asked_after(self, begun: int, attempts: int) -> Sequence[ModelInfo]:
        """Return a list that was asked for after so many others had been; `attempts` of them had ended."""
        async with self._lock:
            if self._models is not None and self._read_by > begun:
                return self._models
            if self._failure is not None and self._attempts > attempts:
                raise self._failure
            return await self._ask()

    def _kept(self) -> Sequence[ModelInfo] | None:
        return self._models if self._clock() - self._read_at <= self._seconds else None

    def forget(self) -> None:
        """Have the list read again at the next request: a model was loaded, unloaded or refused a prompt."""
        self._models = None
        self._changes += 1

    async def _ask(self) -> Sequence[ModelInfo]:
        changes_before = self._changes
        self._begun += 1
        self._failure = None
        try:
            models = await self._fetch()
        except ElbowroomError as failure:
            self._models, self._failure = None, failure
            raise
        finally:
            self._attempts += 1
        # A list that may be older than what has changed meanwhile must not pass for fresh.
        self._models = models if self._changes == changes_before else None
        self._read_at, self._read_by = self._clock(), self._begun
        return models
