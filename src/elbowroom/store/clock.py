"""The clock of the machine, which may be set while the store counts ages by it, and how much goes at once."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Final

from elbowroom.store.base import SECONDS_A_DAY, Limits

log = logging.getLogger(__name__)
JUMP_SECONDS: Final = 3600.0
"""From here on a clock has jumped, and not only been put right."""
DRIFT_SECONDS: Final = 1.0
"""A clock that is put right by less than this counts as untouched."""
HOUR: Final = 3600.0


def running_seconds() -> float:
    """Return seconds of a clock that nobody can set, and which goes on while the machine sleeps, if it can."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC)
    return time.monotonic()


class WatchedClock:
    """The time of day in Unix seconds, watched by a clock that nobody can set; called now and then, it notes jumps."""

    def __init__(
        self, time_of_day: Callable[[], float] = time.time, running: Callable[[], float] = running_seconds
    ) -> None:
        self._time_of_day = time_of_day
        self._running = running
        now = running()
        self._steady_since = now
        self._has_jumped = False
        self._ahead = [(now, time_of_day() - now)]
        """Since when the time of day was so far ahead of the other clock: as it is, and as it was in the last hour."""

    def __call__(self) -> float:
        """Return the time of day."""
        now, running = self._time_of_day(), self._running()
        ahead, (_, before) = now - running, self._ahead[-1]
        if abs(ahead - before) >= JUMP_SECONDS:
            self._has_jumped, self._steady_since = True, running
        if abs(ahead - before) >= DRIFT_SECONDS:
            self._ahead.append((running, ahead))
        while len(self._ahead) > 1 and self._ahead[1][0] <= running - HOUR:
            del self._ahead[0]
        return now

    @property
    def has_jumped_today(self) -> bool:
        """Tell whether the clock jumped within the last day of running."""
        self()
        return self._has_jumped and not self.is_steady

    @property
    def is_steady(self) -> bool:
        """Tell whether the process has run for a day since it started, and since the clock jumped."""
        self()
        return self._running() - self._steady_since >= SECONDS_A_DAY

    def before(self, seconds: float) -> float:
        """Return a time of day before all that was used within so many seconds of running, of an hour at most."""
        self()
        return min(ahead for _, ahead in self._ahead) + self._running() - seconds


class Share:
    """How much of all there is has been deleted at once: from a tenth on the log says why."""

    def __init__(self, plural: str, total: int, limits: Limits) -> None:
        self._plural = plural
        self._total = total
        self._limits = limits
        self._gone = 0
        self._is_told = False

    def goes(self, count: int = 1) -> None:
        """Count what is about to be deleted."""
        self._gone += count
        if not self._is_told and self._gone * 10 > self._total > 0 and not self._limits.in_memory:
            self._is_told = True
            log.info(
                "More than a tenth of %d %s is deleted now: nobody came back to them for store.retention_days = %d, "
                "or they were used longest ago and all takes more than store.max_gb = %g.",
                self._total,
                self._plural,
                self._limits.retention_days,
                self._limits.max_gb,
            )
