"""Memories of agents that last as long as a test."""

from itertools import count

from elbowroom.context.memories import Memory


class HeldMemories:
    """`Memories` in lists; `reads` is how often they have been read."""

    def __init__(self) -> None:
        self._ids = count(1)
        self._held: dict[tuple[str, str], list[Memory]] = {}
        self.reads = 0

    async def save(self, owner: str, agent: str, text: str, now: float) -> Memory:
        """Keep a text; the same one again is the one there was, saved now."""
        held = self._held.setdefault((owner, agent), [])
        known = next((memory for memory in held if memory.text == text), None)
        if known is not None:
            held.remove(known)
        memory = Memory(known.id if known else f"m{next(self._ids)}", text, now)
        held.append(memory)
        return memory

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept, the newest first."""
        self.reads += 1
        return sorted(self._held.get((owner, agent), []), key=lambda memory: memory.saved, reverse=True)

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Forget one; tells whether it was there."""
        held = self._held.get((owner, agent), [])
        left = [memory for memory in held if memory.id != memory_id]
        was_there = len(left) < len(held)
        held[:] = left
        return was_there
