"""What agents remember beyond a conversation, and how it is searched."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from elbowroom.context.canonical import json_form
from elbowroom.context.outputs import ref_to

WORD: Final = re.compile(r"\w+")
MOST_WORDS: Final = 50
SHORT: Final = 2
"""Words of at most so many letters are looked for whole: "in" is the beginning of too many."""
WITHOUT_SPACES: Final = "\u2e80"
"""The scripts from this character on write no spaces between words: a word may begin anywhere."""


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

    async def all(self, owner: str, agent: str) -> list[Memory]:
        """Return everything that is kept, the newest first."""

    async def delete(self, owner: str, agent: str, memory_id: str) -> bool:
        """Forget one; tells whether it was there."""


async def memories_of(memories: Memories, owner: str, agents: Iterable[str]) -> list[tuple[str, Memory]]:
    """Return what these agents have saved for an owner, each with its agent, the newest first."""
    found = [(agent, memory) for agent in dict.fromkeys(agents) for memory in await memories.all(owner, agent)]
    return sorted(found, key=lambda row: -row[1].saved)


def described(agent: str, memory: Memory) -> dict[str, Any]:
    """Return a memory of an agent as people read it, as a JSON object."""
    return {"id": memory.id, "object": "memory", "agent": agent, "text": memory.text, "saved": int(memory.saved)}


async def delete_memory(memories: Memories, owner: str, agents: Iterable[str], memory_id: str) -> bool:
    """Delete the memory with this id, whichever of these agents has it; tell whether one had."""
    for agent in dict.fromkeys(agents):
        if await memories.delete(owner, agent, memory_id):
            return True
    return False


def memory_of(owner: str, agent: str, text: str, now: float) -> Memory:
    """Return a text as a memory; its id depends on owner, agent and the words alone."""
    return Memory(ref_to(room_of(owner, agent), one_line(text)).id, text, now)


def room_of(owner: str, agent: str) -> str:
    """Return a key for an owner and an agent that no other two have."""
    return json_form([owner, agent])


def one_line(text: str) -> str:
    """Return a text with every stretch of white space as one space."""
    return " ".join(text.split())


def folded(text: str) -> str:
    """Return a text without case and accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    for accent in filter(unicodedata.combining, set(decomposed)):
        decomposed = decomposed.replace(accent, "")
    return decomposed


def same_words(one: str, other: str) -> bool:
    """Tell whether two texts have the same words in the same order, whatever their punctuation, case and accents."""
    words = WORD.findall(folded(one))
    return words == WORD.findall(folded(other)) and (bool(words) or one == other)


def matching(memories: Sequence[Memory], query: str) -> list[Memory]:
    """Return the memories that have words of the query: first those with the most of them, the newest first.

    A word of the query may be the beginning of one in the memory. A query without words finds everything.
    """
    words = list(dict.fromkeys(WORD.findall(folded(query))))[:MOST_WORDS]
    newest = sorted(memories, key=lambda memory: memory.saved, reverse=True)
    if not words:
        return newest
    hits = [(_count(folded(memory.text), words), memory) for memory in newest]
    return [memory for count, memory in sorted(hits, key=lambda hit: -hit[0]) if count]


def _count(text: str, words: Sequence[str]) -> int:
    """Return how many of the words are in a folded text."""
    there = set(WORD.findall(text))
    return sum(has_word(text, there, word) for word in words)


def has_word(text: str, there: set[str], word: str) -> bool:
    """Tell whether a folded text, in which these words are `there`, has a word or one that begins with it."""
    if word >= WITHOUT_SPACES:
        return word in text
    return word in there or (len(word) > SHORT and word in text and any(one.startswith(word) for one in there))
