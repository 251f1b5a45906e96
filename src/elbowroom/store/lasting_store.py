"""The database as chats need it: there from the start, and never in their way."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from elbowroom.context.observations import Observations
from elbowroom.store.errors import UNKNOWN, StoreDamaged, StoreUnavailable
from elbowroom.store.tracked_tasks import TrackedTasks

if TYPE_CHECKING:
    from elbowroom.store.sql_store import SqlStore

log = logging.getLogger(__name__)
Item = TypeVar("Item")
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
    """In seconds: how long the first requests wait for the store to open, then until it is tried again, and the end."""

    opening: float = 5.0
    again: float = 15.0
    closing: float = 10.0


class Backlog(Protocol[Item]):
    """What of one kind is not written yet; `plural` is how the log calls such things."""

    plural: str

    def waiting(self) -> Sequence[Item]:
        """Return what is not written, in the order in which it shall be."""
        ...

    async def write(self, store: "SqlStore", item: Item) -> None:
        """Write one. Raises StoreUnavailable."""
        ...

    def written(self, item: Item) -> None:
        """Take in that one has been written."""
        ...

    def refused(self, item: Item) -> None:
        """Take in that one could not be written: it waits behind all others, in case only this one is refused."""
        ...

    def trim(self) -> None:
        """Let go what is too much to be held."""
        ...


class LastingStore:
    """A store that is opened with its first use, and again a while after it failed.

    Nothing here raises. What is not written waits in the backlog of its kind until it can be. The log says once that
    the store fails, and once that it works again, and so does `news`; `name` is how the log calls it.
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
        self._sql: SqlStore | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._waits_until: float | None = None
        self._next_try = 0.0
        self._is_failing = False
        self._is_closed = False
        self._news: dict[str, None] = {}

    def add(self, backlog: Backlog[Any]) -> None:
        """Write this backlog too, as soon as that is possible."""
        self._backlogs.append((backlog, asyncio.Lock()))

    def open_soon(self) -> None:
        """Begin to open the database, so that the first request waits less for it."""
        self._begin_to_open()

    @property
    def is_failing(self) -> bool:
        """Tell whether what is to be kept is only in memory, since the database does not work."""
        return self._is_failing

    @property
    def is_closed(self) -> bool:
        """Tell whether nothing is written any more."""
        return self._is_closed

    def news(self) -> list[str]:
        """Return what has happened to the store that a person should read about, each sentence once."""
        told = list(self._news)
        self._news.clear()
        return told

    async def opened(self) -> "SqlStore | None":
        """Return the database's rows, or None where it does not open, or not soon enough."""
        self._begin_to_open()
        now = time.monotonic()
        if self._waits_until is None:
            self._waits_until = now + self._patience.opening
        if self._opening and now < self._waits_until:
            _, pending = await asyncio.wait([self._opening], timeout=self._waits_until - now)
            if pending and self._waits_until:
                self._waits_until = 0.0
                log.warning("The store %s takes long to open; chats go on without it until then.", self._name)
        return self._sql

    async def write(self, backlog: Backlog[Any]) -> None:
        """Write what waits in one of the backlogs, unless writing has just failed."""
        await self.opened()
        await self._write(backlog, next(turn for other, turn in self._backlogs if other is backlog))

    def write_later(self) -> None:
        """Begin to write all that waits, where that may be tried again."""
        for backlog, turn in self._backlogs:
            if backlog.waiting() and self._may_try() and not turn.locked():
                _ = self.tasks.start(self._write(backlog, turn))

    def failed(self, sql: "SqlStore", error: StoreUnavailable) -> None:
        """Take in that reading failed: the database is closed, and opened and checked anew with the next try."""
        if self._sql is sql:
            self._fails(error)
            self._sql = None
            self._closing = self.tasks.start(sql.aclose())

    async def aclose(self) -> None:
        """Try once more to write what is not written, finish what is under way, and close the database."""
        self._next_try = 0.0
        if any(backlog.waiting() for backlog, _ in self._backlogs):
            self._begin_to_open()
            for backlog, turn in self._backlogs:  # behind what is being written now, for there may be more by now
                _ = self.tasks.start(self._write(backlog, turn, even_if_failing=True))
        await self.tasks.finished(self._patience.closing)
        self._is_closed = True
        for backlog, _ in self._backlogs:
            if lost := len(backlog.waiting()):
                log.warning(
                    "The store %s could not be written: %s that are lost: %d.", self._name, backlog.plural, lost
                )
        if self._sql:
            await self._sql.aclose()
            self._sql = None

    def _begin_to_open(self) -> None:
        if self._sql is None and self._opening is None and self._may_try():
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
            if self._is_closed:
                await sql.aclose()
            else:
                self._sql = sql
                for backlog, turn in self._backlogs:
                    _ = self.tasks.start(self._write(backlog, turn))
        finally:
            self._opening = None

    async def _write(self, backlog: Backlog[Any], turn: asyncio.Lock, *, even_if_failing: bool = False) -> None:
        async with turn:
            if self._sql and (even_if_failing or self._may_try()):
                await self._write_to(self._sql, backlog)
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
                self._fails(error)
                return
            self._observations.committed(time.monotonic() - began)
            backlog.written(item)
        self._works()

    def _may_try(self) -> bool:
        return not self._is_closed and time.monotonic() >= self._next_try

    def _works(self) -> None:
        if self._is_failing and not any(backlog.waiting() for backlog, _ in self._backlogs):
            self._is_failing = False
            log.info("The store %s works again.", self._name)
            self._tell(WORKS_AGAIN)

    def _fails(self, error: Exception) -> None:
        self._next_try = time.monotonic() + self._patience.again
        self._observations.store_failed()
        if not self._is_failing:
            self._is_failing = True
            log.error(
                "The store %s does not work: %s. Chats go on; what is to be kept is in memory until it works again.",
                self._name,
                error,
            )
            self._tell(FAILS.format(why=error.plainly if isinstance(error, StoreUnavailable) else UNKNOWN))

    def _tell(self, sentence: str) -> None:
        self._news.pop(sentence, None)  # what happens again and again is told once, as the last thing that happened
        self._news[sentence] = None
