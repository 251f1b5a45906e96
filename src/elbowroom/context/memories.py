"""What agents remember beyond a conversation."""

from dataclasses import dataclass
from typing import Protocol

from elbowroom.context.canonical import json_form
from elbowroom.context.tool_output import ref_to


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
        """Keep a text; one that differs from another in white space alone takes its place, under the same id.

        Beyond a thousand of one owner and agent the oldest go.
        """
        ...

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept, the newest first."""
        ...

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Forget one; tells whether it was there."""
        ...


def memory_of(owner: str, agent: str, text: str, now: float) -> Memory:
    """Return what a text is as a memory; its id depends on owner, agent and the words alone."""
    return Memory(ref_to(room_of(owner, agent), " ".join(text.split())).id, text, now)


def room_of(owner: str, agent: str) -> str:
    """Return one text for an owner and an agent, which no other two have."""
    return json_form([owner, agent]).decode()
