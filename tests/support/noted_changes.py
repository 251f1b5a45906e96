"""Conversations in memory that also tell what was noted, and that can be slow or fail."""

import asyncio
from collections.abc import Iterable, Sequence

from memory_stores import MemoryConversations

from elbowroom.context.conversation import KeptTurn, Known
from elbowroom.store.changes import KeptChange


class NotedConversations(MemoryConversations):
    """`changes` is all that was noted, in order; each question waits for `delay` seconds and raises `failure`."""

    def __init__(self, delay: float = 0.0, failure: Exception | None = None) -> None:
        super().__init__()
        self.changes: list[KeptChange] = []
        self.delay = delay
        self.failure = failure

    def note(self, changes: Sequence[KeptChange]) -> None:
        """Keep them, and take them in."""
        self.changes += changes
        super().note(changes)

    def noted(self, *kinds: type) -> list[KeptChange]:
        """Return the changes of these kinds."""
        return [change for change in self.changes if isinstance(change, kinds)]

    async def look_up(self, owner: str, name: str, keys: Sequence[str], common: int = 0) -> Known | None:
        """Find a conversation."""
        await self._trouble()
        return await super().look_up(owner, name, keys, common)

    async def turns(self, conversation: str, keys: Sequence[str]) -> list[KeptTurn]:
        """Find turns."""
        await self._trouble()
        return await super().turns(conversation, keys)

    async def _trouble(self) -> None:
        await asyncio.sleep(self.delay)
        if self.failure is not None:
            raise self.failure


def kinds_of(changes: Iterable[KeptChange]) -> list[str]:
    """Return the names of their kinds."""
    return [type(change).__name__ for change in changes]
