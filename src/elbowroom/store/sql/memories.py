"""The memories of agents in a database."""

from typing import Final

from sqlalchemy import Connection, delete, func, insert, select

from elbowroom.context.memories import Memory
from elbowroom.store.base import decoded_text, encoded, owner_key
from elbowroom.store.packed import MOST_MEMORIES
from elbowroom.store.sql.database import Database, reading, writing
from elbowroom.store.sql.schema import memories

MOST_ROOMS_IN_MEMORY: Final = 1000
"""Of how many agents and owners a database in memory has memories."""


class SqlMemories:
    """Memories, each in the room of an owner and an agent. All methods raise StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self.database = database

    @writing
    def save(self, connection: Connection, room: str, memory: Memory) -> None:
        """Keep a memory in place of one with the same id; the oldest of a room that are too many go."""
        own, key = memories.c, owner_key(room)
        newest = select(own.id).where(own.room == key).order_by(own.saved.desc(), own.id).limit(MOST_MEMORIES)
        connection.execute(delete(memories).filter_by(room=key, id=memory.id))
        values = {"room": key, "id": memory.id, "text": encoded(memory.text), "saved": memory.saved}
        connection.execute(insert(memories).values(**values))
        connection.execute(delete(memories).where(own.room == key, own.id.not_in(newest)))
        if self.database.path is None:
            rooms = select(own.room).group_by(own.room).order_by(func.max(own.saved).desc()).limit(MOST_ROOMS_IN_MEMORY)
            connection.execute(delete(memories).where(own.room.not_in(rooms)))

    @reading
    def all(self, connection: Connection, room: str) -> list[Memory]:
        """Return the memories of a room, the newest first."""
        own = memories.c
        statement = select(memories).where(own.room == owner_key(room)).order_by(own.saved.desc(), own.id)
        return [Memory(row.id, decoded_text(row.text), row.saved) for row in connection.execute(statement)]

    @writing
    def delete(self, connection: Connection, room: str, memory_id: str) -> None:
        """Delete a memory."""
        connection.execute(delete(memories).filter_by(room=owner_key(room), id=memory_id))
