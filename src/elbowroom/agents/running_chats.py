"""The chats that are being answered, and the tasks - titles, tags, follow-ups - that wait for them to end."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

ChatKey = tuple[str, str, str]
"""A provider's id, a model's, and a chat's; an empty one is a chat that nobody has named."""


class RunningChats:
    """Chats by their keys, each perhaps several times."""

    def __init__(self) -> None:
        self._running: Counter[ChatKey] = Counter()
        self._tasks: dict[asyncio.Future[None], ChatKey] = {}

    @contextmanager
    def chat(self, key: ChatKey) -> Iterator[None]:
        """Let a chat run until this is left."""
        self._running[key] += 1
        try:
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
            self._wake()

    def concerns(self, task: ChatKey) -> bool:
        """Tell whether a chat runs that this task has to wait for: its own, or any of the model where it has none."""
        *_, chat_id = task
        return task in self._running if chat_id else any(key[:2] == task[:2] for key in self._running)

    def waiting(self, provider: str, model: str) -> int:
        """Return how many tasks wait for chats of a model."""
        return sum(key[:2] == (provider, model) for key in self._tasks.values())

    async def ended(self, task: ChatKey) -> None:
        """Wait until no chat runs that concerns this task, those that begin meanwhile included."""
        while self.concerns(task):
            woken = asyncio.get_running_loop().create_future()
            self._tasks[woken] = task
            try:
                await woken
            finally:
                del self._tasks[woken]

    def _wake(self) -> None:
        for woken in self._tasks:
            if not woken.done():
                woken.set_result(None)
