"""Which conversations go when they are too old or the database holds too much: never one that is in use."""

from collections.abc import Callable
from typing import Final

from sqlalchemy import ColumnElement, delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.store.database import Database
from elbowroom.store.limits import Limits
from elbowroom.store.sqlite import content_bytes
from elbowroom.store.tables import (
    compactions,
    conversations,
    message_parts,
    messages,
    queue,
    step_usage,
    tool_outputs,
    turns,
)

MESSAGES_A_TRANSACTION: Final = 100
"""How many are deleted at once, each perhaps with images in it, so that whoever wants to write waits little."""
SAFE_SECONDS: Final = 3600.0
"""What was used so lately stays whatever the limits: somebody is at it."""
GOING: Final = -1.0
"""When a conversation was used last of which a part is deleted already, unless somebody comes back to it."""
SHARE_OF_OUTPUTS: Final = 0.5
"""Outputs of tools count for no more than this share of `max_gb` here: they push out no conversation beyond that."""


class ConversationLimits:
    """Deletes conversations with all that belongs to them; `clock` gives Unix seconds."""

    def __init__(self, database: Database, limits: Limits, clock: Callable[[], float]) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock
        self._is_stopped = False

    def stop(self) -> None:
        """Delete no more than what is being deleted."""
        self._is_stopped = True

    async def apply(self) -> None:
        """Delete what is too old, then of what is left the oldest use first until the rest is small enough.

        Raises StoreUnavailable.
        """
        now = self._clock()
        safe = now - SAFE_SECONDS
        is_going, used = conversations.c.updated == GOING, conversations.c.updated
        while await self._delete_some(is_going | (used < min(self._limits.oldest(now), safe))):
            pass
        while await self._excess() > 0 and await self._delete_some(used < safe):
            while await self._delete_some(is_going):
                pass

    async def _excess(self) -> float:
        async with self._database.reading() as connection:
            outputs = (await connection.scalar(select(func.sum(tool_outputs.c.size)))) or 0
            content = await content_bytes(connection)
        most = self._limits.most_bytes
        return content - max(0, outputs - most * SHARE_OF_OUTPUTS) - most

    async def _delete_some(self, condition: ColumnElement[bool]) -> bool:
        """Delete a part of the conversation that this is true of and that was used longest ago; tells if there is one.

        A part of it that is left is `GOING`, also for the next process where this one ends on the way.
        """
        if self._is_stopped:
            return False
        async with self._database.reading() as connection:
            if await _oldest(connection, condition) is None:  # which is how it is nearly always
                return False
        async with self._database.writing() as connection:
            found = await _oldest(connection, condition)  # somebody may have come back to it
            if found is not None and await _delete_messages(connection, found):
                await connection.execute(update(conversations).filter_by(id=found).values(updated=GOING))
            elif found is not None:
                await _delete_rest(connection, found)
        return found is not None


async def _oldest(connection: AsyncConnection, condition: ColumnElement[bool]) -> str | None:
    own = conversations.c
    oldest = select(own.id).where(condition).order_by(own.updated, own.id).limit(1)
    found: str | None = await connection.scalar(oldest)
    return found


async def _delete_messages(connection: AsyncConnection, conversation: str) -> bool:
    """Delete the first messages of a conversation with their parts; tells whether there are more."""
    own = messages.c
    first = select(own.number, own.id).where(own.conversation == conversation).order_by(own.number)
    found = (await connection.execute(first.limit(MESSAGES_A_TRANSACTION))).all()
    ids = [row.id for row in found]
    await connection.execute(delete(message_parts).where(message_parts.c.message.in_(ids)))
    await connection.execute(delete(messages).where(own.number.in_([row.number for row in found])))
    return len(found) == MESSAGES_A_TRANSACTION


async def _delete_rest(connection: AsyncConnection, conversation: str) -> None:
    """Delete a conversation that has no messages any more."""
    own_turns = select(turns.c.id).where(turns.c.conversation == conversation)
    await connection.execute(delete(step_usage).where(step_usage.c.turn.in_(own_turns)))
    for table in (turns, compactions, queue):
        await connection.execute(delete(table).where(table.c.conversation == conversation))
    await connection.execute(delete(conversations).where(conversations.c.id == conversation))
