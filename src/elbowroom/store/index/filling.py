"""Fills the index of conversations from the database in the background, in small pieces and the newest first."""

import asyncio
import time
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol

from elbowroom.store.index.conversation_index import ConversationIndex
from elbowroom.store.index.keys import IndexedConversation

MOST_AT_ONCE: Final = 25
KEYS_AT_ONCE: Final = 500
REST: Final = 3
"""Filling rests so many times as long as reading a piece took, so that chats and the writer have the rest."""
LONGEST_REST: Final = 0.25  # seconds


class StoredConversations(Protocol):
    """The part of the database that the index is filled from. Methods raise StoreUnavailable."""

    async def indexed(self, after: tuple[float, str] | None) -> list[IndexedConversation]:
        """Return some conversations with their keys, those used last first, after the last one of the page before."""

    async def indexed_again(self, ids: Sequence[str]) -> list[IndexedConversation]:
        """Return these conversations with their keys, as far as they are there."""


async def fill(index: ConversationIndex, stored: StoredConversations) -> None:
    """Read until the index has all that it may have, and what is to be read again, or until it forgets all.

    What is noted has to be in the database before this begins. Raises StoreUnavailable.
    """
    generation, after = index.generation, None
    while index.generation == generation and (index.wants_more or index.to_read):
        began = time.monotonic()
        some = list(islice(index.to_read, MOST_AT_ONCE))
        found = await (stored.indexed_again(some) if some else stored.indexed(after))
        if not some:
            after = (found[-1].used, found[-1].id) if found else None
        for one in found:
            if index.generation == generation:
                await _take(index, one)
        if index.generation != generation:  # all was forgotten meanwhile
            return
        for gone in set(some).difference(one.id for one in found):
            index.is_gone(gone)
        is_end = not some and not found
        if is_end or index.is_full:
            index.take_no_more(has_all=is_end)
        await asyncio.sleep(min(LONGEST_REST, REST * (time.monotonic() - began)))


async def _take(index: ConversationIndex, read: IndexedConversation) -> None:
    record = index.begin_to_take(read)
    if record is None:
        return
    for at in range(0, max(len(read.keys), len(read.unanswered)), KEYS_AT_ONCE):
        some = slice(at, at + KEYS_AT_ONCE)
        index.put(record, read.keys[some], read.unanswered[some])
        await asyncio.sleep(0)
    index.have_taken(record)
