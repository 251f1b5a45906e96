"""An event loop whose time passes only while nothing is left to do, so that hours of waiting take seconds.

What engines, servers and clients in one process wait for is then as long as they say, whatever the machine is at.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest.mock import patch

if TYPE_CHECKING:
    from collections.abc import Coroutine

T = TypeVar("T")
AT_REST: Final = 0.001
"""Real seconds without anything from a socket after which nothing is left to do, unless a thread has work."""


class SimulatedTimeLoop(asyncio.SelectorEventLoop):
    """The loop; its time begins at 0."""

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the seconds since the beginning."""
        return self._now

    def pass_by(self, seconds: float) -> None:
        """Let so many seconds pass."""
        self._now += seconds


class _Selector(selectors.DefaultSelector):
    """Lets time pass in place of waiting; `in_threads` is the work that threads have."""

    def __init__(self, loop: SimulatedTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; where that is nothing, all of the time-out has passed."""
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        while True:
            was_busy = bool(IN_THREADS)
            if ready := super().select(AT_REST):
                return ready
            if not was_busy and not IN_THREADS:
                self._loop.pass_by(timeout)
                return []


IN_THREADS: Final[set[Future[Any]]] = set()
"""The work that threads have."""
submit: Final = ThreadPoolExecutor.submit


def submitted(threads: ThreadPoolExecutor, work: Any, /, *given: Any, **named: Any) -> Future[Any]:
    """Submit work to threads, and note it until it is done."""
    future = submit(threads, work, *given, **named)
    IN_THREADS.add(future)
    future.add_done_callback(IN_THREADS.discard)
    return future


def run_in_simulated_time(work: Coroutine[Any, Any, T]) -> T:
    """Return what the work returns; `time.monotonic` tells the loop's time meanwhile."""
    with asyncio.Runner(loop_factory=SimulatedTimeLoop) as runner:
        clock = runner.get_loop().time
        with patch.object(ThreadPoolExecutor, "submit", submitted), patch.object(time, "monotonic", clock):
            return runner.run(work)
