"""What waits in memory until it is written, within bounds."""

import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from elbowroom.context import conversation as kinds
from elbowroom.store.changes import KEPT_LONGEST, Batch, KeptChange, TurnDeleted, Unheard, rough_size
from elbowroom.store.unwritten import Unwritten

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

log = logging.getLogger(__name__)
MOST_BYTES: Final = 64 * 2**20
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


class Backlog(Protocol[Item]):
    """Items of one kind that are not written yet; `plural` is their name in the log."""

    plural: str

    def waiting(self) -> Sequence[Item]:
        """Return the items that are not written, in the order in which they are to be."""

    async def write(self, store: "SqlStore", item: Item, /) -> None:
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

    They are `held` by their keys. Beyond the bounds those go that were used longest ago, but none for `safe_seconds`
    after it was put: the answer that put it may still need it.
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
        self.held: dict[Key, Held[Key, Item]] = {}  # in the order of last use
        self._size = 0

    def put(self, key: Key, item: Item, size: int = 0) -> None:
        """Let an item wait, in place of one with the same key."""
        if before := self.held.get(key):
            self.written(before)
        self.held[key] = Held(key, item, size, self._clock())
        self._size += size

    def get(self, key: Key) -> Item | None:
        """Return the item that waits under a key; it counts as used now."""
        if held := self.held.pop(key, None):
            self.held[key] = held
        return held.item if held else None

    def renew(self, key: Key) -> bool:
        """Put the item that waits under a key once more; tell whether there is one."""
        if held := self.held.get(key):
            self.put(key, held.item, held.size)
        return held is not None

    def items(self) -> list[Item]:
        """Return all items that wait, the one used longest ago first."""
        return [held.item for held in self.held.values()]

    def waiting(self) -> Sequence[Held[Key, Item]]:
        """Return what waits, the one used longest ago first."""
        return list(self.held.values())

    async def write(self, store: "SqlStore", item: Held[Key, Item]) -> None:
        """Write an item. Raises StoreUnavailable."""
        await self._write(store, item.item)

    def to_keep(self) -> Sequence[Unwritten]:
        """Return what waits, for a file in which it outlives this process."""
        return [Unwritten(self.plural, (held.key, held.since), held.item) for held in self.held.values()]

    async def write_left(self, store: "SqlStore", server: str, item: Any) -> None:
        """Write an item that a server has left in such a file. Raises StoreUnavailable."""
        await self._write(store, item)

    def written(self, item: Held[Key, Item]) -> None:
        """Let an item go, unless another has taken its place."""
        if self.held.get(item.key) is item:
            del self.held[item.key]
            self._size -= item.size

    def refused(self, item: Held[Key, Item]) -> None:
        """Let an item wait after all others, unless another has taken its place."""
        if self.held.get(item.key) is item:
            self.get(item.key)

    def trim(self) -> None:
        """Drop items until the rest is within the bounds, or safe."""
        unsafe = self._clock() - self._safe_seconds
        for held in self.waiting():
            if len(self.held) <= self._most and self._size <= self._most_bytes:
                return
            if held.since <= unsafe:
                self.written(held)


class WaitingChanges:
    """A backlog of changes. Beyond the bounds the turns go that began first, each as a whole; `lose` is called then.

    `new` are in no batch yet, `growing` is how often replies grew in the last batch, at least 1, and `let_go` how many
    changes went. `since` is when the first of what is in no batch yet was noted, in seconds of the monotonic clock, or
    None.
    """

    plural = "batches of what was said in conversations"

    def __init__(
        self,
        write: Callable[["SqlStore", Batch], Coroutine[Any, Any, None]],
        lose: Callable[[], object],
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.new: list[KeptChange] = []
        self.since: float | None = None
        self.growing = 1
        self.let_go = 0
        self.write = write
        self._lose = lose
        self._most_bytes = most_bytes
        self._handing_on: dict[Callable[[], None], None] = {}
        self._batches: list[Batch] = []
        self._sizes: dict[int, int] = {}
        self._numbered = 0

    @property
    def oldest(self) -> float | None:
        """Return when the first of all changes that wait was noted, None where none waits."""
        return self._batches[0].since if self._batches else self.since

    def note(self, changes: Iterable[KeptChange]) -> None:
        """Let changes wait."""
        self.new.extend(changes)
        if self.since is None:
            self.since = time.monotonic()

    def note_when_writing(self, hand_on: Callable[[], None]) -> None:
        """Call this before the next batch is made, so that it notes what has come until then."""
        self._handing_on[hand_on] = None
        if self.since is None:
            self.since = time.monotonic()

    def waiting(self) -> Sequence[Batch]:
        """Return all batches that wait, in order; new changes become a batch of their own."""
        handing_on, self._handing_on = self._handing_on, {}
        for hand_on in handing_on:
            hand_on()
        since, self.since = self.since, None
        if self.new and since is not None:
            self._numbered += 1
            self._batches.append(Batch(self._numbered, tuple(self.new), since))
            self.growing = max(1, list(map(type, self.new)).count(kinds.ReplyGrew))
            self.new = []
        return list(self._batches)

    def to_keep(self) -> Sequence[Unwritten]:
        """Return the batches that wait, for a file in which they outlive this process."""
        return [Unwritten(self.plural, batch.number, batch) for batch in self.waiting()]

    async def write_left(self, store: "SqlStore", server: str, item: Batch) -> None:
        """Write a batch that a server has left in such a file, unless it had written it. Raises StoreUnavailable."""
        await store.conversations.write(item.changes, item.number, server)

    def written(self, item: Batch) -> None:
        """Let a batch go that has been written."""
        self._batches.remove(item)
        self._sizes.pop(item.number, None)

    def refused(self, item: Batch) -> None:
        """Leave a batch in its place: later ones go on with what is in it."""

    def waits(self, batches: Sequence[Batch]) -> bool:
        """Tell whether one of these still waits."""
        numbers = {batch.number for batch in self._batches}
        return any(batch.number in numbers for batch in batches)

    def trim(self) -> None:
        """Go back within the bounds, with a warning in the log where something is lost."""
        for batch in self._batches:
            if batch.number not in self._sizes:
                self._sizes[batch.number] = sum(map(rough_size, batch.changes))
        if sum(self._sizes.values()) <= self._most_bytes:
            return
        before = sum(len(batch.changes) for batch in self._batches)
        for stage in (_of_turns, _but_the_queue, lambda _: True):
            self._let_go_oldest(stage)
        lost = before - sum(len(batch.changes) for batch in self._batches)
        self.let_go += lost
        log.warning("Too much waits to be written: of conversations %d changes, the oldest, are lost.", lost)
        self._lose()

    def _let_go_oldest(self, may_go: Callable[[KeptChange], bool]) -> None:
        """Drop such changes, each turn as a whole, until half of the bounds is free."""
        too_much = sum(self._sizes.values()) - self._most_bytes // 2
        sizes: dict[str, int] = {}
        owners = list(_with_owners(change for batch in self._batches for change in batch.changes))
        for change, owner in owners:
            if may_go(change):
                sizes[owner] = sizes.get(owner, 0) + rough_size(change)
        going: set[str] = set()
        for owner, size in sizes.items():
            if too_much > 0:
                going.add(owner)
                too_much -= size
        left = iter([not (may_go(change) and owner in going) for change, owner in owners])
        kept = [replace(batch, changes=tuple(filter(lambda _: next(left), batch.changes))) for batch in self._batches]
        self._batches = [batch for batch in kept if batch.changes]
        self._sizes = {batch.number: sum(map(rough_size, batch.changes)) for batch in self._batches}


def _of_turns(change: KeptChange) -> bool:
    return not isinstance(change, (*KEPT_LONGEST, kinds.Heard, kinds.CompactionNoted))


def _but_the_queue(change: KeptChange) -> bool:
    return not isinstance(change, KEPT_LONGEST)


def _with_owners(changes: Iterable[KeptChange]) -> Iterable[tuple[KeptChange, str]]:
    """Yield each change with the name of its group: its turn, or itself."""
    turn_of: dict[str, str] = {}
    for number, change in enumerate(changes):
        if isinstance(change, kinds.ReplyBegun):
            turn_of[change.message] = change.turn
        if isinstance(change, kinds.ReplyGrew | kinds.ReplyCalled | kinds.ReplyEnded):
            yield change, turn_of.get(change.message, change.message)
        elif isinstance(change, kinds.QueueTaken | TurnDeleted | Unheard):
            yield change, f"{number}"
        else:
            yield change, getattr(change, "turn", f"{number}")
