"""Writes in the background: what cannot be written waits in memory, within bounds, until it can be."""

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from elbowroom.context.observations import Observations
from elbowroom.store.base import UNKNOWN, StoreBusy, StoreDamaged, StoreUnavailable, TrackedTasks
from elbowroom.store.lock import SECRET_BYTES

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

log = logging.getLogger(__name__)
Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)
Answer = TypeVar("Answer")
FAILS: Final = (
    "Conversations cannot be saved at the moment: {why}. The chat goes on, and what is new is kept in memory until "
    "that works again."
)
WORKS_AGAIN: Final = "Conversations are saved again, and so is what had been kept in memory."
DAMAGED: Final = (
    "The database of conversations was damaged. It is kept as {aside} in its folder, and a new one has been begun, "
    "without what was in the old one."
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds is waited.

    While the store is being opened, `first_words` of answers wait so that they are written in time, and all together;
    requests that need it `opening`, all together; and whoever is `asking` what is kept, each. A store that failed is
    tried `again`, and `closing` is the end's.
    """

    first_words: float = 10.0
    opening: float = 5.0
    asking: float = 2.0
    again: float = 15.0
    closing: float = 10.0


class Backlog(Protocol[Item]):
    """Items of one kind that are not written yet; `plural` is their name in the log."""

    plural: str

    def waiting(self) -> Sequence[Item]:
        """Return the items that are not written, in the order in which they are to be."""

    async def write(self, store: "SqlStore", item: Item) -> None:
        """Write an item. Raises StoreUnavailable."""

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


class WriteBehindStore:
    """A store that is opened with its first use, and again a while after it failed.

    `current` are the database's rows, None where it is not open; while it `is_failing`, new rows are only in memory.
    Once it `is_closed`, nothing is written any more. Nothing here raises. Items that are not written wait in the
    backlog of their kind. The log says once that the store fails, and once that it works again, and so does `news`;
    `name` is its name in the log.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Awaitable["SqlStore"]],
        patience: Patience | None = None,
        observations: Observations | None = None,
    ) -> None:
        self.tasks = TrackedTasks()
        self._name = name
        self._begin = begin
        self._patience = patience or Patience()
        self._observations = observations or Observations()
        self._backlogs: list[tuple[Backlog[Any], asyncio.Lock]] = []
        self._told_of_opening: list[Callable[[SqlStore], object]] = []
        self.current: SqlStore | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._waits_until: float | None = None
        self._holds_until: float | None = None
        self._next_try = 0.0
        self._trying: asyncio.TimerHandle | None = None
        self.is_failing = False
        self.is_closed = False
        self._news: dict[str, None] = {}

    def add(self, backlog: Backlog[Any]) -> None:
        """Write this backlog too, as soon as that is possible."""
        self._backlogs.append((backlog, asyncio.Lock()))

    def when_open(self, tell: Callable[["SqlStore"], object]) -> None:
        """Have this called with the database's rows whenever it has been opened."""
        self._told_of_opening.append(tell)

    @property
    def is_opening(self) -> bool:
        """Tell whether the database is being opened, for the first time or again."""
        return self._opening is not None

    @property
    def is_durable(self) -> bool:
        """Tell whether rows that are written outlive the process."""
        return self.current is not None and self.current.is_durable

    def news(self) -> list[str]:
        """Return sentences for people about what has happened to the store, each once."""
        told = list(self._news)
        self._news.clear()
        return told

    async def opened(self) -> "SqlStore | None":
        """Return the database's rows, or None where it does not open, or not soon enough."""
        self.open_soon()
        now = time.monotonic()
        if self._waits_until is None:
            self._waits_until = now + self._patience.opening
        if self._opening and now < self._waits_until:
            _, pending = await asyncio.wait([self._opening], timeout=self._waits_until - now)
            if pending and self._waits_until:
                self._waits_until = 0.0
                log.warning("The store %s takes long to open; chats go on without it until then.", self._name)
        return self.current

    async def ask(self, question: Callable[["SqlStore"], Awaitable[Answer]]) -> Answer | None:
        """Return what the database answers; None where it does not open soon enough, or fails, or is held too long."""
        sql = await self.opened()
        if sql is None:
            return None
        try:
            return await question(sql)
        except StoreBusy as error:
            log.debug("Another server holds what this one needs: %s", error)
        except StoreUnavailable as error:
            self.failed(sql, error)
        return None

    async def secret(self) -> bytes:
        """Return the secret that the database keeps; one that is forgotten where it cannot be asked."""
        try:
            if sql := await self.opened():
                return await sql.secret()
        except StoreUnavailable as error:
            log.warning("The secret of compactions cannot be read from the store %s: %s", self._name, error)
        return secrets.token_bytes(SECRET_BYTES)

    async def opening_ended(self) -> None:
        """Wait until the database is open, or cannot be opened, however long that takes."""
        self.open_soon()
        if self._opening:
            await asyncio.wait([self._opening])

    async def ready(self, seconds: float | None = None) -> bool:
        """Wait a while where the database is being opened; tell whether that has ended, well or badly."""
        self.open_soon()
        if self._opening:
            await asyncio.wait([self._opening], timeout=self._patience.asking if seconds is None else seconds)
        return self._opening is None

    async def ready_for_words(self) -> None:
        """Wait for the first opening, so that words are written in time; all callers together wait a short while."""
        if self._opening and not self.is_failing:
            now = time.monotonic()
            self._holds_until = self._holds_until or now + self._patience.first_words
            await asyncio.wait([self._opening], timeout=max(0.0, self._holds_until - now))

    async def write(self, backlog: Backlog[Any]) -> None:
        """Write the items of a backlog, unless writing has just failed."""
        await self.opened()
        await self._write(backlog, next(turn for other, turn in self._backlogs if other is backlog))

    def write_later(self) -> None:
        """Begin to write all backlogs again after a failure, where that may be tried by now."""
        for backlog, turn in self._backlogs if self.is_failing else ():
            if backlog.waiting() and self._may_try() and not turn.locked():
                _ = self.tasks.start(self._write(backlog, turn))

    def failed(self, sql: "SqlStore", error: StoreUnavailable) -> None:
        """Note that reading failed: the database is closed, and opened and checked anew with the next try."""
        if self.current is sql and not self.is_closed:
            self._fails(error)
            self.current = None
            self._closing = self.tasks.start(sql.aclose())

    def _open_anew(self, sql: "SqlStore", error: StoreUnavailable) -> None:
        """Close the database and open it at once."""
        self.failed(sql, error)
        self._next_try = 0.0
        self.open_soon()

    async def aclose(self) -> None:
        """Try once more to write what is not written, finish what is under way, and close the database."""
        self._next_try = 0.0
        if any(backlog.waiting() for backlog, _ in self._backlogs):
            self.open_soon()
            for backlog, turn in self._backlogs:  # after what is being written now, for there may be more by now
                _ = self.tasks.start(self._write(backlog, turn, even_if_failing=True))
        await self.tasks.finished(self._patience.closing)
        self.is_closed = True
        for backlog, _ in self._backlogs:
            if lost := len(backlog.waiting()):
                log.warning(
                    "The store %s could not be written: %s that are lost: %d.", self._name, backlog.plural, lost
                )
        if self.current:
            await self.current.aclose()
            self.current = None

    def open_soon(self) -> None:
        """Begin to open the database, unless it is open or that has just failed."""
        if self.current is None and self._opening is None and self._may_try():
            self._opening = self.tasks.start(self._open())

    async def _open(self) -> None:
        try:
            if self._closing:
                await self._closing
            sql = await self._begin()
        except Exception as error:  # noqa: BLE001  # chats go on, whatever is wrong with the store
            self._fails(error)
        else:
            if sql.set_aside:
                self._tell(DAMAGED.format(aside=sql.set_aside.name))
            if self.is_closed:
                await sql.aclose()
            else:
                self.current = sql
                sql.check_soon(partial(self._open_anew, sql))
                for tell in self._told_of_opening:
                    tell(sql)
                for backlog, turn in self._backlogs:
                    _ = self.tasks.start(self._write(backlog, turn))
        finally:
            self._opening = None

    async def _write(self, backlog: Backlog[Any], turn: asyncio.Lock, *, even_if_failing: bool = False) -> None:
        async with turn:
            if self.current and (even_if_failing or self._may_try()):
                await self._write_to(self.current, backlog)
            backlog.trim()

    async def _write_to(self, sql: "SqlStore", backlog: Backlog[Any]) -> None:
        for item in backlog.waiting():
            began = time.monotonic()
            try:
                await backlog.write(sql, item)
            except StoreDamaged as error:
                self.failed(sql, error)
                return
            except StoreUnavailable as error:
                backlog.refused(item)
                if sql.can_be_written_again():
                    self._open_anew(sql, error)
                else:
                    self._fails(error)
                return
            self._observations.committed(time.monotonic() - began)
            backlog.written(item)
        self._works()

    def _may_try(self) -> bool:
        return not self.is_closed and time.monotonic() >= self._next_try

    def _works(self) -> None:
        if self.is_failing and not any(backlog.waiting() for backlog, _ in self._backlogs):
            self.is_failing = False
            log.info("The store %s works again.", self._name)
            self._tell(WORKS_AGAIN)

    def _try_again(self) -> None:
        """Open the database and write what waits, though nobody asks for anything."""
        self._next_try = 0.0
        self.open_soon()
        self.write_later()

    def _fails(self, error: Exception) -> None:
        self._next_try = time.monotonic() + self._patience.again
        if self._trying:
            self._trying.cancel()
        self._trying = asyncio.get_running_loop().call_later(self._patience.again, self._try_again)
        self._observations.store_failed()
        if not self.is_failing:
            self.is_failing = True
            log.error(
                "The store %s does not work: %s. Chats go on; what is to be kept is in memory until it works again.",
                self._name,
                error,
            )
            self._tell(FAILS.format(why=error.plainly if isinstance(error, StoreUnavailable) else UNKNOWN))

    def _tell(self, sentence: str) -> None:
        self._news.pop(sentence, None)  # what happens again and again is told once, as the last thing that happened
        self._news[sentence] = None
