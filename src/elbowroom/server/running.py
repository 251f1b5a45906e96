"""The answers that are being given, so that a server that stops can end each of them in words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from elbowroom.errors import ElbowroomError


class ServerStopping(ElbowroomError):
    """The server is being stopped while it answers."""

    status = 503
    code = "server_stopping"

    def __init__(self) -> None:
        super().__init__("elbowroom is being stopped; the text so far is kept. Ask again when it runs.")


class RunningAnswers:
    """The tasks that answer requests."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopping = False

    @asynccontextmanager
    async def endable(self) -> AsyncIterator[None]:
        """Run an answer that `stop` may end: it then raises ServerStopping, where a client that left cancels it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        if self._is_stopping:
            raise ServerStopping
        self._tasks.add(task)
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            task.uncancel()
            raise ServerStopping from None
        finally:
            self._tasks.discard(task)

    def stop(self) -> None:
        """End all answers, and take no new ones."""
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
