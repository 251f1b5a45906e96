"""The machine below the models: queues requests, reads prompts, lets answers grow until something is full."""

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
    """Runs requests on instances; a prompt once begun is read to its end, whether its client waits or not."""

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
        """Hold one of the instance's slots, read the prompt for so long, and generate in the body."""
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
    """End every request at work if the instance's window, which they share, cannot take `tokens` more."""
    if overflow.shared_pool and instance.pool_tokens + tokens > instance.context_length:
        instance.fail(wording("E", instance.pool_tokens + tokens, instance.context_length, instance.model.architecture))


def grow(instance: Instance, generation: Generation, overflow: Overflow, tokens: int) -> bool:
    """Tell whether an answer may go on after `tokens` more; raise GenerationError where that breaks it."""
    join_pool(instance, overflow, tokens)
    generation.check()
    total = generation.total_tokens + tokens
    if total < instance.context_length:
        return True
    if overflow.generation != "policy":
        raise GenerationError(wording(overflow.generation, total, instance.context_length, instance.model.architecture))
    return overflow.policy != "stopAtLimit"
