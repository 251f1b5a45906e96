"""Conversations as they are in the database together with changes that wait to be written there."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from elbowroom.store.base import TrackedTasks, sql_module
from elbowroom.store.changes import Batch, Deleted
from elbowroom.store.questions import AskedConversations, Question, TwoPlaces

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlConversations, SqlStore

Answer = TypeVar("Answer")


class StandBy(AskedConversations):
    """Answers questions while not all is written.

    The conversations that waiting changes are about are copied into a database in memory, where the changes happen to
    them; all others are read from the file. `stored` is None where nothing can be read: then only the changes that
    wait are known. Methods raise StoreUnavailable.
    """

    def __init__(self, memory: "SqlStore", stored: "SqlConversations | None") -> None:
        self.stored = stored
        self._memory = memory
        self._changed = memory.conversations
        self._changed_ids: set[str] = set()
        self._deleted: set[str] = set()
        self._taken = 0
        self._taking = asyncio.Lock()
        self._tasks = TrackedTasks()
        self._users = 0
        self._is_dropped = False
        self._closing: asyncio.Task[None] | None = None

    @classmethod
    async def over(cls, stored: "SqlConversations | None") -> "StandBy":
        """Open one in which no change has happened yet."""
        sql = await asyncio.to_thread(sql_module)
        memory = await sql.SqlStore.open(None)
        try:
            await memory.conversations.number_apart()
        except BaseException:
            await memory.aclose()
            raise
        return cls(memory, stored)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Keep the database in memory open, also when it is dropped meanwhile."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_unused()

    def drop(self) -> None:
        """Give back the database in memory as soon as nobody uses it."""
        self._is_dropped = True
        self._close_unused()

    async def dropped(self) -> None:
        """Drop it, and wait until that is done."""
        self.drop()
        if self._closing:
            await self._closing

    async def take(self, batches: Sequence[Batch]) -> None:
        """Let the changes of new batches happen, each once, also when the caller is cancelled."""
        await self._tasks.run(self._take_new(batches))

    async def ask(self, question: Question[Answer]) -> Answer:
        """Answer a question."""
        if self.stored is None:
            return await self._changed.ask(question)
        return await question.asked_of(TwoPlaces(self._changed, self.stored, self._changed_ids | self._deleted))

    async def _take_new(self, batches: Sequence[Batch]) -> None:
        async with self._taking:
            for batch in batches:
                if batch.number > self._taken:
                    await self._take(batch)
                    self._taken = batch.number

    async def _take(self, batch: Batch) -> None:
        if self.stored:
            known = self._changed_ids | self._deleted
            await self._changed.put(await self.stored.copied(batch.changes, known))
        await self._changed.write(batch.changes)
        self._deleted |= {change.conversation for change in batch.changes if isinstance(change, Deleted)}
        self._changed_ids = await self._changed.ids()

    def _close_unused(self) -> None:
        if self._is_dropped and not self._users and self._closing is None:
            self._closing = asyncio.create_task(self._memory.aclose())
