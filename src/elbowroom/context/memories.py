"""What agents remember beyond a conversation."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from elbowroom.context.canonical import json_form
from elbowroom.context.outputs import ref_to


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


WORD: Final = re.compile(r"\w+")
MOST_WORDS: Final = 50
SHORT: Final = 2
"""Words of so many letters at most are looked for whole: "in" is not the beginning of everything."""
WITHOUT_SPACES: Final = "\u2e80"
"""From this character on scripts write words without spaces between them: these may begin anywhere."""


def one_line(text: str) -> str:
    """Return a text with every stretch of white space as one space."""
    return " ".join(text.split())


def folded(text: str) -> str:
    """Return a text without case and accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(letter for letter in decomposed if not unicodedata.combining(letter))


def same_words(one: str, other: str) -> bool:
    """Tell whether two texts have the same words in the same order; punctuation, case and accents do not count."""
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
    """Return how many of the words a folded text has."""
    there = set(WORD.findall(text))
    return sum(
        word in there
        or (word in text if word >= WITHOUT_SPACES else len(word) > SHORT and any(w.startswith(word) for w in there))
        for word in words
    )
