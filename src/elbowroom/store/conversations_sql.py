"""Conversations in an SQL database."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Row, Select, select
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.context.conversation import Conversation, ConversationRow, KeptTurn, Known, QueuedMessage
from elbowroom.store.conversations_held import HeldConversation
from elbowroom.store.conversations_lookup import conversations_of, keys_of, longest_known
from elbowroom.store.conversations_memory import page_size
from elbowroom.store.conversations_reading import (
    ConversationRows,
    conversation_row,
    conversation_rows,
    queued,
    turn_rows,
)
from elbowroom.store.conversations_search import searched
from elbowroom.store.conversations_sound import Deleted, KeptChange, TurnDeleted, is_sound_id, left_out
from elbowroom.store.conversations_statements import TAILS, interrupting
from elbowroom.store.conversations_writing import Plan, Tail, growing, takes_long, with_sure_tails
from elbowroom.store.database import Database
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.message_json import encoded
from elbowroom.store.owner_key import owner_key
from elbowroom.store.sqlite import MOST_VARIABLES
from elbowroom.store.tables import conversations, queue, turns
from elbowroom.store.tracked_tasks import TrackedTasks

REFUSED: Final = (DataError, IntegrityError, InterfaceError, OverflowError)
"""What a database says when what it was given is at fault, and not it."""


class SqlConversations:
    """Conversations in a database. What is begun is finished, whoever is cancelled.

    All methods raise StoreUnavailable.
    """

    def __init__(self, database: Database, tasks: TrackedTasks) -> None:
        self._database = database
        self._tasks = tasks
        self._tails: dict[str, Tail] = {}
        self._planning = asyncio.Lock()

    async def interrupt(self) -> None:
        """Mark all that is being said as interrupted, and let wait again what was taken from the queue for it.

        That is right for what a process that has stopped has left.
        """
        await self._tasks.run(self._interrupt())

    async def write(self, changes: Sequence[KeptChange]) -> None:
        """Write changes in order, all or nothing. Those that refer to what is not there are left out."""
        await self._tasks.run(self._write(changes))

    async def look_up(self, owner: str, name: str, keys: Sequence[str]) -> Known | None:
        """Find the conversation with this name, or where that is empty, the one that has the longest beginning."""
        return await self._tasks.run(self._look_up(owner, name, keys))

    async def turns(self, conversation: str, keys: Sequence[str]) -> list[KeptTurn]:
        """Return the turns that hold more than a reply and whose answer, or else whose parent, has one of the keys."""
        return await self._tasks.run(self._turns(conversation, set(keys)))

    async def queue(self) -> list[QueuedMessage]:
        """Return all that waits in the queues of all conversations, in order."""
        return await self._tasks.run(self._queue())

    async def rows(
        self, owner: str, *, search: str = "", before: float | None = None, limit: int = 50
    ) -> list[ConversationRow]:
        """Return conversations, the one used last first; with `search` only those that hold this text."""
        return await self._tasks.run(self._rows(owner, search, before, page_size(limit)))

    async def find(self, owner: str, conversation: str) -> ConversationRow | None:
        """Return the conversation with this id, or else with this name."""
        return await self._tasks.run(self._find(owner, conversation))

    async def holder(self, owner: str, turn: str) -> str | None:
        """Return the id of the conversation that has the turn with this id."""
        return await self._tasks.run(self._holder(owner, turn))

    async def read(self, owner: str, conversation: str) -> Conversation | None:
        """Return all of the conversation with this id, or else with this name."""
        held = await self._tasks.run(self._held(owner, conversation))
        return await asyncio.to_thread(held.shown) if held else None  # which takes a while for a long one

    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete one with all that belongs to it; tells whether it was there."""
        return await self._tasks.run(self._delete(owner, conversation))

    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete one turn with all that was said in it; tells whether it was there."""
        return await self._tasks.run(self._delete_turn(owner, turn))

    async def held_for(self, changes: Sequence[KeptChange], known: Collection[str]) -> list[HeldConversation]:
        """Return the conversations that these changes are about, without those that are known."""
        return await self._tasks.run(self._held_for(changes, known))

    async def _interrupt(self) -> None:
        async with self._database.writing() as connection:
            for statement in interrupting():
                await connection.execute(statement)

    async def _write(self, changes: Sequence[KeptChange]) -> None:
        try:
            await self._write_together(changes)
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, REFUSED):
                raise
            await self._write_one_by_one(changes)

    async def _write_one_by_one(self, changes: Sequence[KeptChange]) -> None:
        for change in changes:
            try:
                await self._write_together([change])
            except StoreUnavailable as error:
                if not isinstance(error.__cause__, REFUSED):
                    raise
                left_out(change, error)

    async def _write_together(self, changes: Sequence[KeptChange]) -> None:
        async with self._planning:
            batches = list(with_sure_tails(changes, self._tails))
            writing = self._write_at_once(batches[0]) if len(batches) == 1 else self._write_in_order(batches)
            self._tails = await writing

    async def _write_at_once(self, batch: Sequence[KeptChange]) -> dict[str, Tail]:
        tails = self._tails
        if unknown := [reply for reply in growing(batch) if reply not in tails]:
            async with self._database.reading() as connection:
                tails = tails | await _tails(connection, unknown)
        plan = await _planned(batch, tails)
        await self._database.write(plan.groups)
        return plan.tails_behind()

    async def _write_in_order(self, batches: Sequence[Sequence[KeptChange]]) -> dict[str, Tail]:
        tails = self._tails
        async with self._database.writing() as connection:
            for batch in batches:
                unknown = [reply for reply in growing(batch) if reply not in tails]
                plan = await _planned(batch, tails | await _tails(connection, unknown))
                for statement, given in plan.groups:
                    await connection.execute(statement, given)
                tails = plan.tails_behind()
        return tails

    async def _look_up(self, owner: str, name: str, keys: Sequence[str]) -> Known | None:
        async with self._database.reading() as connection:
            if name:
                named = conversations.c.name == encoded(name)
                row = (await connection.execute(_newest(owner).where(named))).first()
                found = row.id if row else None
            else:
                found = await longest_known(connection, owner_key(owner), keys)
            return Known(found, (await keys_of(connection, found)).intersection(keys)) if found else None

    async def _turns(self, conversation: str, keys: set[str]) -> list[KeptTurn]:
        own = turns.c
        statement = select(own.id, own.key, own.parent, own.status).where(
            own.conversation == conversation, own.has_more
        )
        rows: list[ConversationRows] = []
        if not is_sound_id(conversation):
            return []
        async with self._database.reading() as connection:
            row = (await connection.execute(select(conversations).filter_by(id=conversation))).first()
            if row is None:
                return []
            meant = [turn.id for turn in await connection.execute(statement) if _is_meant(turn, keys)]
            starts = range(0, len(meant), MOST_VARIABLES)
            rows = [await turn_rows(connection, row, meant[start : start + MOST_VARIABLES]) for start in starts]
        found = await asyncio.to_thread(_kept_turns, rows) if rows else {}
        return [found[turn] for turn in meant if len(found[turn].messages) > 1]

    async def _queue(self) -> list[QueuedMessage]:
        statement = (
            select(queue)
            .outerjoin(turns, turns.c.id == queue.c.turn)
            .where(turns.c.status.is_(None) | (turns.c.status == "streaming"))
            .order_by(queue.c.number)
        )
        async with self._database.reading() as connection:
            items = queued(await connection.execute(statement))
        return [QueuedMessage(item.id, item.conversation, item.message, item.mode, item.at) for item in items]

    async def _rows(self, owner: str, search: str, before: float | None, limit: int) -> list[ConversationRow]:
        statement = _newest(owner)
        if before is not None:
            statement = statement.where(conversations.c.updated < before)
        async with self._database.reading() as connection:
            if not search:
                return list(map(conversation_row, await connection.execute(statement.limit(limit))))
            return await searched(connection, statement, search, limit)

    async def _find(self, owner: str, conversation: str) -> ConversationRow | None:
        async with self._database.reading() as connection:
            row = await _found(connection, owner, conversation)
        return conversation_row(row) if row else None

    async def _holder(self, owner: str, turn: str) -> str | None:
        if not is_sound_id(turn):
            return None
        own = conversations.c.owner == owner_key(owner)
        statement = select(conversations.c.id).join(turns, turns.c.conversation == conversations.c.id)
        async with self._database.reading() as connection:
            found: str | None = await connection.scalar(statement.where(own, turns.c.id == turn))
        return found

    async def _held(self, owner: str, conversation: str) -> HeldConversation | None:
        async with self._database.reading() as connection:
            row = await _found(connection, owner, conversation)
            rows = await conversation_rows(connection, row) if row else None
        return await asyncio.to_thread(rows.held) if rows else None

    async def _delete(self, owner: str, conversation: str) -> bool:
        row = await self._find(owner, conversation)
        if row:
            await self._write_together([Deleted(row.id)])
        return row is not None

    async def _delete_turn(self, owner: str, turn: str) -> bool:
        is_there = await self._holder(owner, turn) is not None
        if is_there:
            await self._write_together([TurnDeleted(turn)])
        return is_there

    async def _held_for(self, changes: Sequence[KeptChange], known: Collection[str]) -> list[HeldConversation]:
        async with self._database.reading() as connection:
            wanted = (await conversations_of(connection, changes)).difference(known)
            found = await connection.execute(select(conversations).where(conversations.c.id.in_(wanted)))
            rows = [await conversation_rows(connection, row) for row in found.all()]
        return await asyncio.to_thread(lambda: [one.held() for one in rows]) if rows else []


async def _planned(batch: Sequence[KeptChange], tails: Mapping[str, Tail]) -> Plan:
    plan = Plan(tails)
    return await asyncio.to_thread(plan.add, batch) if takes_long(batch) else plan.add(batch)


async def _tails(connection: AsyncConnection, replies: Sequence[str]) -> dict[str, Tail]:
    found: dict[str, Tail] = {}
    for reply in replies:
        if row := (await connection.execute(TAILS, {"id": reply})).first():
            found[reply] = Tail(row.turn)
            if row.position is not None:
                found[reply] = Tail(row.turn, row.position, row.kind, len(row.content))
    return found


async def _found(connection: AsyncConnection, owner: str, conversation: str) -> Row[Any] | None:
    """Return the conversation with this id, or else the one used last with this name."""
    own = select(conversations).where(conversations.c.owner == owner_key(owner), conversations.c.id == conversation)
    if is_sound_id(conversation) and (row := (await connection.execute(own)).first()):
        return row
    named = conversations.c.name == encoded(conversation)
    return (await connection.execute(_newest(owner).where(named))).first() if conversation else None


def _newest(owner: str) -> Select[Any]:
    own = conversations.c
    return select(conversations).where(own.owner == owner_key(owner)).order_by(own.updated.desc(), own.id.desc())


def _is_meant(turn: Row[*tuple[Any, ...]], keys: set[str]) -> bool:
    return turn.key in keys if turn.key else turn.status == "interrupted" and turn.parent in keys


def _kept_turns(rows: Sequence[ConversationRows]) -> dict[str, KeptTurn]:
    return {turn.id: turn.kept() for some in rows for turn in some.held().turns.values()}
