"""The rows of the compaction ledger as the chat needs them: there from the start, and never in its way."""

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from elbowroom.context.ledger import Archived, Entry
from elbowroom.context.transcript import Message
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.lasting_store import LastingStore
from elbowroom.store.memory_rows import Held, MemoryLedgerRows
from elbowroom.store.message_json import written

if TYPE_CHECKING:
    from elbowroom.store.sql_store import SqlStore


class LastingLedgerRows:
    """`LedgerRows` that raise nothing when their database fails.

    What cannot be written is kept in memory, within bounds, and written once that works again; what cannot be read is
    not found.
    """

    plural = "compactions"

    def __init__(self, store: LastingStore) -> None:
        self._store = store
        self._unwritten = MemoryLedgerRows()
        store.add(self)

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries that can be found now."""
        sql = await self._store.opened()
        self._store.write_later()
        unwritten = await self._unwritten.keys()
        stored = await sql.ledger.keys() if sql else ()
        return {*unwritten, *stored} if unwritten else stored

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        sql = await self._store.opened()
        self._store.write_later()
        found = await self._unwritten.find(keys)
        missing = set(keys).difference(entry.key for entry in found)
        if sql and missing:
            try:
                found += await sql.ledger.find([key for key in keys if key in missing])
            except StoreUnavailable as error:
                self._store.failed(sql, error)
        return found

    async def save(self, entry: Entry, archive: Sequence[Archived]) -> None:
        """Keep an entry in place of one with the same key, and the messages it was made from.

        It is in the database when this returns, or the log says that it is not. It goes on where the caller is
        cancelled. What JSON cannot hold is not kept, with a warning in the log.
        """
        await self._store.tasks.run(self._save(entry, archive))

    async def archived(self, key: str) -> list[Message]:
        """Return the messages that a key covers as the client sent them, in order, all but the system's.

        Empty where none are kept or none can be read.
        """
        if unwritten := await self._unwritten.archived(key):
            return unwritten
        if sql := await self._store.opened():
            try:
                return await sql.ledger.archived(key)
            except StoreUnavailable as error:
                self._store.failed(sql, error)
        return []

    def waiting(self) -> Sequence[Held]:
        """Return the entries that are not written, what nobody used for longest first."""
        return self._unwritten.all()

    async def write(self, store: "SqlStore", item: Held) -> None:
        """Write an entry. Raises StoreUnavailable."""
        await store.ledger.save(item.entry, item.archive)

    def written(self, item: Held) -> None:
        """Let go an entry that has been written."""
        self._unwritten.drop(item)

    def refused(self, item: Held) -> None:
        """Try an entry again after all others."""
        self._unwritten.used(item.entry.key)

    def trim(self) -> None:
        """Let go the entries that are too many."""
        self._unwritten.trim()

    async def _save(self, entry: Entry, archive: Sequence[Archived]) -> None:
        if content := await asyncio.to_thread(written, entry, archive):
            self._unwritten.put(Held(entry, tuple(archive), content.size))
            await self._store.write(self)
