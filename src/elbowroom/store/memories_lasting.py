"""What agents remember, as the chat needs it: there from the start, and never in its way."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elbowroom.context.memories import Memory, memory_of, room_of
from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.lasting_store import LastingStore
from elbowroom.store.memories_memory import MOST_MEMORIES, newest_first

if TYPE_CHECKING:
    from elbowroom.store.sql_store import SqlStore

MOST_UNWRITTEN: Final = 10_000


@dataclass(frozen=True, slots=True)
class Change:
    """A memory that is to be written in a room, or the id of one that is to be forgotten."""

    room: str
    id: str
    memory: Memory | None


class LastingMemories:
    """`Memories` in a database that may fail: what cannot be written waits in memory until it can be."""

    plural = "memories"

    def __init__(self, store: LastingStore) -> None:
        self._store = store
        self._unwritten: dict[tuple[str, str], Change] = {}
        store.add(self)

    async def save(self, owner: str, agent: str, text: str, now: float) -> Memory:
        """Keep a text; one that differs from another in white space alone takes its place, under the same id."""
        memory = memory_of(owner, agent, text, now)
        await self._store.tasks.run(self._change(Change(room_of(owner, agent), memory.id, memory)))
        return memory

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept and can be read, the newest first."""
        sql = await self._store.opened()
        self._store.write_later()
        room = room_of(owner, agent)
        found = {memory.id: memory for memory in await self._stored(sql, room)} if sql else {}
        for change in self._unwritten.values():
            if change.room == room:
                found.pop(change.id, None)
                if change.memory:
                    found[change.id] = change.memory
        return newest_first(found.values())[:MOST_MEMORIES]

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Forget one; tells whether it was there and could be read."""
        if all(memory.id != memory_id for memory in await self.all(owner, agent)):
            return False
        await self._store.tasks.run(self._change(Change(room_of(owner, agent), memory_id, None)))
        return True

    def waiting(self) -> Sequence[Change]:
        """Return what is not written, the oldest first."""
        return list(self._unwritten.values())

    async def write(self, store: "SqlStore", item: Change) -> None:
        """Write one change. Raises StoreUnavailable."""
        if item.memory:
            await store.memories.save(item.room, item.memory)
        else:
            await store.memories.delete(item.room, item.id)

    def written(self, item: Change) -> None:
        """Let go what has been written, unless another change has taken its place."""
        if self._unwritten.get((item.room, item.id)) is item:
            del self._unwritten[item.room, item.id]

    def refused(self, item: Change) -> None:
        """Try a change again after all others, unless another has taken its place."""
        if self._unwritten.get((item.room, item.id)) is item:
            self._put(item)

    def trim(self) -> None:
        """Let go the oldest that are too many."""
        for key in list(self._unwritten)[: max(0, len(self._unwritten) - MOST_UNWRITTEN)]:
            del self._unwritten[key]

    async def _change(self, change: Change) -> None:
        self._put(change)
        await self._store.write(self)

    def _put(self, change: Change) -> None:
        self._unwritten.pop((change.room, change.id), None)
        self._unwritten[change.room, change.id] = change

    async def _stored(self, sql: "SqlStore", room: str) -> list[Memory]:
        try:
            return await sql.memories.all(room)
        except StoreUnavailable as error:
            self._store.failed(sql, error)
            return []
