"""The inference engine: queues requests for slots, reads prompts, and lets answers grow until the window is full."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from elbowroom.demo import refusals
from elbowroom.demo.journal import RecordedRequest
from elbowroom.demo.overflow import Overflow, wording
from elbowroom.demo.residency import Generation, GenerationError, Instance


@dataclass(slots=True)
class Engine:
    """Runs requests on instances; a prompt that is being read is read to its end, even if its client leaves."""

    readings: set[asyncio.Task[None]] = field(default_factory=set)

    @asynccontextmanager
    async def at_work(
        self,
        instance: Instance,
        generation: Generation,
        seconds: float,
        overflow: Overflow,
        record: RecordedRequest,
    ) -> AsyncIterator[None]:
        """Hold one of the instance's slots and read the prompt for so many seconds; the block generates."""
        record.phase = "queued"
        instance.queued += 1
        try:
            await instance.slots.acquire()
        finally:
            instance.queued -= 1
        instance.generations.add(generation)
        join_pool(instance, overflow)
        started = asyncio.Event()
        reading = self._spawn(_read(instance, generation, seconds, started, record))
        try:
            await asyncio.wait({reading})
            reading.result()
            yield
        finally:
            if not started.is_set():
                reading.cancel()
            if reading.done() or not started.is_set():
                _leave(instance, generation)
            else:
                reading.add_done_callback(lambda _: _leave(instance, generation))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.readings.add(task)
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[None]) -> None:
        self.readings.discard(task)
        if not task.cancelled():
            task.exception()

    async def stop(self) -> None:
        """End every reading."""
        for reading in list(self.readings):
            reading.cancel()
        await asyncio.gather(*self.readings, return_exceptions=True)


async def _read(
    instance: Instance,
    generation: Generation,
    seconds: float,
    started: asyncio.Event,
    record: RecordedRequest,
) -> None:
    async with instance.prefill:
        if not instance.ready:
            raise GenerationError(refusals.UNLOADED)
        started.set()
        record.phase = "prefill"
        await generation.pause(seconds)


def _leave(instance: Instance, generation: Generation) -> None:
    instance.generations.discard(generation)
    instance.slots.release()


def join_pool(instance: Instance, overflow: Overflow, tokens: int = 0) -> None:
    """Fail all running requests if the window that they share has no room for `tokens` more."""
    if overflow.shared_pool and instance.pool_tokens + tokens > instance.context_length:
        instance.fail(wording("E", instance.pool_tokens + tokens, instance.context_length, instance.model.architecture))


def grow(instance: Instance, generation: Generation, overflow: Overflow, tokens: int) -> bool:
    """Tell whether an answer may continue after `tokens` more; raise GenerationError if it fails there."""
    join_pool(instance, overflow, tokens)
    generation.check()
    total = generation.total_tokens + tokens
    if total < instance.context_length:
        return True
    if overflow.generation != "policy":
        raise GenerationError(wording(overflow.generation, total, instance.context_length, instance.model.architecture))
    return overflow.policy != "stopAtLimit"
