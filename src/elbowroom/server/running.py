"""The answers that are being given, so that a server that stops can let them finish, or end each of them in words."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from elbowroom.errors import ElbowroomError

CUT_OFF = "elbowroom is being stopped; the text so far is kept. Ask again when it runs."
REFUSED = "elbowroom is being stopped and takes no new requests. Ask again when it runs."


class ServerStopping(ElbowroomError):
    """The server is being stopped: it ends the answers it gives, and takes no new requests.

    `retry_after` says in how many seconds it is worth asking again.
    """

    status = 503
    code = "server_stopping"
    retry_after = 5

    def __init__(self, message: str = CUT_OFF) -> None:
        super().__init__(message)


class RunningAnswers:
    """The tasks that answer requests. It is open until it is closed; then it takes no new ones."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._is_empty.set()
        self._is_stopping = False
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._tasks)

    @asynccontextmanager
    async def endable(self) -> AsyncIterator[None]:
        """Run an answer that `stop` may end: it then raises ServerStopping, where a client that left cancels it."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  # a handler runs in a task
        self.check_open()
        self._tasks.add(task)
        self._is_empty.clear()
        try:
            yield
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            task.uncancel()
            raise ServerStopping from None
        finally:
            self._tasks.discard(task)
            if not self._tasks:
                self._is_empty.set()

    def check_open(self) -> None:
        """Raise ServerStopping where no new answers are begun."""
        if self.is_closed:
            raise ServerStopping(REFUSED)

    def close(self) -> None:
        """Take no new answers; those that are running go on."""
        self.is_closed = True

    async def finished(self) -> None:
        """Return when no answer is running."""
        await self._is_empty.wait()

    def stop(self) -> None:
        """End all answers, and take no new ones."""
        self.close()
        self._is_stopping = True
        for task in self._tasks:
            task.cancel()
