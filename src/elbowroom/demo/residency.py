"""The models in memory: their windows, their running requests, loading and unloading."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from elbowroom.demo import refusals
from elbowroom.demo.models import SimulatedModel
from elbowroom.errors import ModelNotFound


class GenerationError(Exception):
    """An answer failed in the engine; the message is LM Studio's."""


class Generation:
    """The tokens of one running request: of its prompt, and generated so far.

    All its pauses are methods here, so that an unload or a full pool ends the request at once.
    """

    def __init__(self, prompt_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.completion_tokens = 0
        self.reasoning_tokens = 0
        self._failure: str | None = None
        self._failed = asyncio.Event()

    @property
    def total_tokens(self) -> int:
        """The tokens that it takes of the window."""
        return self.prompt_tokens + self.completion_tokens

    def fail(self, message: str) -> None:
        """End the request with this message, at its current or next pause."""
        self._failure = message
        self._failed.set()

    def check(self) -> None:
        """Raise GenerationError if the request has failed."""
        if self._failure is not None:
            raise GenerationError(self._failure)

    async def pause(self, seconds: float) -> None:
        """Wait so many seconds, or raise GenerationError as soon as the request fails."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._failed.wait()
            except TimeoutError:
                pass
        else:
            await asyncio.sleep(0)
        self.check()

    async def until(self, wait: Callable[[], Awaitable[Any]]) -> None:
        """Wait for something, or raise GenerationError as soon as the request fails."""
        waits = [asyncio.ensure_future(wait()), asyncio.ensure_future(self._failed.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for waiting in waits:
                waiting.cancel()
        self.check()


@dataclass(slots=True, eq=False)
class Instance:
    """A model in memory, or on its way there; `context_length` is the window it was granted.

    `ttl_seconds` is None for a model that was loaded on purpose: it stays until it is unloaded. `reference`
    names this very load, `last_prompt` is what its cache holds, `queued` how many requests wait for a slot.
    """

    id: str
    model: SimulatedModel
    context_length: int
    last_used: float
    ttl_seconds: float | None = None
    ready: bool = True
    reference: str = ""
    last_prompt: str = ""
    queued: int = 0
    generations: set[Generation] = field(default_factory=set)
    prefill: asyncio.Lock = field(default_factory=asyncio.Lock)
    slots: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.slots = asyncio.Semaphore(self.model.parallel)

    @property
    def pool_tokens(self) -> int:
        """The tokens of all requests at work: they share one window."""
        return sum(generation.total_tokens for generation in self.generations)

    def fail(self, message: str) -> None:
        """Fail all running requests."""
        for generation in self.generations:
            generation.fail(message)


class Residency:
    """The models on disk and the instances in memory, in the order in which they were loaded."""

    def __init__(self, models: Iterable[SimulatedModel], clock: Callable[[], float]) -> None:
        self.models = {model.key: model for model in models}
        self.instances: dict[str, Instance] = {}
        self._clock = clock
        self._loading = asyncio.Lock()
        self._loads = 0
        for model in self.models.values():
            if model.loaded_context_length is not None:
                self.load(model.key, model.loaded_context_length)

    @property
    def ready(self) -> list[Instance]:
        """The instances that have finished loading."""
        return [instance for instance in self.instances.values() if instance.ready]

    def of(self, key: str) -> list[Instance]:
        """Return the instances of one model, loading ones too."""
        return [instance for instance in self.instances.values() if instance.model.key == key]

    def model(self, key: str) -> SimulatedModel:
        """Return the model of this key; raise ModelNotFound with the keys there are."""
        try:
            return self.models[key]
        except KeyError:
            raise ModelNotFound(
                f"The simulated LM Studio has no model {key!r}; it has {sorted(self.models)}."
            ) from None

    def load(
        self,
        key: str,
        context_length: int | None = None,
        *,
        ttl_seconds: float | None = None,
        ready: bool = True,
    ) -> Instance:
        """Load another instance at once; its window may differ from the one asked for."""
        model = self.model(key)
        name = next(name for name in _names(key) if name not in self.instances)
        granted = model.granted(context_length)
        self._loads += 1
        instance = Instance(
            name,
            model,
            granted,
            self._clock(),
            ttl_seconds=ttl_seconds,
            ready=ready,
            reference=f"r{self._loads}",
        )
        self.instances[name] = instance
        return instance

    async def load_slowly(
        self, key: str, context_length: int | None = None, *, ttl_seconds: float | None = None
    ) -> Instance:
        """Load another instance in the model's `load_seconds`."""
        instance = self.load(key, context_length, ttl_seconds=ttl_seconds, ready=False)
        try:
            await asyncio.sleep(instance.model.load_seconds)
        except asyncio.CancelledError:
            self.instances.pop(instance.id, None)
            raise
        if instance.id not in self.instances:
            raise refusals.plain(refusals.UNLOADED)
        instance.ready = True
        return instance

    async def load_just_in_time(self, key: str, ttl_seconds: float, *, evict: bool) -> Instance:
        """Return an instance of the model, loaded if necessary; `evict` unloads other models that were loaded so."""
        async with self._loading:
            if there := [instance for instance in self.ready if instance.model.key == key]:
                return there[0]
            for instance in self.ready:
                if evict and instance.ttl_seconds is not None and instance.model.type != "embedding":
                    self.unload(instance.id)
            return await self.load_slowly(key, ttl_seconds=ttl_seconds)

    def unload(self, name: str, message: str = refusals.UNLOADED) -> None:
        """Unload an instance, or all instances of a model; their running requests fail with the message."""
        gone = [self.instances[name]] if name in self.instances else self.of(name)
        if not gone:
            raise ModelNotFound(f"{name!r} is not loaded; loaded are {sorted(self.instances)}.")
        for instance in gone:
            del self.instances[instance.id]
            instance.ready = False
            instance.fail(message)

    def expire(self) -> None:
        """Unload the instances that have been idle for longer than their time to live."""
        now = self._clock()
        for instance in self.ready:
            ttl = instance.ttl_seconds
            if ttl is not None and not instance.generations and now - instance.last_used > ttl:
                self.unload(instance.id)

    def touch(self, instance: Instance) -> None:
        """Note that the instance was used just now."""
        instance.last_used = self._clock()

    def named(self, name: str) -> Instance | None:
        """Return the ready instance with this id, else the first ready one of the model with this key."""
        if (exact := self.instances.get(name)) is not None and exact.ready:
            return exact
        return next((instance for instance in self.ready if instance.model.key == name), None)

    def fallback(self, *, embedding: bool = False) -> Instance:
        """Return the only loaded instance; raise RefusalError if there are none or several."""
        candidates = [one for one in self.ready if (one.model.type == "embedding") == embedding]
        if not candidates:
            raise refusals.no_such_model(refusals.NO_MODELS, status=404)
        if len(candidates) > 1:
            raise refusals.no_such_model(refusals.SEVERAL_MODELS)
        return candidates[0]


def _names(key: str) -> Iterable[str]:
    yield key
    number = 2
    while True:
        yield f"{key}:{number}"
        number += 1
