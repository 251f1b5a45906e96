"""A clock for tests of what goes with time."""

HOUR = 3600.0
DAY = 86_400.0


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now
