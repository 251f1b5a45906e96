"""What waits in memory until it is written, within bounds."""

import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from elbowroom.store.unwritten import Unwritten

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class Backlog(Protocol[Item]):
    """Items of one kind that are not written yet; `plural` is their name in the log."""

    plural: str

    def waiting(self) -> Sequence[Item]:
        """Return the items that are not written, in the order in which they are to be."""

    async def write(self, store: "SqlStore", item: Item) -> None:
        """Write an item. Raises StoreUnavailable."""

    def to_keep(self) -> Sequence[Unwritten]:
        """Return what waits, for a file in which it outlives this process."""

    async def write_left(self, store: "SqlStore", server: str, item: Any) -> None:
        """Write an item that a server of this id has left in such a file. Raises StoreUnavailable."""

    def written(self, item: Item) -> None:
        """Note that an item has been written."""

    def refused(self, item: Item) -> None:
        """Note that an item could not be written: it waits after all others, in case only this one is refused."""

    def trim(self) -> None:
        """Drop items that are too many to be held."""


@dataclass(frozen=True, slots=True)
class Held(Generic[Key, Item]):
    """An item under its key, its size in bytes, and when it was put there by the clock of the backlog."""

    key: Key
    item: Item
    size: int
    since: float


class Waiting(Generic[Key, Item]):
    """A backlog of items with keys, of which a later one takes the place of an earlier one.

    Beyond the bounds those go that were used longest ago, but none for `safe_seconds` after it was put: the answer
    that put it may still need it.
    """

    def __init__(
        self,
        plural: str,
        write: Callable[["SqlStore", Item], Awaitable[None]],
        *,
        most: int = 10_000,
        most_bytes: float = float("inf"),
        safe_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.plural = plural
        self._write = write
        self._most = most
        self._most_bytes = most_bytes
        self._safe_seconds = safe_seconds
        self._clock = clock
        self._held: dict[Key, Held[Key, Item]] = {}  # in the order of last use
        self._size = 0

    def put(self, key: Key, item: Item, size: int = 0) -> None:
        """Let an item wait, in place of one with the same key."""
        if before := self._held.get(key):
            self.written(before)
        self._held[key] = Held(key, item, size, self._clock())
        self._size += size

    def get(self, key: Key) -> Item | None:
        """Return the item that waits under a key; it counts as used now."""
        if held := self._held.pop(key, None):
            self._held[key] = held
        return held.item if held else None

    def renew(self, key: Key) -> bool:
        """Put the item that waits under a key once more; tell whether there is one."""
        if held := self._held.get(key):
            self.put(key, held.item, held.size)
        return held is not None

    def keys(self) -> set[Key]:
        """Return the keys of all items that wait."""
        return set(self._held)

    def items(self) -> list[Item]:
        """Return all items that wait, the one used longest ago first."""
        return [held.item for held in self._held.values()]

    def waiting(self) -> Sequence[Held[Key, Item]]:
        """Return what waits, the one used longest ago first."""
        return list(self._held.values())

    async def write(self, store: "SqlStore", item: Held[Key, Item]) -> None:
        """Write an item. Raises StoreUnavailable."""
        await self._write(store, item.item)

    def to_keep(self) -> Sequence[Unwritten]:
        """Return what waits, for a file in which it outlives this process."""
        return [Unwritten(self.plural, (held.key, held.since), held.item) for held in self._held.values()]

    async def write_left(self, store: "SqlStore", server: str, item: Any) -> None:
        """Write an item that a server has left in such a file. Raises StoreUnavailable."""
        await self._write(store, item)

    def written(self, item: Held[Key, Item]) -> None:
        """Let an item go, unless another has taken its place."""
        if self._held.get(item.key) is item:
            del self._held[item.key]
            self._size -= item.size

    def refused(self, item: Held[Key, Item]) -> None:
        """Let an item wait after all others, unless another has taken its place."""
        if self._held.get(item.key) is item:
            self.get(item.key)

    def trim(self) -> None:
        """Drop items until the rest is within the bounds, or safe."""
        unsafe = self._clock() - self._safe_seconds
        for held in self.waiting():
            if len(self._held) <= self._most and self._size <= self._most_bytes:
                return
            if held.since <= unsafe:
                self.written(held)
