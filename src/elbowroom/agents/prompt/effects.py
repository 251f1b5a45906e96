"""Carries out what pure work asks for: its effects are answered here, on the event loop, one after another."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from elbowroom.context.effects import Effect, PrunerFailed, Work

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    """The end of the work; a StopIteration could not leave a thread."""

    value: T


async def carried_out(work: Work[T], answer: Callable[[Effect], Awaitable[object]], *, in_thread: bool) -> T:
    """Do the work and return what it returns; `answer` is awaited for each effect, and its PrunerFailed thrown in.

    Between two effects the event loop waits for the work, unless it is done `in_thread`. Cancelled, it leaves no trace.
    """
    go_on: Callable[[], Effect] = partial(next, work)
    while True:
        step: Effect | _Ended[T] = await asyncio.to_thread(_advanced, go_on) if in_thread else _advanced(go_on)
        if isinstance(step, _Ended):
            return step.value
        try:
            go_on = partial(work.send, await answer(step))
        except PrunerFailed as error:
            go_on = partial(work.throw, error)


def _advanced(go_on: Callable[[], Effect]) -> Effect | _Ended[Any]:
    try:
        return go_on()
    except StopIteration as end:
        return _Ended(end.value)
