"""The chats that are being answered, and the tasks - titles, tags, follow-ups - that wait for them or give way."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ChatKey = tuple[str, str, str]
"""A provider's id, a model's, and a chat's; an empty one is a chat that nobody has named."""


class RunningChats:
    """Chats by their keys, each perhaps several times."""

    def __init__(self) -> None:
        self._running: Counter[ChatKey] = Counter()
        self._waiting: Counter[tuple[str, str]] = Counter()
        self._sleepers: list[asyncio.Future[None]] = []
        self._at_work: dict[Callable[[], object], ChatKey] = {}

    @contextmanager
    def chat(self, key: ChatKey) -> Iterator[None]:
        """Let a chat run until this is left; tasks that are in its way leave."""
        self.make_way(key)
        self._running[key] += 1
        try:
            yield
        finally:
            self._running[key] -= 1
            if not self._running[key]:
                del self._running[key]
            self._wake()

    @contextmanager
    def at_work(self, task: ChatKey, leave: Callable[[], object]) -> Iterator[None]:
        """Let a task run; `leave` is called, perhaps several times, when a chat begins that it is in the way of."""
        self._at_work[leave] = task
        try:
            yield
        finally:
            del self._at_work[leave]

    def make_way(self, chat: ChatKey) -> None:
        """Ask the tasks to leave that are in the way of a chat: those with its model, and its own."""
        *model, chat_id = chat
        for leave, (*its_model, its_chat) in list(self._at_work.items()):
            if its_model == model or (chat_id and its_chat == chat_id):
                leave()

    def concerns(self, task: ChatKey) -> bool:
        """Tell whether a chat runs that this task has to wait for: its own, or any of the model where it has none.

        Its own may be with another model: a client may have titles written by one of its choice.
        """
        *model, chat_id = task
        return any(key[2] == chat_id if chat_id else [*key[:2]] == model for key in self._running)

    def waiting(self, provider: str, model: str) -> int:
        """Return how many tasks wait for chats of a model."""
        return self._waiting[provider, model]

    @contextmanager
    def task_waits(self, task: ChatKey) -> Iterator[None]:
        """Count a task among those that wait until this is left."""
        model = task[:2]
        self._waiting[model] += 1
        try:
            yield
        finally:
            self._waiting[model] -= 1
            if not self._waiting[model]:
                del self._waiting[model]

    async def ended(self, task: ChatKey) -> None:
        """Wait until no chat runs that concerns this task, those that begin meanwhile included."""
        while self.concerns(task):
            woken = asyncio.get_running_loop().create_future()
            self._sleepers.append(woken)
            await woken

    def _wake(self) -> None:
        for woken in self._sleepers:
            if not woken.done():
                woken.set_result(None)
        self._sleepers.clear()
