"""One SQL database with all kinds of rows, kept within its limits."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from elbowroom.store.conversations_limits import ConversationLimits
from elbowroom.store.conversations_sql import SqlConversations
from elbowroom.store.database import Database
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.ledger_rows import SqlLedgerRows
from elbowroom.store.limits import Limits
from elbowroom.store.memories_sql import SqlMemories
from elbowroom.store.tool_outputs_limits import ToolOutputLimits
from elbowroom.store.tool_outputs_sql import SqlToolOutputs
from elbowroom.store.tracked_tasks import TrackedTasks

log = logging.getLogger(__name__)
LIMITS_SECONDS: Final = 600.0
"""The limits are applied again after this time at the earliest."""


class SqlStore:
    """An open database; made by `open`, given back by `aclose`. `clock` gives Unix seconds."""

    def __init__(self, database: Database, limits: Limits, clock: Callable[[], float]) -> None:
        self._tasks = TrackedTasks()
        self.ledger = SqlLedgerRows(database, self._tasks, clock)
        self.tool_outputs = SqlToolOutputs(database, self._tasks, clock)
        self.memories = SqlMemories(database, self._tasks)
        self.conversations = SqlConversations(database, self._tasks)
        self._database = database
        self._limits = limits
        self._tool_output_limits = ToolOutputLimits(database, limits, clock)
        self._conversation_limits = ConversationLimits(database, limits, clock)
        self._clock = clock
        self._limiting: asyncio.Task[None] | None = None
        self._limited = clock()

    @classmethod
    async def open(cls, path: Path, limits: Limits | None = None, clock: Callable[[], float] = time.time) -> Self:
        """Open the database at this path, or make it, and begin to apply the limits. Raises StoreUnavailable."""
        database = await Database.open(path)
        store = cls(database, limits or Limits(), clock)
        try:
            await store._delete_unused()
            await store.ledger.load()
        except BaseException:
            await database.aclose()
            raise
        store._limiting = store._tasks.start(store._apply_limits())
        return store

    @property
    def set_aside(self) -> Path | None:
        """Return where the damaged file is now in whose place this one was begun."""
        return self._database.set_aside

    def has_grown(self) -> None:
        """Apply the limits in the background, unless that was done a short while ago."""
        is_limiting = self._limiting and not self._limiting.done()
        if not is_limiting and abs(self._clock() - self._limited) >= LIMITS_SECONDS:
            self._limiting = self._tasks.start(self._apply_limits())

    async def aclose(self) -> None:
        """Finish what is under way, but not the limits, and close the database."""
        self._tool_output_limits.stop()
        self._conversation_limits.stop()
        await self._tasks.finished()
        await self._database.aclose()

    async def _apply_limits(self) -> None:
        self._limited = self._clock()
        try:
            await self._delete_unused()
            await self._tool_output_limits.apply()
            await self._conversation_limits.apply()
        except StoreUnavailable as error:
            log.debug("The limits of the store could not be applied: %s", error)

    async def _delete_unused(self) -> None:
        if self._limits.retention_days:
            await self.ledger.delete_unused_since(self._limits.oldest(self._clock()))
