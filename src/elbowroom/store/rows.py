"""The compaction ledger and the memories of agents as chats need them: there from the start, and never in the way."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elbowroom.context.ledger import Entry
from elbowroom.context.memories import Memory, memory_of, room_of
from elbowroom.context.transcript import Message
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.packed import MOST_MEMORIES, PackedEntry, packed_entry
from elbowroom.store.write_behind import Waiting, WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

MOST_ENTRIES: Final = 1000
MOST_ENTRY_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """A memory that is to be written in a room, or the id of one that is to be deleted."""

    room: str
    id: str
    memory: Memory | None


class WriteBehindLedger:
    """`LedgerRows` that raise nothing when their database fails.

    Entries that cannot be written are kept in memory, within bounds, and written once that works again; entries that
    cannot be read are not found.
    """

    def __init__(self, store: WriteBehindStore) -> None:
        self._store = store
        self._unwritten: Waiting[str, PackedEntry] = Waiting(
            "compactions", _write_entry, most=MOST_ENTRIES, most_bytes=MOST_ENTRY_BYTES
        )
        store.add(self._unwritten)

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries that can be found now."""
        sql = await self._store.opened()
        self._store.write_later()
        unwritten = self._unwritten.keys()
        stored = sql.ledger.keys() if sql else ()
        return unwritten.union(stored) if unwritten else stored

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        sql = await self._store.opened()
        self._store.write_later()
        found = [packed.entry for key in dict.fromkeys(keys) if (packed := self._unwritten.get(key))]
        missing = set(keys).difference(entry.key for entry in found)
        if sql and missing:
            try:
                found += await sql.ledger.find([key for key in keys if key in missing])
            except StoreUnavailable as error:
                self._store.failed(sql, error)
        return found

    async def save(self, entry: Entry, made_from: Sequence[Message]) -> None:
        """Keep an entry in place of one with the same key; outputs that `made_from` refers to are kept with it.

        It is in the database when this returns, or the log says that it is not, also when the caller is cancelled. An
        entry that JSON cannot hold is not kept, with a warning in the log.
        """
        await self._store.tasks.run(self._save(entry, made_from))

    async def _save(self, entry: Entry, made_from: Sequence[Message]) -> None:
        if packed := await asyncio.to_thread(packed_entry, entry, made_from):
            self._unwritten.put(entry.key, packed, len(packed.messages))
            await self._store.write(self._unwritten)


class WriteBehindMemories:
    """`Memories` in a database that may fail: changes that cannot be written wait in memory until they can be."""

    def __init__(self, store: WriteBehindStore) -> None:
        self._store = store
        self._unwritten: Waiting[tuple[str, str], MemoryChange] = Waiting("memories", _write_memory)
        store.add(self._unwritten)

    async def save(self, owner: str, agent: str, text: str, now: float) -> Memory:
        """Keep a text; one that differs from another in white space alone takes its place, under the same id."""
        memory = memory_of(owner, agent, text, now)
        await self._store.tasks.run(self._change(MemoryChange(room_of(owner, agent), memory.id, memory)))
        return memory

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept and can be read, the newest first."""
        sql = await self._store.opened()
        self._store.write_later()
        room = room_of(owner, agent)
        found = {memory.id: memory for memory in await self._stored(sql, room)} if sql else {}
        for change in self._unwritten.items():
            if change.room == room:
                found.pop(change.id, None)
                if change.memory:
                    found[change.id] = change.memory
        return _newest_first(found.values())[:MOST_MEMORIES]

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Delete a memory; tell whether it was there and could be read."""
        if all(memory.id != memory_id for memory in await self.all(owner, agent)):
            return False
        await self._store.tasks.run(self._change(MemoryChange(room_of(owner, agent), memory_id, None)))
        return True

    async def _change(self, change: MemoryChange) -> None:
        self._unwritten.put((change.room, change.id), change)
        await self._store.write(self._unwritten)

    async def _stored(self, sql: "SqlStore", room: str) -> list[Memory]:
        try:
            return await sql.memories.all(room)
        except StoreUnavailable as error:
            self._store.failed(sql, error)
            return []


async def _write_entry(store: "SqlStore", packed: PackedEntry) -> None:
    await store.ledger.save(packed)


async def _write_memory(store: "SqlStore", change: MemoryChange) -> None:
    if change.memory:
        await store.memories.save(change.room, change.memory)
    else:
        await store.memories.delete(change.room, change.id)


def _newest_first(memories: Iterable[Memory]) -> list[Memory]:
    return sorted(memories, key=lambda memory: (-memory.saved, memory.id))
