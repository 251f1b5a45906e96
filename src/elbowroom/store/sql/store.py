"""A database with all kinds of rows, kept within its limits."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from elbowroom.store.base import Limits, StoreDamaged, StoreUnavailable, TrackedTasks, WatchedClock
from elbowroom.store.place import Place
from elbowroom.store.sql.conversations import SqlConversations
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import kept_secret
from elbowroom.store.sql.limits import ConversationLimits, ToolOutputLimits, trusted_time
from elbowroom.store.sql.outputs import SqlToolOutputs
from elbowroom.store.sql.people import SqlPeople
from elbowroom.store.sql.rows import SqlLedger, SqlMemories
from elbowroom.store.sql.search import AGAIN_SECONDS, TextIndex
from elbowroom.store.sql.sharing import SqlServerLeases, SqlServers

log = logging.getLogger(__name__)
CLOSING_SECONDS: Final = 5.0
"""So long the end waits for what a PostgreSQL server is doing, before its connections are broken off."""
LONGEST_WAIT_SECONDS: Final = 1.0
"""How long the end waits for a check of the file; SQLite before 3.41 cannot be stopped in parts of it."""
CALM_SECONDS: Final = 3.0
"""So long after the opening the limits and the index wait: the first answers have the disk and the processor."""
LIMITS_LOCK: Final = 0x656C626F776C696D
"""The advisory lock of the one among several servers that applies the limits."""


class SqlStore:
    """An open database; made by `open`, given back by `aclose`. If it `is_durable`, rows outlive the process."""

    def __init__(self, database: Database, limits: Limits, clock: WatchedClock, server: str = "") -> None:
        self.ledger = SqlLedger(database, limits, clock)
        self.tool_outputs = SqlToolOutputs(database, limits, clock)
        self.memories = SqlMemories(database)
        self.people = SqlPeople(database)
        self.conversations = SqlConversations(database, server)
        self.servers = SqlServers(database, server)
        self.leases = SqlServerLeases(database, server)
        self.is_durable = database.place is not None
        self._database = database
        self._limits = limits
        self._output_limits = ToolOutputLimits(database, limits, clock)
        self._index = TextIndex(database)
        self._conversation_limits = ConversationLimits(database, limits, clock, self._index)
        self._indexing: asyncio.Task[None] | None = None
        self._clock = clock
        self._tasks = TrackedTasks()
        self._limiting: asyncio.Task[None] | None = None
        self._later: asyncio.TimerHandle | None = None
        self._checking: asyncio.Task[None] | None = None
        self._limited = clock()
        self._may_delete = True

    @classmethod
    async def open(
        cls, place: Place, limits: Limits | None = None, clock: WatchedClock | None = None, server: str = ""
    ) -> Self:
        """Open the database at this place, or make it; without one it is in memory.

        `server` is which of those that share it this one is, empty for the only one. Raises StoreUnavailable.
        """
        limits, clock = limits or Limits(), clock or WatchedClock()
        try:
            return await cls._open(place, limits, clock, server)
        except StoreDamaged:  # which is noted: this time the whole file is read first
            return await cls._open(place, limits, clock, server)

    @classmethod
    async def _open(cls, place: Place, limits: Limits, clock: WatchedClock, server: str) -> Self:
        database = await Database.open(place)
        store = cls(database, limits, clock, server)
        try:
            await store.ledger.load()
            await database.do(database.mark)
            if database.path is not None and not database.is_read_only:
                await store.conversations.rehearse()
        except BaseException:
            await database.aclose()
            raise
        return store

    @property
    def set_aside(self) -> Path | None:
        """Return the new path of the damaged file in whose place this one was begun."""
        return self._database.set_aside

    async def secret(self) -> bytes:
        """Return the secret that a database server keeps for all who use it, made where there is none."""
        return await self._database.write(kept_secret)

    def can_be_written_again(self) -> bool:
        """Tell whether the file could not be written when it was opened, and can be now."""
        return self._database.can_be_written_again()

    async def check_place(self) -> None:
        """Raise StoreReplaced where another file, or none, is where this one was."""
        await self._database.do(self._database.check_place)

    async def leave(self) -> None:
        """Let the file go that is not at its place any more; it can be read until this is closed."""
        await self._database.do(self._database.leave)

    def check_soon(self, when_damaged: Callable[[StoreDamaged], object]) -> None:
        """Check the file in the background where the last process did not close it; call this if it is damaged."""
        if self._database.is_unchecked and self._checking is None:
            self._checking = asyncio.create_task(self._check(when_damaged))

    def keep_house_soon(self) -> None:
        """Apply the limits, and bring the index for searches up to date, once the first answers have begun."""
        self._later = asyncio.get_running_loop().call_later(CALM_SECONDS, self._limit)
        self._index_soon(CALM_SECONDS)

    def ask_before_deleting(self, may_go: Callable[[str], bool], stays: Callable[[str], object]) -> None:
        """Ask `may_go` before a conversation goes because of the limits, and again once it is gone.

        Where it is still there after all, call `stays`.
        """
        self._conversation_limits.may_go = may_go
        self._conversation_limits.stays = stays

    def has_grown(self) -> None:
        """Apply the limits in the background, unless that was done a short while ago, and index what is new."""
        if abs(self._clock() - self._limited) >= self._limits.again_seconds:
            self._limit()
        self._index_soon(AGAIN_SECONDS)

    async def aclose(self) -> None:
        """Finish what is under way, but not the limits, and close the database."""
        if self._later:
            self._later.cancel()
        self._output_limits.stop()
        self._conversation_limits.stop()
        self._index.stop()
        self._database.stop_check()
        if self._checking:
            await asyncio.wait([self._checking], timeout=LONGEST_WAIT_SECONDS)
            self._checking.cancel()
        await self._database.end_within(self._end(), CLOSING_SECONDS)

    async def _end(self) -> None:
        await self._tasks.finished()
        await self._database.aclose()

    def _limit(self) -> None:
        """Apply the limits in the background, unless that is under way."""
        if self._limiting is None or self._limiting.done():
            self._limiting = self._tasks.start(self._apply_limits())

    def _index_soon(self, wait: float) -> None:
        """Bring the index for searches up to date in the background after so many seconds, unless that is to come."""
        if self.is_durable and (self._indexing is None or self._indexing.done()):
            self._indexing = self._tasks.start(self._index.keep_up(wait))

    async def _check(self, when_damaged: Callable[[StoreDamaged], object]) -> None:
        try:
            await self._database.check()
        except StoreDamaged as damage:
            when_damaged(damage)
        except StoreUnavailable as error:
            log.debug("The store could not be checked: %s", error)

    async def _apply_limits(self) -> None:
        self._limited = self._clock()
        try:
            today = await self._today()
            self._tell(may_delete=today is not None)
            if today is None:
                return
            async with self._database.alone(LIMITS_LOCK) as is_alone:
                if is_alone:
                    await self._delete_unused_entries(today)
                    await self._output_limits.apply(today)
                    await self._conversation_limits.apply(today)
        except StoreUnavailable as error:
            log.debug("The limits of the store could not be applied: %s", error)

    async def _today(self) -> float | None:
        """Return the time until which ages are counted, None where nothing may be deleted today."""
        if self._limits.in_memory:
            return self._clock()
        return await self._database.read(lambda connection: trusted_time(connection, self._clock))

    def _tell(self, *, may_delete: bool) -> None:
        is_limited = self._limits.retention_days or self._limits.max_gb < float("inf")
        if self._may_delete and not may_delete and is_limited:
            log.info("Nothing is deleted from the store for a day: the clock was set, or nobody was here for long.")
        self._may_delete = may_delete

    async def _delete_unused_entries(self, today: float | None) -> None:
        if today is not None and (self._limits.retention_days or self._limits.in_memory):
            await self.ledger.delete_unused(today)
