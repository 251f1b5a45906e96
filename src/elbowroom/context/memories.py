"""What agents remember beyond a conversation."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Memory:
    """One thing that an agent has saved; `saved` is when, in Unix seconds."""

    id: str
    text: str
    saved: float


class Memories(Protocol):
    """Keeps what the agents of owners have saved; nobody reads what another owner or another agent has.

    It raises nothing where it cannot write or read: what could not be written is kept in memory as far as it may be.
    """

    async def save(self, owner: str, agent: str, text: str, now: float) -> Memory:
        """Keep a text; the same one again is the one there was, saved now."""
        ...

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept, the newest first."""
        ...

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Forget one; tells whether it was there."""
        ...
