"""A clock that stands still until a test lets time pass, so that minutes take no time."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

TURNS = 10  # of the event loop: enough for what a timer sets off to come to rest


class ManualTimer:
    """An appointment that may be called off."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Call it off."""
        self.is_cancelled = True


class ManualClock:
    """Seconds since the beginning of the test."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._timers: list[tuple[float, int, ManualTimer]] = []

    def time(self) -> float:
        """Return the time."""
        return self.now

    def call_at(self, when: float, callback: Callable[[], object], /) -> ManualTimer:
        """Call back as soon as that time has come."""
        timer = ManualTimer(callback)
        heapq.heappush(self._timers, (when, next(self._order), timer))
        return timer

    @property
    def appointments(self) -> int:
        """Return how many timers are set."""
        return sum(not timer.is_cancelled for _, _, timer in self._timers)

    async def sleep(self, seconds: float) -> None:
        """Wait until this much time has passed on this clock."""
        alarm = asyncio.Event()
        timer = self.call_at(self.now + seconds, alarm.set)
        try:
            await alarm.wait()
        finally:
            timer.cancel()

    async def elapse(self, seconds: float) -> None:
        """Let time pass, and everything that it sets off happen in its order."""
        end = self.now + seconds
        await settle()
        while self._timers and self._timers[0][0] <= end:
            await self.step()
        self.now = end

    async def step(self) -> None:
        """Let time pass until the next timer, and what that sets off happen."""
        if self._ring():
            await settle()

    def pass_by(self, seconds: float) -> None:
        """Let time pass at once: timers ring, but no task runs meanwhile."""
        end = self.now + seconds
        while self._timers and self._timers[0][0] <= end:
            self._ring()
        self.now = end

    def _ring(self) -> bool:
        when, _, timer = heapq.heappop(self._timers)
        if timer.is_cancelled:
            return False
        self.now = max(self.now, when)
        timer.callback()
        return True


async def settle() -> None:
    """Let other tasks run until each of them waits for something."""
    for _ in range(TURNS):
        await asyncio.sleep(0)
