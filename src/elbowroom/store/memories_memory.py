"""What agents remember, in memory, within bounds."""

from collections.abc import Iterable
from typing import Final

from elbowroom.context.memories import Memory, memory_of

MOST_MEMORIES: Final = 1000
"""How many one agent of one owner has."""
MOST_ROOMS: Final = 1000
"""Of how many agents and owners; beyond that those go that saved nothing for longest."""


class MemoryMemories:
    """`Memories` that last as long as this object."""

    def __init__(self, most: int = MOST_MEMORIES, most_rooms: int = MOST_ROOMS) -> None:
        self._most = most
        self._most_rooms = most_rooms
        self._rooms: dict[tuple[str, str], dict[str, Memory]] = {}  # in the order of last use

    async def save(self, owner: str, agent: str, text: str, now: float) -> Memory:
        """Keep a text; one that differs from another in white space alone takes its place, under the same id."""
        memory = memory_of(owner, agent, text, now)
        room = self._rooms.pop((owner, agent), {})
        self._rooms[owner, agent] = room
        room[memory.id] = memory
        for old in newest_first(room.values())[self._most :]:
            del room[old.id]
        if len(self._rooms) > self._most_rooms:
            del self._rooms[next(iter(self._rooms))]
        return memory

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept, the newest first."""
        return newest_first(self._rooms.get((owner, agent), {}).values())

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Forget one; tells whether it was there."""
        return self._rooms.get((owner, agent), {}).pop(memory_id, None) is not None

    async def aclose(self) -> None:
        """Forget everything."""
        self._rooms.clear()


def newest_first(memories: Iterable[Memory]) -> list[Memory]:
    """Return memories by when they were saved."""
    return sorted(memories, key=lambda memory: (-memory.saved, memory.id))
