"""The compaction ledger and the memories of agents as chats need them: there from the start, and never in the way."""

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from elbowroom.context.ledger import Entry
from elbowroom.context.memories import Memory, memory_of, room_of
from elbowroom.context.transcript import Message
from elbowroom.store.backlog import Waiting
from elbowroom.store.base import ALONE, HELD_LEASE, Servers
from elbowroom.store.packed import MOST_MEMORIES, PackedEntry, packed_entry
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

MOST_ENTRIES: Final = 1000
MOST_ENTRY_BYTES: Final = 64 * 2**20
MOST_ROOMS_READ: Final = 16
"""Of how many owners and agents the memories stay in memory: at most 16,000 of about 1 KB."""


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

    def __init__(self, store: WriteBehindStore, servers: Servers = ALONE) -> None:
        self._store = store
        self._servers = servers
        self._unwritten: Waiting[str, PackedEntry] = Waiting(
            "compactions", _write_entry, most=MOST_ENTRIES, most_bytes=MOST_ENTRY_BYTES
        )
        store.add(self._unwritten)

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries that can be found now; waits a while for a store that is being opened."""
        await self._store.opened()
        self._store.write_later()
        await self._servers.in_step(lambda: self._store.ask(lambda sql: sql.ledger.load_new()))
        return self._keys()

    def keys_now(self) -> Collection[str] | None:
        """Return the keys of all entries that can be found now.

        None while the store is being opened, and where other servers may have written what only the database knows.
        """
        self._store.open_soon()
        if self._store.is_opening or not self._servers.may_remember:
            return None
        self._store.write_later()
        return self._keys()

    def _keys(self) -> Collection[str]:
        sql, unwritten = self._store.current, self._unwritten.held.keys()
        stored = sql.ledger.last_used.keys() if sql else ()
        return unwritten | stored if unwritten else stored

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        await self._store.opened()
        self._store.write_later()
        found = [packed.entry for key in dict.fromkeys(keys) if (packed := self._unwritten.get(key))]
        if missing := set(keys).difference(entry.key for entry in found):
            wanted = [key for key in keys if key in missing]
            found += await self._store.ask(lambda sql: sql.ledger.find(wanted)) or []
        return found

    async def save(self, entry: Entry, made_from: Sequence[Message]) -> None:
        """Keep an entry in place of one with the same key; outputs that `made_from` refers to are kept with it.

        It is in the database when this returns, or the log says that it is not, also when the caller is cancelled. An
        entry that JSON cannot hold is not kept, with a warning in the log.
        """
        await self._store.tasks.run(self._save(entry, made_from))

    async def _save(self, entry: Entry, made_from: Sequence[Message]) -> None:
        if packed := await asyncio.to_thread(packed_entry, entry, made_from):
            packed = replace(packed, lease=HELD_LEASE.get())
            self._unwritten.put(entry.key, packed, len(packed.messages))
            await self._store.write(self._unwritten)


class WriteBehindMemories:
    """`Memories` in a database that may fail: changes that cannot be written wait in memory until they can be.

    What was read last stays in memory until something changes, where no other server can change it.
    """

    def __init__(self, store: WriteBehindStore, servers: Servers = ALONE) -> None:
        self._store = store
        self._servers = servers
        self._unwritten: Waiting[tuple[str, str], MemoryChange] = Waiting("memories", _write_memory)
        self._read: OrderedDict[str, list[Memory]] = OrderedDict()
        self._read_from: SqlStore | None = None
        self._changes = 0
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
        self._changes += 1
        self._read.clear()
        self._unwritten.put((change.room, change.id), change)
        await self._store.write(self._unwritten)

    async def _stored(self, sql: "SqlStore", room: str) -> list[Memory]:
        if self._read_from is sql and (known := self._read.get(room)) is not None:
            self._read.move_to_end(room)
            return known
        changes, is_all_written = self._changes, not self._unwritten.held
        found = await self._store.ask(lambda sql: sql.memories.all(room))
        if found is not None and is_all_written and changes == self._changes and self._servers.may_remember:
            self._keep_read(sql, room, found)
        return found or []

    def _keep_read(self, sql: "SqlStore", room: str, found: list[Memory]) -> None:
        if self._read_from is not sql:
            self._read.clear()
            self._read_from = sql
        self._read[room] = found
        if len(self._read) > MOST_ROOMS_READ:
            self._read.popitem(last=False)


async def _write_entry(store: "SqlStore", packed: PackedEntry) -> None:
    await store.ledger.save(packed)


async def _write_memory(store: "SqlStore", change: MemoryChange) -> None:
    if change.memory:
        await store.memories.save(change.room, change.memory)
    else:
        await store.memories.delete(change.room, change.id)


def _newest_first(memories: Iterable[Memory]) -> list[Memory]:
    return sorted(memories, key=lambda memory: (-memory.saved, memory.id))
