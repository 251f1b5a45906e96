"""Which outputs of tools go when they are too old or too many: never one that something refers to."""

import logging
from collections.abc import Callable
from typing import Final

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.store.database import Database
from elbowroom.store.limits import TOUCH_SECONDS, Limits
from elbowroom.store.tables import tool_output_chunks, tool_output_uses, tool_outputs
from elbowroom.store.tool_output_uses import delete_uses

log = logging.getLogger(__name__)
OUTPUTS_A_TRANSACTION: Final = 20
"""How many are deleted at once, so that whoever wants to write waits little."""
SAFE_SECONDS: Final = 2 * TOUCH_SECONDS
"""What was used so lately stays whatever the limits: an answer may be at work with it, and uses are written late."""


class ToolOutputLimits:
    """Deletes outputs that nothing refers to; `clock` gives Unix seconds.

    An output is referred to while its id stands in a compaction, in an archived message or in another output that is
    kept, such as a list of them, and for the days of retention after it last stood in a prompt.
    """

    def __init__(self, database: Database, limits: Limits, clock: Callable[[], float]) -> None:
        self._database = database
        self._limits = limits
        self._clock = clock
        self._is_exceeded = False
        self._is_stopped = False

    def stop(self) -> None:
        """Delete no more than what is being deleted."""
        self._is_stopped = True

    async def apply(self) -> None:
        """Delete what is too old, then of what is left the oldest use first until the rest is small enough.

        Raises StoreUnavailable.
        """
        own, now = tool_outputs.c, self._clock()
        oldest = self._limits.oldest(now)
        is_free = own.id.not_in(select(tool_output_uses.c.id)) & ((own.last_named == 0) | (own.last_named < oldest))
        safe = now - SAFE_SECONDS
        while await self._delete_some(is_free & (own.last_used < min(oldest, safe)), float("inf")):
            pass
        while (excess := await self._excess()) > 0:
            if not await self._delete_some(is_free & (own.last_used < safe), excess):
                break
        self._tell(is_exceeded=excess > 0)

    async def _excess(self) -> float:
        async with self._database.reading() as connection:
            total = await connection.scalar(select(func.sum(tool_outputs.c.size)))
        return (total or 0) - self._limits.most_bytes

    async def _delete_some(self, condition: ColumnElement[bool], excess: float) -> bool:
        """Delete a few that this is true of until so many bytes are free; tells whether there may be more."""
        if self._is_stopped:
            return False
        own = tool_outputs.c
        statement = select(own.owner, own.id, own.size).where(condition).order_by(own.last_used)
        async with self._database.writing() as connection:
            found = (await connection.execute(statement.limit(OUTPUTS_A_TRANSACTION))).all()
            for row in found:
                if excess > 0:
                    await _delete(connection, row.owner, row.id)
                    excess -= row.size
        return bool(found)

    def _tell(self, *, is_exceeded: bool) -> None:
        if is_exceeded and not self._is_exceeded:
            log.warning(
                "The outputs of tools take more than store.max_gb = %g; what is left of them is in use, and stays.",
                self._limits.max_gb,
            )
        self._is_exceeded = is_exceeded


async def _delete(connection: AsyncConnection, owner: str, ref_id: str) -> None:
    await delete_uses(connection, tool_outputs.name, ref_id)
    for table in (tool_output_chunks, tool_outputs):
        await connection.execute(delete(table).filter_by(owner=owner, id=ref_id))
