"""Stops a turn at its n-th suspension, in whichever of its tasks that is."""

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from serving import Served

from elbowroom.agents import answering
from elbowroom.agents.running import RunningAnswer

Counter = Callable[[], None]
COUNTED: ContextVar[Counter | None] = ContextVar("COUNTED", default=None)
"""What counts the suspensions of the tasks that are begun in this context."""


@types.coroutine
def _counted(coroutine: Coroutine[Any, Any, Any], count: Counter) -> Generator[Any, Any, Any]:
    resume: Callable[[Any], Any] = coroutine.send
    value: Any = None
    while True:
        try:
            awaited = resume(value)
        except StopIteration as done:
            return done.value
        count()
        try:
            resume, value = coroutine.send, (yield awaited)
        except BaseException as error:  # noqa: BLE001  # whatever is thrown in is the coroutine's own matter
            resume, value = coroutine.throw, error


def _factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> "asyncio.Task[Any]":
    count = COUNTED.get()
    if count is None:
        return asyncio.Task(coroutine, loop=loop, **named)

    async def counted() -> Any:
        return await _counted(coroutine, count)

    task = asyncio.Task(counted(), loop=loop, **named)
    task.add_done_callback(lambda _: coroutine.close())  # one that was cancelled before its first step
    return task


class StopsAt:
    """Counts the suspensions of each turn and stops it at the `place`-th; `seen` is how many there were."""

    def __init__(self) -> None:
        self.place = 0
        self.seen = 0
        self.stop: Callable[[RunningAnswer], None] = RunningAnswer.stop

    def counter(self, turn: RunningAnswer) -> Counter:
        """Return what counts those of one turn."""
        self.seen = 0
        loop = asyncio.get_running_loop()

        def count() -> None:
            self.seen += 1
            if self.seen == self.place and not turn.ended.done():
                loop.call_soon(self.stop, turn)

        return count


@contextmanager
def stopping(served: Served) -> Iterator[StopsAt]:
    """Count the suspensions of all turns in this block."""
    stops, loop, answerer_of = StopsAt(), asyncio.get_running_loop(), answering._answerer

    async def counted_answerer(target: Any, request: Any, settings: Any, *, runs_tools: bool) -> Any:
        answerer: Any = await answerer_of(target, request, settings, runs_tools=runs_tools)

        async def counted_run(request: Any, sink: Any, settings: Any, said: Any) -> Any:
            count = stops.counter(settings.running)
            token = COUNTED.set(count)
            try:
                return await _counted(answerer(request, sink, settings, said), count)
            finally:
                COUNTED.reset(token)

        return counted_run

    answering._answerer = counted_answerer
    loop.set_task_factory(_factory)
    try:
        yield stops
    finally:
        loop.set_task_factory(None)
        answering._answerer = answerer_of
