"""Compactions of earlier requests, found again by what a client sends, and kept for the requests to come."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Final
from weakref import WeakValueDictionary

from elbowroom.context.ledger import Chain, Entry, LedgerRows
from elbowroom.context.transcript import Message

log = logging.getLogger(__name__)
CLOSING_SECONDS: Final = 10.0


class Ledger:
    """All that this server remembers of compactions; `rows` keep it beyond the server's own life.

    It is a help and never a hindrance: where rows cannot be read or written, the log says so and chats go on.
    """

    def __init__(self, rows: LedgerRows) -> None:
        self._rows = rows
        self._unwritten: dict[str, Entry] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def recalled(self, chain: Chain) -> AsyncIterator[tuple[int, Entry]]:
        """Yield the entries for beginnings of a conversation with their places in its chain, the longest first."""
        known = await self._known()
        for place in reversed(range(len(chain.keys))):
            key = chain.keys[place]
            if (entry := self._unwritten.get(key)) is None and key in known:
                entry = await self._found(key)
            if entry is not None:
                yield place, entry

    def keep(self, entry: Entry, made_from: Sequence[Message]) -> None:
        """Keep an entry that was made from these messages; the next request finds it, written already or not."""
        self._unwritten[entry.key] = entry
        task = asyncio.get_running_loop().create_task(self._write(entry, made_from))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def lock(self, key: str) -> asyncio.Lock:
        """Return what lets only one request at a time compact the conversation that this is the last key of."""
        return self._locks.setdefault(key, asyncio.Lock())

    async def aclose(self) -> None:
        """Wait until everything is written, or until that has taken too long."""
        if self._writing:
            await asyncio.wait(self._writing, timeout=CLOSING_SECONDS)

    async def _known(self) -> Collection[str]:
        try:
            return await self._rows.keys()
        except Exception:
            log.exception("The compactions of earlier requests cannot be read; they may be made once more.")
            return ()

    async def _found(self, key: str) -> Entry | None:
        try:
            entries = await self._rows.find([key])
        except Exception:
            log.exception("The compaction of an earlier request cannot be read; it may be made once more.")
            return None
        return entries[0] if entries else None

    async def _write(self, entry: Entry, made_from: Sequence[Message]) -> None:
        try:
            await self._rows.save(entry, made_from)
        except Exception:
            log.exception("A compaction could not be kept; a later request may have to make it once more.")
        finally:
            if self._unwritten.get(entry.key) is entry:
                del self._unwritten[entry.key]
