"""Work that is finished whoever stops waiting for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class TrackedTasks:
    """Tasks that nobody cancels; `finished` waits for all of them."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin the work. What it raises reaches those who wait for the task, and nobody else."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Do the work and return its result; it goes on where whoever waits here is cancelled."""
        return await asyncio.shield(self.start(work))

    async def finished(self, within: float | None = None) -> bool:
        """Wait until nothing is under way, for so many seconds at most; tells whether that is so."""
        while self._running:
            _, pending = await asyncio.wait(self._running, timeout=within)
            if pending:
                return False
        return True

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # seen, so that asyncio does not report it as lost
