"""An event loop on which a seed decides what runs next: the same number gives the same schedule again.

Nothing waits for a clock, a socket or a thread. Of all callbacks that are ready the loop runs one at a time, chosen at
random; each takes a moment of the loop's own time, and where none is ready the clock goes on to the next timer. Work
for threads is carried out whole, by the loop itself, at a moment that is chosen as well.
"""

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from random import Random
from typing import Any, Final, ParamSpec, TypeVar
from unittest.mock import patch

MOST_STEPS: Final = 100_000
LONGEST_STEP: Final = 0.001
LONGEST_WORK: Final = 0.05
"""In seconds of the loop's clock: how long a callback takes at most, and work in a thread."""
EPOCH: Final = 1_760_000_000.0
"""The time of day at which each schedule begins, in Unix seconds."""
Given = ParamSpec("Given")
Result = TypeVar("Result")


class WovenLoop(asyncio.SelectorEventLoop):
    """An event loop with a schedule of its own; `steps` counts the callbacks that have run.

    Once it `is_over`, neither they nor the clock go on: what the end of the loop closes depends on what Python has
    collected by then.

    Raises RuntimeError where nothing is left that could go on, or where there is no end to it.
    """

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = Random(seed)
        self.steps = 0
        self.is_over = False
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def run_in_executor(  # type: ignore[override]  # the base class overloads it by the version of Python
        self, executor: Executor | None, work: Callable[..., Result], *given: Any
    ) -> "asyncio.Future[Result]":
        """Do the work at a chosen moment."""
        return asyncio.wrap_future((executor or WovenThreads()).submit(work, *given), loop=self)

    def _write_to_self(self) -> None:
        """Wake nobody: the loop never sleeps."""

    def _run_once(self) -> None:
        self._ring()
        if not self._ready:
            self._skip_to_the_next_timer()
        self._ready.rotate(-self.random.randrange(len(self._ready)))
        handle = self._ready.popleft()
        if not self.is_over:
            self.steps += 1
            self._now += self.random.random() * LONGEST_STEP
        if self.steps > MOST_STEPS:
            raise RuntimeError(f"the schedule has no end: {handle!r}")
        if not handle.cancelled():
            handle._run()

    def _ring(self) -> None:
        """Let the timers be ready whose time has come."""
        while self._scheduled and (self._scheduled[0].cancelled() or self._scheduled[0].when() <= self._now):
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False  # type: ignore[attr-defined]  # so that cancelling it later counts nothing
            if not timer.cancelled():
                self._ready.append(timer)

    def _skip_to_the_next_timer(self) -> None:
        if not self._scheduled:
            raise RuntimeError("nothing is left that could go on, and somebody waits")
        self._now = self._scheduled[0].when()
        self._ring()


class WovenThreads(Executor):
    """So many threads of a pool: work begins in order, and each piece is done whole when the loop chooses it."""

    def __init__(self, threads: int = 1, name: str = "") -> None:
        self._threads = threads
        self._waiting: list[Callable[[], None]] = []

    def submit(self, work: Callable[Given, Result], /, *args: Given.args, **named: Given.kwargs) -> Future[Result]:
        """Have work done; the future has its result."""
        future = Future[Result]()
        self._waiting.append(lambda: _carry_out(future, lambda: work(*args, **named)))
        loop = _running()
        loop.call_later(loop.random.random() * LONGEST_WORK, self._do_one)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Finish all that was begun."""
        while self._waiting:
            self._do_one()

    def _do_one(self) -> None:
        under_way = self._waiting[: self._threads]
        if under_way:
            done = _running().random.choice(under_way)
            self._waiting.remove(done)
            done()


def _running() -> WovenLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WovenLoop)
    return loop


def _carry_out(future: Future[Result], work: Callable[[], Result]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  # it is raised where the result is awaited
        future.set_exception(error)
    else:
        future.set_result(result)


@contextmanager
def _by_its_clock(loop: WovenLoop) -> Iterator[None]:
    """Let all that looks at a clock see that of the loop, and the store's threads be woven."""
    with (
        patch.object(time, "monotonic", loop.time),
        patch.object(time, "time", lambda: EPOCH + loop.time()),
        patch("elbowroom.store.sql.database.ThreadPoolExecutor", WovenThreads),
    ):
        yield


def run_woven(seed: int, work: Callable[[WovenLoop], Coroutine[Any, Any, Result]]) -> Result:
    """Run a coroutine by the schedule of this number."""
    loop = WovenLoop(seed)

    async def until_its_end() -> Result:
        try:
            return await work(loop)
        finally:
            loop.is_over = True

    with _by_its_clock(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(until_its_end())
