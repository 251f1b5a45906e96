"""Conversations as they are in the database together with changes that wait to be written there."""

import asyncio
import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from elbowroom.context.conversation import (
    LARGEST_PAGE,
    Conversation,
    ConversationRow,
    KeptTurn,
    Known,
    MessagePage,
    Overview,
    PageWanted,
    QueuedMessage,
)
from elbowroom.store.base import TrackedTasks
from elbowroom.store.changes import Batch, Deleted

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlConversations, SqlStore


class StandBy:
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
        sql = await asyncio.to_thread(importlib.import_module, "elbowroom.store.sql")
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

    async def look_up(self, owner: str, name: str, keys: Sequence[str], common: int = 0) -> Known | None:
        """Find the conversation with this name, or where that is empty, the one that has the longest beginning."""
        changed = await self._changed.look_up(owner, name, keys, common)
        stored = await self.stored.look_up(owner, name, keys, common) if self.stored else None
        if stored is None or not self._is_stored(stored.conversation):
            return changed
        places = {key: place for place, key in enumerate(keys, 1)}
        length, other = (max((places[key] for key in one.kept), default=0) if one else -1 for one in (changed, stored))
        return changed if length >= other else stored

    async def turns(self, conversation: str, keys: Sequence[str]) -> list[KeptTurn]:
        """Return the turns that hold more than a reply and whose answer, or else whose parent, has one of the keys."""
        if self.stored and self._is_stored(conversation):
            return await self.stored.turns(conversation, keys)
        return await self._changed.turns(conversation, keys)

    async def pins(self, conversation: str) -> frozenset[str]:
        """Return the keys of a conversation's pinned messages."""
        kept = self.stored if self.stored and self._is_stored(conversation) else self._changed
        return await kept.pins(conversation)

    async def queue(self) -> list[QueuedMessage]:
        """Return all messages that wait in the queues of all conversations, in order."""
        stored = await self.stored.queue() if self.stored else []
        return [item for item in stored if self._is_stored(item.conversation)] + await self._changed.queue()

    async def rows(
        self, owner: str, *, search: str = "", before: float | None = None, limit: int = 50
    ) -> list[ConversationRow]:
        """Return conversations, the one used last first; with `search` only those that hold this text."""
        size = min(max(limit, 1), LARGEST_PAGE)
        found = await self._changed.rows(owner, search=search, before=before, limit=limit)
        if self.stored:
            more = size + len(self._changed_ids) + len(self._deleted)
            stored = await self.stored.rows(owner, search=search, before=before, limit=more)
            found += [row for row in stored if self._is_stored(row.id)]
        return sorted(found, key=lambda row: (row.updated, row.id), reverse=True)[:size]

    async def find(self, owner: str, conversation: str) -> ConversationRow | None:
        """Return the conversation with this id, or else with this name."""
        if found := await self._changed.find(owner, conversation):
            return found
        stored = await self.stored.find(owner, conversation) if self.stored else None
        return stored if stored and self._is_stored(stored.id) else None

    async def holder(self, owner: str, turn: str) -> str | None:
        """Return the id of the conversation that has the turn with this id."""
        if found := await self._changed.holder(owner, turn):
            return found
        stored = await self.stored.holder(owner, turn) if self.stored else None
        return stored if stored and self._is_stored(stored) else None

    async def read(self, owner: str, conversation: str) -> Conversation | None:
        """Return all of the conversation with this id, or else with this name."""
        if found := await self._changed.read(owner, conversation):
            return found
        stored = await self.stored.read(owner, conversation) if self.stored else None
        return stored if stored and self._is_stored(stored.row.id) else None

    async def overview(self, owner: str, conversation: str) -> Overview | None:
        """Return what the conversation with this id, or else with this name, is."""
        kept, row = await self._that_has(owner, conversation)
        return await kept.overview(owner, row.id) if row else None

    async def page(self, owner: str, conversation: str, wanted: PageWanted) -> MessagePage | None:
        """Return some messages of the conversation with this id, or else with this name."""
        kept, row = await self._that_has(owner, conversation)
        return await kept.page(owner, row.id, wanted) if row else None

    async def message(self, owner: str, conversation: str, message: str) -> MessagePage | None:
        """Return one message, alone on its page, of the conversation with this id, or else with this name."""
        kept, row = await self._that_has(owner, conversation)
        return await kept.message(owner, row.id, message) if row else None

    async def _that_has(self, owner: str, conversation: str) -> "tuple[SqlConversations, ConversationRow | None]":
        """Return where all of a conversation is, and its row; None where there is none."""
        if row := await self._changed.find(owner, conversation):
            return self._changed, row
        return self.stored or self._changed, await self.find(owner, conversation)

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

    def _is_stored(self, conversation: str) -> bool:
        return conversation not in self._deleted and conversation not in self._changed_ids
