"""Conversations as they are in the database together with what waits to be written there."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from elbowroom.context.conversation import Conversation, ConversationRow, KeptTurn, Known, QueuedMessage
from elbowroom.store.conversations_memory import MemoryConversations, page_size
from elbowroom.store.conversations_sound import Deleted
from elbowroom.store.conversations_waiting import Batch

if TYPE_CHECKING:
    from elbowroom.store.conversations_sql import SqlConversations


class StandIn:
    """Answers questions while not all is written.

    Those conversations that something waits for are read into memory, where it happens to them. `stored` is None where
    nothing can be read: then there is only what waits. Methods raise StoreUnavailable.
    """

    def __init__(self, stored: "SqlConversations | None") -> None:
        self.stored = stored
        self._changed = MemoryConversations()
        self._deleted: set[str] = set()
        self._taken = 0
        self._taking = asyncio.Lock()

    async def take(self, batches: Sequence[Batch]) -> None:
        """Take in the batches that are new."""
        async with self._taking:
            for batch in batches:
                if batch.number > self._taken:
                    await self._take(batch)
                    self._taken = batch.number

    async def look_up(self, owner: str, name: str, keys: Sequence[str]) -> Known | None:
        """Find the conversation with this name, or where that is empty, the one that has the longest beginning."""
        changed = await self._changed.look_up(owner, name, keys)
        stored = await self.stored.look_up(owner, name, keys) if self.stored else None
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

    async def queue(self) -> list[QueuedMessage]:
        """Return all that waits in the queues of all conversations, in order."""
        stored = await self.stored.queue() if self.stored else []
        return [item for item in stored if self._is_stored(item.conversation)] + await self._changed.queue()

    async def rows(
        self, owner: str, *, search: str = "", before: float | None = None, limit: int = 50
    ) -> list[ConversationRow]:
        """Return conversations, the one used last first; with `search` only those that hold this text."""
        found = await self._changed.rows(owner, search=search, before=before, limit=limit)
        if self.stored:
            more = page_size(limit) + len(self._changed.ids()) + len(self._deleted)
            stored = await self.stored.rows(owner, search=search, before=before, limit=more)
            found += [row for row in stored if self._is_stored(row.id)]
        return sorted(found, key=lambda row: (row.updated, row.id), reverse=True)[: page_size(limit)]

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

    async def _take(self, batch: Batch) -> None:
        if self.stored:
            known = self._changed.ids() | self._deleted
            for held in await self.stored.held_for(batch.changes, known):
                self._changed.put(held)
        self._changed.note(batch.changes)
        self._deleted |= {change.conversation for change in batch.changes if isinstance(change, Deleted)}

    def _is_stored(self, conversation: str) -> bool:
        return conversation not in self._deleted and conversation not in self._changed.ids()
