"""Carries out what pure work asks for: its effects are answered here, on the event loop, one after another."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from elbowroom.context.effects import PrunerFailed, Work

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Ended(Generic[T]):
    """The end of the work; a StopIteration could not leave a thread."""

    value: T


async def carried_out(work: Work[T], answer: Callable[[Any], Awaitable[object]], *, in_thread: bool) -> T:
    """Do the work and return what it returns; `answer` is awaited for each effect, and its PrunerFailed thrown in.

    Between two effects the event loop waits for the work, unless it is done `in_thread`. Cancelled, or where an answer
    fails in another way, the work is closed where it is.
    """
    go_on: Callable[[], Any] = partial(next, work)
    try:
        while True:
            step: Any = await asyncio.to_thread(_advanced, go_on) if in_thread else _advanced(go_on)
            if isinstance(step, _Ended):
                ended: _Ended[T] = step
                return ended.value
            try:
                go_on = partial(work.send, await answer(step))
            except PrunerFailed as error:
                go_on = partial(work.throw, error)
    finally:
        if not in_thread:  # else it may be running yet, and is closed when nobody has it any more
            work.close()


def _advanced(go_on: Callable[[], Any]) -> Any:
    try:
        return go_on()
    except StopIteration as end:
        return _Ended(end.value)
