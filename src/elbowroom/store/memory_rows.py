"""The rows of the compaction ledger in memory, within bounds."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.ledger import Archived, Entry
from elbowroom.context.transcript import Message
from elbowroom.store.message_json import written

MOST_ENTRIES: Final = 1000
MOST_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Held:
    """An entry with the messages it was made from, and how many bytes these are as JSON."""

    entry: Entry
    archive: tuple[Archived, ...]
    size: int


class MemoryLedgerRows:
    """`LedgerRows` that last as long as this object; beyond its bounds the entries go that nobody used for longest."""

    def __init__(self, most_entries: int = MOST_ENTRIES, most_bytes: int = MOST_BYTES) -> None:
        self._most_entries = most_entries
        self._most_bytes = most_bytes
        self._held: dict[str, Held] = {}  # in the order of last use
        self._size = 0

    async def keys(self) -> Collection[str]:
        """Return the keys of all entries, as a view that is always up to date."""
        return self._held.keys()

    async def find(self, keys: Sequence[str]) -> list[Entry]:
        """Return the entries with these keys, which count as used now."""
        return [held.entry for key in dict.fromkeys(keys) if (held := self.used(key))]

    async def save(self, entry: Entry, archive: Sequence[Archived]) -> None:
        """Keep an entry in place of one with the same key, and the messages it was made from.

        What JSON cannot hold is not kept, with a warning in the log, and neither is what is larger than the bounds.
        """
        if content := written(entry, archive):
            self.put(Held(entry, tuple(archive), content.size))
            self.trim()

    async def archived(self, key: str) -> list[Message]:
        """Return the messages that a key covers as the client sent them, in order, all but the system's.

        Empty where none are kept.
        """
        nodes = {node.key: node for held in self._held.values() for node in held.archive}
        messages: list[Message] = []
        while node := nodes.pop(key, None):
            messages.append(node.message)
            key = node.parent
        return messages[::-1]

    async def aclose(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._size = 0

    def all(self) -> list[Held]:
        """Return everything that is held, what nobody used for longest first."""
        return list(self._held.values())

    def used(self, key: str) -> Held | None:
        """Return what is held under a key, which counts as used now."""
        if held := self._held.pop(key, None):
            self._held[key] = held
        return held

    def put(self, held: Held) -> None:
        """Hold an entry in place of one with the same key, whatever the bounds."""
        if before := self._held.get(held.entry.key):
            self.drop(before)
        self._held[held.entry.key] = held
        self._size += held.size

    def drop(self, held: Held) -> None:
        """Let go what is held, unless another has taken its place."""
        if self._held.get(held.entry.key) is held:
            del self._held[held.entry.key]
            self._size -= held.size

    def trim(self) -> None:
        """Go back within the bounds."""
        while len(self._held) > self._most_entries or self._size > self._most_bytes:
            self.drop(next(iter(self._held.values())))
