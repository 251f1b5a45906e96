"""A clock for tests of what goes with time."""

from elbowroom.store.base import WatchedClock

HOUR = 3600.0
DAY = 86_400.0


class Clock:
    """A clock that stands still until it is told otherwise; `watched` is what a store knows of it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0
        self._set_by = 0.0

    def set_by(self, seconds: float) -> None:
        """Set the clock to another time, which does not pass."""
        self.now += seconds
        self._set_by += seconds

    def watched(self) -> WatchedClock:
        """Return this clock beside one that nobody can set, as a process that starts now knows them."""
        return WatchedClock(self, lambda: self.now - self._set_by)

    def __call__(self) -> float:
        return self.now
