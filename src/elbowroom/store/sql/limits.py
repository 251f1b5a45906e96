"""Deletes old rows, then the oldest of too many: never a conversation in use, nor an output that is referred to."""

import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, select, true, update

from elbowroom.store.base import JUMP_SECONDS, SECONDS_A_DAY, Limits, Share, WatchedClock
from elbowroom.store.sql.asking import housekeeping, reading
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import content_bytes
from elbowroom.store.sql.schema import (
    compactions,
    conversations,
    ledger_entries,
    message_parts,
    messages,
    queue,
    queue_receipts,
    step_usage,
    tool_output_chunks,
    tool_output_uses,
    tool_outputs,
    turns,
)
from elbowroom.store.sql.search import TextIndex

log = logging.getLogger(__name__)
OUTPUTS_A_TRANSACTION: Final = 20
"""How many outputs are deleted at once, so that a chat that wants to write waits little."""
MESSAGES_A_TRANSACTION: Final = 100
"""How many messages are deleted at once, each perhaps with images in it, for the same reason."""
GOING: Final = -1.0
"""The last use of a conversation of which a part is deleted already, unless somebody comes back to it: before all."""
SHARE_OF_OUTPUTS: Final = 0.5
"""Outputs of tools count for no more than this share of `max_gb` here: they push out no conversation beyond that."""
LONG_ABSENCE: Final = 30 * SECONDS_A_DAY
"""Nobody can tell a longer pause from a jump of the clock, so the first day after one is treated as that of a jump."""
USES: Final = (conversations.c.updated, ledger_entries.c.last_used, tool_outputs.c.last_used)


def trusted_time(connection: Connection, clock: WatchedClock) -> float | None:
    """Return the time from which ages are counted, and None on the day of a jump, when nothing may be deleted.

    It is now where the process has run for a day. Else it is the last use that was a day ago or longer: whether the
    clock has jumped since then, nobody can tell.
    """
    now = clock()
    if clock.has_jumped_today:
        return None
    if clock.is_steady:
        return now
    last = _last_use(connection, now - SECONDS_A_DAY)
    was_away = float("-inf") < last < now - LONG_ABSENCE
    return None if was_away or _was_set_today(connection, now, last) else last


class ToolOutputLimits:
    """Deletes outputs that nothing refers to.

    An output is referred to while its id stands in a compaction, in a message that a compaction was made from, or in
    another output that is kept, such as a list; and for the days of retention after it last stood in a prompt.
    """

    def __init__(self, database: Database, limits: Limits, clock: WatchedClock) -> None:
        self.database = database
        self._limits = limits
        self._clock = clock
        self._is_exceeded = False
        self._is_stopped = False
        self._share = Share("results of tools", 0, limits)

    def stop(self) -> None:
        """Stop after the transaction that is under way."""
        self._is_stopped = True

    async def apply(self, today: float) -> None:
        """Delete rows beyond the days of retention, then those used longest ago until the rest is small enough.

        Ages are counted until `today`. Raises StoreUnavailable.
        """
        own = tool_outputs.c
        oldest = self._limits.oldest(today)
        safe = self._clock.before(self._limits.safe_seconds) - self._limits.late_seconds
        self._share = Share("results of tools", await self._count(), self._limits)
        is_free = own.id.not_in(select(tool_output_uses.c.id)) & ((own.last_named == 0) | (own.last_named < oldest))
        while await self._delete_some(is_free & (own.last_used < min(oldest, safe)), float("inf")):
            pass
        may_go = true() if self._limits.in_memory else is_free
        while (excess := await self._excess()) > 0:
            if not await self._delete_some(may_go & (own.last_used < safe), excess):
                break
        self._tell(is_exceeded=excess > 0 and not self._limits.in_memory)

    @reading
    def _count(self, connection: Connection) -> int:
        return connection.scalar(select(func.count()).select_from(tool_outputs)) or 0

    @reading
    def _excess(self, connection: Connection) -> float:
        return _output_bytes(connection) - self._limits.most_bytes

    @housekeeping
    def _delete_some(self, connection: Connection, condition: ColumnElement[bool], excess: float) -> bool:
        """Delete a few that this is true of until so many bytes are free; tell whether there may be more."""
        if self._is_stopped:
            return False
        own = tool_outputs.c
        statement = select(own.owner, own.id, own.size).where(condition).order_by(own.last_used)
        found = connection.execute(statement.limit(OUTPUTS_A_TRANSACTION)).all()
        for row in found:
            if excess > 0:
                self._share.goes()
                _delete_output(connection, row.owner, row.id)
                excess -= row.size
        return bool(found)

    def _tell(self, *, is_exceeded: bool) -> None:
        if is_exceeded and not self._is_exceeded:
            log.warning(
                "The outputs of tools take more than store.max_gb = %g; what is left of them is in use, and stays.",
                self._limits.max_gb,
            )
        self._is_exceeded = is_exceeded


class ConversationLimits:
    """Deletes conversations with all that belongs to them, also from the index.

    `may_go` is asked before a conversation goes: one that somebody has just come back to stays. `stays` is told of one
    that might have gone and is still there: somebody has come back to it after all, or it could not be deleted.
    """

    def __init__(self, database: Database, limits: Limits, clock: WatchedClock, index: TextIndex) -> None:
        self.database = database
        self._index = index
        self._limits = limits
        self._clock = clock
        self._is_stopped = False
        self._share = Share("conversations", 0, limits)
        self.may_go: Callable[[str], bool] = lambda _: True
        self.stays: Callable[[str], object] = lambda _: None

    def stop(self) -> None:
        """Stop after the transaction that is under way."""
        self._is_stopped = True

    async def apply(self, today: float) -> None:
        """Delete rows beyond the days of retention, then those used longest ago until the rest is small enough.

        Ages are counted until `today`. Raises StoreUnavailable.
        """
        safe = self._clock.before(self._limits.safe_seconds)
        used = conversations.c.updated
        is_going = used <= GOING
        self._share = Share("conversations", await self._count(), self._limits)
        while await self._delete_some(used < max(0.0, min(self._limits.oldest(today), safe))):
            pass
        await self._index.take_out()
        while await self._excess() > 0 and await self._delete_some(used < safe):
            while await self._delete_some(is_going):
                pass
            await self._index.take_out()

    @reading
    def _count(self, connection: Connection) -> int:
        return connection.scalar(select(func.count()).select_from(conversations)) or 0

    @reading
    def _excess(self, connection: Connection) -> float:
        outputs, most = _output_bytes(connection), self._limits.most_bytes
        return content_bytes(connection) - max(0, outputs - most * SHARE_OF_OUTPUTS) - most

    async def _delete_some(self, condition: ColumnElement[bool]) -> bool:
        """Delete a part of the conversation that this is true of and that was used longest ago; tell if there is one.

        A conversation of which a part is left is `GOING`, also for the next process where this one ends on the way.
        """
        found = None if self._is_stopped else await self._first(condition)
        if found is None or not self.may_go(found):
            return False
        stays = True
        try:
            await self._delete_part(found, condition)
            stays = await self._is_whole(found)
        finally:
            if stays:
                self.stays(found)
        return stays or self.may_go(found)  # who has read it meanwhile is told once more

    @reading
    def _is_whole(self, connection: Connection, conversation: str) -> bool:
        used = connection.scalar(select(conversations.c.updated).filter_by(id=conversation))
        return used is not None and used > GOING

    @reading
    def _first(self, connection: Connection, condition: ColumnElement[bool]) -> str | None:
        return _oldest(connection, condition)  # nearly always there is none, and no need to write

    @housekeeping
    def _delete_part(self, connection: Connection, found: str, condition: ColumnElement[bool]) -> None:
        if _oldest(connection, condition & (conversations.c.id == found)) is None:
            return  # somebody has come back to it
        used: float = connection.scalar(select(conversations.c.updated).filter_by(id=found)) or 0.0
        if used > GOING and (later := _said_after(connection, found, used, self._clock())):
            connection.execute(update(conversations).filter_by(id=found).values(updated=later))
            return  # the clock was behind when it was said
        if used > GOING:
            self._share.goes()
        if delete_messages(connection, found):
            connection.execute(update(conversations).filter_by(id=found).values(updated=GOING))
        else:
            _delete_rest(connection, found)


def _output_bytes(connection: Connection) -> int:
    return int(connection.scalar(select(func.sum(tool_outputs.c.size))) or 0)  # a sum may be a Decimal


def _delete_output(connection: Connection, owner: str, ref_id: str) -> None:
    connection.execute(delete(tool_output_uses).filter_by(place=tool_outputs.name, key=ref_id))
    for table in (tool_output_chunks, tool_outputs):
        connection.execute(delete(table).filter_by(owner=owner, id=ref_id))


def _oldest(connection: Connection, condition: ColumnElement[bool]) -> str | None:
    own = conversations.c
    found: str | None = connection.scalar(select(own.id).where(condition).order_by(own.updated, own.id).limit(1))
    return found


def delete_messages(connection: Connection, conversation: str) -> bool:
    """Delete the first messages of a conversation with their parts; tell whether there are more."""
    own = messages.c
    first = select(own.number, own.id).where(own.conversation == conversation).order_by(own.number)
    found = connection.execute(first.limit(MESSAGES_A_TRANSACTION).with_for_update()).all()
    connection.execute(delete(message_parts).where(message_parts.c.message.in_([row.id for row in found])))
    connection.execute(delete(messages).where(own.number.in_([row.number for row in found])))
    return len(found) == MESSAGES_A_TRANSACTION


def _delete_rest(connection: Connection, conversation: str) -> None:
    """Delete a conversation that has no messages any more."""
    own_turns = select(turns.c.id).where(turns.c.conversation == conversation)
    connection.execute(delete(step_usage).where(step_usage.c.turn.in_(own_turns)))
    for table in (turns, compactions, queue, queue_receipts):
        connection.execute(delete(table).where(table.c.conversation == conversation))
    connection.execute(delete(conversations).where(conversations.c.id == conversation))


def _said_after(connection: Connection, conversation: str, used: float, now: float) -> float | None:
    """Return when a conversation was used at the earliest, if it came later than the clock of that day said.

    Messages have numbers in the order in which they came: a message with a lower number and a later time tells.
    """
    own = messages.c
    last = select(func.max(own.number)).where(own.conversation == conversation).scalar_subquery()
    earlier = select(own.at).where(own.number < last, own.at > used + SECONDS_A_DAY, own.at <= now)
    found: float | None = connection.scalar(earlier.order_by(own.number.desc()).limit(1))
    return found


def _last_use(connection: Connection, until: float) -> float:
    """Return when anything was used last, up to this time."""
    found = [connection.scalar(select(func.max(used)).where(used <= until, used >= 0)) for used in USES]
    return max((used for used in found if used is not None), default=float("-inf"))


def _was_set_today(connection: Connection, now: float, last: float) -> bool:
    """Tell whether the last message that is not of the last day has a time to come, or one long before its turn."""
    own = messages.c
    today: ColumnElement[bool] = own.at.between(now - SECONDS_A_DAY, now + JUMP_SECONDS)
    before: float | None = connection.scalar(select(own.at).where(~today).order_by(own.number.desc()).limit(1))
    return before is not None and (before > now or before < last - SECONDS_A_DAY)
