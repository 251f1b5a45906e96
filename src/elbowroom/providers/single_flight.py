"""Work that several may want at the same time is done once, and given up when nobody wants it any more."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass


@dataclass(slots=True)
class _Flight:
    task: asyncio.Task[None]
    waiting: int = 0


class SingleFlight:
    """Pieces of work by name."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight] = {}

    async def do(self, name: str, begin: Callable[[], Awaitable[None]]) -> None:
        """Begin the work, or wait for the one that is under way; raises what it raises.

        One waiter's cancellation leaves the work to the others; the last one's ends it.
        """
        flight = self._flights.get(name)
        if flight is None:
            flight = self._flights[name] = _Flight(asyncio.create_task(_run(begin)))
        flight.waiting += 1
        try:
            await asyncio.wait([flight.task])
        finally:
            flight.waiting -= 1
            if not flight.waiting:
                flight.task.cancel()
                if self._flights.get(name) is flight:
                    del self._flights[name]
        flight.task.result()

    async def aclose(self) -> None:
        """End all that is under way."""
        tasks = [flight.task for flight in self._flights.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(begin: Callable[[], Awaitable[None]]) -> None:
    await begin()
