"""The rows of the compaction ledger as the chat needs them: there from the start, and never in its way."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elbowroom.context.ledger import Archived, Entry
from elbowroom.context.transcript import Message
from elbowroom.store.errors import StoreDamaged, StoreUnavailable
from elbowroom.store.memory_rows import Held, MemoryLedgerRows
from elbowroom.store.message_json import written
from elbowroom.store.tracked_tasks import TrackedTasks

if TYPE_CHECKING:
    from elbowroom.store.ledger_rows import SqlLedgerRows

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """In seconds: how long the first requests wait for the store to open, then until it is tried again, and the end."""

    opening: float = 5.0
    again: float = 15.0
    closing: float = 10.0


class LastingLedgerRows:
    """`LedgerRows` that raise nothing when their database fails.

    What cannot be written is kept in memory, within bounds, and written once that works again; what cannot be read is
    not found. The log says so once, and once when it is over. `begin` opens the database, for the first time with the
    first use; `name` is how the log calls it.
    """

    def __init__(
        self, name: str, begin: Callable[[], Awaitable["SqlLedgerRows"]], patience: Patience | None = None
    ) -> None:
        self._name = name
        self._begin = begin
        self._patience = patience or Patience()
        self._unwritten = MemoryLedgerRows()
        self._rows: SqlLedgerRows | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._waits_until: float | None = None
        self._tasks = TrackedTasks()
        self._next_try = 0.0
        self._is_failing = False
        self._is_closed = False

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries that can be found now."""
        rows = await self._opened()
        self._write_later()
        unwritten = await self._unwritten.keys()
        stored = await rows.keys() if rows else ()
        return {*unwritten, *stored} if unwritten else stored

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        rows = await self._opened()
        self._write_later()
        found = await self._unwritten.find(keys)
        missing = set(keys).difference(entry.key for entry in found)
        if rows and missing:
            try:
                found += await rows.find([key for key in keys if key in missing])
            except StoreUnavailable as error:
                self._let_go(rows, error)
        return found

    async def save(self, entry: Entry, archive: Sequence[Archived]) -> None:
        """Keep an entry in place of one with the same key, and the messages it was made from.

        It is in the database when this returns, or the log says that it is not. It goes on where the caller is
        cancelled. What JSON cannot hold is not kept, with a warning in the log.
        """
        await self._tasks.run(self._save(entry, archive))

    async def archived(self, key: str) -> list[Message]:
        """Return the messages that a key covers as the client sent them, in order, all but the system's.

        Empty where none are kept or none can be read.
        """
        if unwritten := await self._unwritten.archived(key):
            return unwritten
        if rows := await self._opened():
            try:
                return await rows.archived(key)
            except StoreUnavailable as error:
                self._let_go(rows, error)
        return []

    async def aclose(self) -> None:
        """Try once more to write what is not written, finish what is under way, and close the database."""
        self._next_try = 0.0
        if self._unwritten.all():
            self._begin_to_open()
            self._write_later()
        await self._tasks.finished(self._patience.closing)
        self._is_closed = True
        if lost := len(self._unwritten.all()):
            log.warning("The store %s could not be written: compactions that are lost: %d.", self._name, lost)
        if self._rows:
            await self._rows.aclose()
            self._rows = None

    def _begin_to_open(self) -> None:
        if self._rows is None and self._opening is None and self._may_try():
            self._opening = self._tasks.start(self._open())

    async def _opened(self) -> "SqlLedgerRows | None":
        """Return the rows in the database, or None where it does not open, or not soon enough."""
        self._begin_to_open()
        now = time.monotonic()
        if self._waits_until is None:
            self._waits_until = now + self._patience.opening
        if self._opening and now < self._waits_until:
            _, pending = await asyncio.wait([self._opening], timeout=self._waits_until - now)
            if pending and self._waits_until:
                self._waits_until = 0.0
                log.warning("The store %s takes long to open; chats go on without it until then.", self._name)
        return self._rows

    async def _open(self) -> None:
        try:
            if self._closing:
                await self._closing
            rows = await self._begin()
        except Exception as error:  # noqa: BLE001  # chats go on, whatever is wrong with the store
            self._fails(error)
        else:
            if self._is_closed:
                await rows.aclose()
            else:
                self._rows = rows
                _ = self._tasks.start(self._write())
        finally:
            self._opening = None

    async def _save(self, entry: Entry, archive: Sequence[Archived]) -> None:
        if content := await asyncio.to_thread(written, entry, archive):
            self._unwritten.put(Held(entry, tuple(archive), content.size))
            await self._opened()
            await self._write()

    def _write_later(self) -> None:
        if self._unwritten.all() and self._may_try() and not self._writing.locked():
            _ = self._tasks.start(self._write())

    async def _write(self) -> None:
        """Write what is not written yet, oldest first, unless that has just failed."""
        async with self._writing:
            if self._rows and self._may_try():
                await self._write_to(self._rows)
            self._unwritten.trim()

    async def _write_to(self, rows: "SqlLedgerRows") -> None:
        for held in self._unwritten.all():
            try:
                await rows.save(held.entry, held.archive)
            except StoreDamaged as error:
                self._let_go(rows, error)
                return
            except StoreUnavailable as error:
                # What was just used goes last: the next try begins with others, in case only this one is refused.
                await self._unwritten.find([held.entry.key])
                self._fails(error)
                return
            self._unwritten.drop(held)
        self._works()

    def _may_try(self) -> bool:
        return not self._is_closed and time.monotonic() >= self._next_try

    def _works(self) -> None:
        if self._is_failing:
            self._is_failing = False
            log.info("The store %s works again.", self._name)

    def _fails(self, error: Exception) -> None:
        self._next_try = time.monotonic() + self._patience.again
        if not self._is_failing:
            self._is_failing = True
            log.error(
                "The store %s does not work: %s. Chats go on; compactions are kept in memory until it works again.",
                self._name,
                error,
            )

    def _let_go(self, rows: "SqlLedgerRows", error: StoreUnavailable) -> None:
        """Close the database, which is opened and checked anew with the next try."""
        if self._rows is rows:
            self._fails(error)
            self._rows = None
            self._closing = self._tasks.start(rows.aclose())
