"""Conversations as chats need them: there from the start, written a moment later, and never in their way."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from elbowroom.context.conversation import Change, Conversation, ConversationRow, KeptTurn, Known, QueuedMessage
from elbowroom.store.conversations_sound import Deleted, TurnDeleted
from elbowroom.store.conversations_standing_in import StandIn
from elbowroom.store.conversations_waiting import Batch, WaitingChanges
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.lasting_store import LastingStore

if TYPE_CHECKING:
    from elbowroom.store.conversations_sql import SqlConversations
    from elbowroom.store.sql_store import SqlStore

LATEST_SECONDS: Final = 0.12
"""How long what is noted waits until it begins to be written: longer than turns hold words back, so that two of their
handfuls are written together, and with that a little less than what is said may be behind, which is 250 ms."""
MOST_CHANGES: Final = 64
"""With more than this for each reply that grows it is written at once: about so many tokens a reply may be behind."""
AGAIN_SECONDS: Final = 15.0
"""After this time what could not be written is tried again, also where nobody says anything more."""
Answer = TypeVar("Answer")


class LastingConversations:
    """`Conversations` in a database that may fail.

    What cannot be written waits in memory, in order and within bounds, and is written once that works again. Meanwhile
    questions are answered from what can be read, and from what waits.
    """

    plural = "batches of what was said in conversations"

    def __init__(self, store: LastingStore, waiting: WaitingChanges | None = None) -> None:
        self._store = store
        self._waiting = waiting or WaitingChanges()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._has_started = False
        self._next_start = 0.0
        self._stand_in: StandIn | None = None
        store.add(self)

    def note(self, changes: Sequence[Change]) -> None:
        """Take changes in; they are written a moment later, or at once when there are many."""
        new = self._waiting.new
        new.extend(changes)
        if len(new) > MOST_CHANGES * self._waiting.growing:
            self._write_soon()
        elif self._timer is None and new:
            self._timer = asyncio.get_running_loop().call_later(LATEST_SECONDS, self._write_soon)

    async def settled(self) -> bool:
        """Write what has been noted; tells whether all of it is in the database."""
        let_go = self._waiting.let_go
        batches = self._waiting.batches()
        await self._flush()
        return self._waiting.let_go == let_go and not self._waiting.waits(batches)

    async def look_up(self, owner: str, name: str, keys: Sequence[str]) -> Known | None:
        """Find the conversation with this name, or where that is empty, the one that has the longest beginning."""
        return await self._ask(
            lambda sql: sql.look_up(owner, name, keys), lambda stand_in: stand_in.look_up(owner, name, keys)
        )

    async def turns(self, conversation: str, keys: Sequence[str]) -> list[KeptTurn]:
        """Return the turns that hold more than a reply and whose answer, or else whose parent, has one of the keys."""
        return await self._ask(
            lambda sql: sql.turns(conversation, keys), lambda stand_in: stand_in.turns(conversation, keys)
        )

    async def queue(self) -> list[QueuedMessage]:
        """Return all that waits in the queues of all conversations, in order."""
        return await self._ask(lambda sql: sql.queue(), lambda stand_in: stand_in.queue())

    async def rows(
        self, owner: str, *, search: str = "", before: float | None = None, limit: int = 50
    ) -> list[ConversationRow]:
        """Return conversations, the one used last first; with `search` only those that hold this text."""
        return await self._ask(
            lambda sql: sql.rows(owner, search=search, before=before, limit=limit),
            lambda stand_in: stand_in.rows(owner, search=search, before=before, limit=limit),
        )

    async def find(self, owner: str, conversation: str) -> ConversationRow | None:
        """Return the conversation with this id, or else with this name."""
        return await self._ask(
            lambda sql: sql.find(owner, conversation), lambda stand_in: stand_in.find(owner, conversation)
        )

    async def holder(self, owner: str, turn: str) -> str | None:
        """Return the id of the conversation that has the turn with this id."""
        return await self._ask(lambda sql: sql.holder(owner, turn), lambda stand_in: stand_in.holder(owner, turn))

    async def read(self, owner: str, conversation: str) -> Conversation | None:
        """Return all of the conversation with this id, or else with this name."""
        return await self._ask(
            lambda sql: sql.read(owner, conversation), lambda stand_in: stand_in.read(owner, conversation)
        )

    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete one with all that belongs to it; tells whether it was there.

        Where that cannot be written now, it is deleted once it can.
        """
        found = await self.find(owner, conversation)
        if found:
            self._waiting.new.append(Deleted(found.id))
            await self._flush()
        return found is not None

    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete one turn with all that was said in it; tells whether it was there.

        Where that cannot be written now, it is deleted once it can.
        """
        is_there = await self.holder(owner, turn) is not None
        if is_there:
            self._waiting.new.append(TurnDeleted(turn))
            await self._flush()
        return is_there

    def waiting(self) -> Sequence[Batch]:
        """Return the batches that are not written, in order."""
        return self._waiting.batches()

    async def write(self, store: "SqlStore", item: Batch) -> None:
        """Write a batch. Raises StoreUnavailable."""
        await self._start(store.conversations)
        await store.conversations.write(item.changes)
        store.has_grown()

    def written(self, item: Batch) -> None:
        """Let go a batch that has been written."""
        self._waiting.written(item)
        self._stand_in = None

    def refused(self, item: Batch) -> None:
        """Leave a batch in its place: those behind it go on with what is in it."""

    def trim(self) -> None:
        """Let go the changes that are too many."""
        if self._waiting.trim():
            self._stand_in = None

    def _write_soon(self) -> None:
        """Begin to write what waits, and once more what comes meanwhile."""
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._writing is None and not self._store.is_closed:
            self._writing = self._store.tasks.start(self._store.write(self))
            self._writing.add_done_callback(self._has_written)

    def _has_written(self, _: asyncio.Task[None]) -> None:
        self._writing = None
        if len(self._waiting.new) > MOST_CHANGES * self._waiting.growing:
            self._write_soon()
        elif self._timer is None and self._waiting:
            later = LATEST_SECONDS if self._waiting.new else AGAIN_SECONDS
            self._timer = asyncio.get_running_loop().call_later(later, self._write_soon)

    async def _flush(self) -> None:
        if self._waiting:
            await self._store.tasks.run(self._store.write(self))

    async def _start(self, sql: "SqlConversations") -> None:
        """Mark what the process before this one has left, once and before anything is written."""
        async with self._starting:
            if not self._has_started:
                await sql.interrupt()
                self._has_started = True

    async def _start_if_possible(self, sql: "SqlConversations") -> None:
        """Do that before anything is read; what can be read but not written is read as it is."""
        if not self._has_started and time.monotonic() >= self._next_start:
            try:
                await self._start(sql)
            except StoreUnavailable:
                self._next_start = time.monotonic() + AGAIN_SECONDS

    async def _ask(
        self,
        stored: "Callable[[SqlConversations], Awaitable[Answer]]",
        otherwise: Callable[[StandIn], Awaitable[Answer]],
    ) -> Answer:
        """Answer a question from the database where all that was noted before it is written, else from both."""
        batches = self._waiting.batches()
        await self._flush()
        if sql := await self._store.opened():
            try:
                await self._start_if_possible(sql.conversations)
                if not self._waiting.waits(batches):
                    return await stored(sql.conversations)
                return await otherwise(await self._standing_in(sql.conversations))
            except StoreUnavailable as error:
                self._store.failed(sql, error)
        return await otherwise(await self._standing_in(None))

    async def _standing_in(self, stored: "SqlConversations | None") -> StandIn:
        while True:
            if self._stand_in is None or self._stand_in.stored is not stored:
                self._stand_in = StandIn(stored)
            stand_in = self._stand_in
            await stand_in.take(self._waiting.batches())
            if self._stand_in is stand_in:  # else something was written meanwhile, and may be in it twice
                return stand_in
