"""What agents remember, in an SQL database."""

from sqlalchemy import delete, insert, select

from elbowroom.context.memories import Memory
from elbowroom.store.database import Database
from elbowroom.store.memories_memory import MOST_MEMORIES
from elbowroom.store.message_json import decoded_text, encoded
from elbowroom.store.owner_key import owner_key
from elbowroom.store.tables import memories
from elbowroom.store.tracked_tasks import TrackedTasks


class SqlMemories:
    """Memories in a database, each in the room of an owner and an agent. All methods raise StoreUnavailable.

    What is begun is finished, whoever is cancelled.
    """

    def __init__(self, database: Database, tasks: TrackedTasks, most: int = MOST_MEMORIES) -> None:
        self._database = database
        self._tasks = tasks
        self._most = most

    async def save(self, room: str, memory: Memory) -> None:
        """Keep a memory in place of one with the same id; the oldest go that are too many."""
        await self._tasks.run(self._save(room, memory))

    async def all(self, room: str) -> list[Memory]:
        """Return what is kept in a room, the newest first."""
        return await self._tasks.run(self._all(room))

    async def delete(self, room: str, memory_id: str) -> None:
        """Forget one."""
        await self._tasks.run(self._delete(room, memory_id))

    async def _save(self, room: str, memory: Memory) -> None:
        values = {"room": owner_key(room), "id": memory.id, "text": encoded(memory.text), "saved": memory.saved}
        own = memories.c
        newest = select(own.id).where(own.room == owner_key(room)).order_by(own.saved.desc(), own.id).limit(self._most)
        async with self._database.writing() as connection:
            await connection.execute(delete(memories).filter_by(room=owner_key(room), id=memory.id))
            await connection.execute(insert(memories).values(**values))
            await connection.execute(delete(memories).where(own.room == owner_key(room), own.id.not_in(newest)))

    async def _all(self, room: str) -> list[Memory]:
        own = memories.c
        statement = select(memories).where(own.room == owner_key(room)).order_by(own.saved.desc(), own.id)
        async with self._database.reading() as connection:
            return [Memory(row.id, decoded_text(row.text), row.saved) for row in await connection.execute(statement)]

    async def _delete(self, room: str, memory_id: str) -> None:
        async with self._database.writing() as connection:
            await connection.execute(delete(memories).filter_by(room=owner_key(room), id=memory_id))
