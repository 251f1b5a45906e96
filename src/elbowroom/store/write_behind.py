"""Writes in the background: what cannot be written waits in memory, within bounds, until it can be."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from pickle import PickleError
from typing import TYPE_CHECKING, Any, Final, TypeVar

from elbowroom.context.observations import Observations
from elbowroom.errors import in_own_words, what_failed
from elbowroom.store.backlog import Backlog
from elbowroom.store.base import UNKNOWN, StoreBusy, StoreDamaged, StoreUnavailable, TrackedTasks
from elbowroom.store.identity import StoreReplaced
from elbowroom.store.unwritten import UnwrittenFile

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
REPLACED: Final = (
    "The file with the conversations was deleted, moved or replaced while elbowroom was running. What was not in it "
    "yet, and the conversations that are being answered, are in the file that is there now; what else the old one had "
    "is not."
)
LOOK_SECONDS: Final = 2.0
"""How often it is looked whether the file is still where it was, also where nothing is written."""
DAMAGED: Final = (
    "The database of conversations was damaged. It is kept as {aside} in its folder, and a new one has been begun, "
    "without what was in the old one."
)


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds is waited.

    While the store is being opened, `first_words` of answers wait so that they are written in time, and all together;
    requests that need it `opening`, all together; and whoever is `asking` what is kept, each. A store that failed is
    tried `again`, and while it fails after twice as long each time, up to `longest`; `closing` is the end's.
    """

    first_words: float = 10.0
    opening: float = 5.0
    asking: float = 2.0
    again: float = 0.05
    longest: float = 2.0
    closing: float = 10.0


class WriteBehindStore:
    """A store that is opened with its first use, and again a while after it failed.

    `current` are the database's rows, None where it is not open; while it `is_failing`, new rows are only in memory.
    Once it `is_closed`, nothing is written any more. Nothing here raises. Items that are not written wait in the
    backlog of their kind, and while the store fails in the file `beside` as well. The log says once that the store
    fails, and once that it works again, and so does `news`; `name` is its name in the log.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Awaitable["SqlStore"]],
        patience: Patience | None = None,
        observations: Observations | None = None,
        beside: UnwrittenFile | None = None,
    ) -> None:
        self.tasks = TrackedTasks()
        self._name = name
        self._begin = begin
        self.patience = patience or Patience()
        self._observations = observations or Observations()
        self._backlogs: dict[Backlog[Any], asyncio.Lock] = {}
        self._told_of_opening: list[Callable[[SqlStore], object]] = []
        self.current: SqlStore | None = None
        self._opening: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self._waits_until: float | None = None
        self._holds_until: float | None = None
        self._next_try = self._pause = 0.0
        self._trying: asyncio.TimerHandle | None = None
        self._beside = beside
        self._keeping = asyncio.Lock()
        self.is_failing = False
        self.failing_since = 0.0
        self.is_closed = False
        self._left: SqlStore | None = None
        self._carriers: list[Callable[[SqlStore, SqlStore], Awaitable[None]]] = []
        self._looking: asyncio.Task[None] | None = None
        self.trouble = ""
        """What was last told of a failure, while it lasts, and of a file that is gone."""
        self._news: dict[str, None] = {}

    def add(self, backlog: Backlog[Any]) -> None:
        """Write this backlog too, as soon as that is possible."""
        self._backlogs[backlog] = asyncio.Lock()

    def when_open(self, tell: Callable[["SqlStore"], object]) -> None:
        """Have this called with the database's rows whenever it has been opened."""
        self._told_of_opening.append(tell)

    def when_replaced(self, carry: Callable[["SqlStore", "SqlStore"], Awaitable[None]]) -> None:
        """Have this called with the old rows and the new ones, where another file has taken the place of one."""
        self._carriers.append(carry)

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
            self._waits_until = now + self.patience.opening
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

    async def opening_ended(self, within: float | None = None) -> bool:
        """Wait until the database is open, or cannot be opened; tell whether that was so within so many seconds."""
        self.open_soon()
        if self._opening:
            await asyncio.wait([self._opening], timeout=within)
        return self._opening is None

    async def ready_for_words(self) -> None:
        """Wait for the first opening, so that words are written in time; all callers together wait a short while."""
        if self._opening and not self.is_failing:
            now = time.monotonic()
            self._holds_until = self._holds_until or now + self.patience.first_words
            await asyncio.wait([self._opening], timeout=max(0.0, self._holds_until - now))

    async def write(self, backlog: Backlog[Any], *, even_if_failing: bool = False) -> None:
        """Write the items of a backlog, unless writing has just failed; what stays is kept beside, within bounds."""
        await self.opened()
        async with self._backlogs[backlog]:
            sql = self.current if even_if_failing or self._may_try() else None
            if sql is None or not await self._takes_all(sql, backlog):
                if self.is_failing:
                    await self._keep_beside()
                backlog.trim()

    def write_later(self) -> None:
        """Begin to write all backlogs again after a failure, where that may be tried by now."""
        for backlog, turn in self._backlogs.items() if self.is_failing else ():
            if backlog.waiting() and self._may_try() and not turn.locked():
                _ = self.tasks.start(self.write(backlog))

    def failed(self, sql: "SqlStore", error: StoreUnavailable) -> None:
        """Note that reading failed: the database is closed, and opened and checked anew with the next try."""
        if isinstance(error, StoreReplaced):
            self._replaced(sql, error)
        elif self.current is sql and not self.is_closed:
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
        began = time.monotonic()
        if self._opening is not None:  # it may have begun when nothing could be written yet: it is not the last try
            await asyncio.wait([self._opening], timeout=self.patience.closing)
        self._next_try = 0.0
        if any(backlog.waiting() for backlog in self._backlogs):
            for backlog in self._backlogs:  # after what is being written now, for there may be more by now
                _ = self.tasks.start(self.write(backlog, even_if_failing=True))
        await self.tasks.finished(max(0.0, self.patience.closing - (time.monotonic() - began)))
        self.is_closed = True
        if self._looking is not None:
            self._looking.cancel()
        if self._left is not None:
            await self._left.aclose()
        is_kept = await self._keep_beside() and self._beside is not None and self._beside.release()
        if is_kept:
            log.warning("The store %s could not be written: what is not in it, the next start here writes.", self._name)
        for backlog in self._backlogs:
            if (lost := len(backlog.waiting())) and not is_kept:
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
            if self._left is not None:
                await self._left.leave()
            sql = await self._begin()
            await self._carry_over(sql)
            await self._write_left(sql)
        except Exception as error:  # noqa: BLE001  # chats go on, whatever is wrong with the store
            self._fails(error)
        else:
            if sql.set_aside:
                self._tell(DAMAGED.format(aside=sql.set_aside.name))
            if self.is_closed:
                await sql.aclose()
            else:
                self.current = sql
                self._looking = self._looking or asyncio.create_task(self._look())
                sql.check_soon(partial(self._open_anew, sql))
                sql.keep_house_soon()
                for tell in self._told_of_opening:
                    tell(sql)
                for backlog in self._backlogs:
                    _ = self.tasks.start(self.write(backlog))
        finally:
            self._opening = None

    async def _carry_over(self, sql: "SqlStore") -> None:
        """Bring into the database what is to go on in it of the one in whose place it is."""
        left = self._left
        if left is None:
            return
        try:
            for carry in self._carriers:
                await carry(left, sql)
        except BaseException:
            await sql.aclose()
            raise
        self._left = None
        self._closing = self.tasks.start(left.aclose())
        self._tell(REPLACED)

    async def _look(self) -> None:
        """Look again and again whether the file is still where it was."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if (sql := self.current) is not None:
                try:
                    await sql.check_place()
                except StoreReplaced as error:
                    self._replaced(sql, error)
                except StoreUnavailable as error:
                    log.debug("It cannot be seen where the store %s is: %s", self._name, error)

    def _replaced(self, sql: "SqlStore", error: StoreReplaced) -> None:
        """Stand by while another file is opened, or made, in the place of this one."""
        if self.current is sql and not self.is_closed:
            self._fails(error)
            self.current, self._left = None, sql
            self._next_try = 0.0
            self.open_soon()

    async def _takes_all(self, sql: "SqlStore", backlog: Backlog[Any]) -> bool:
        """Write the items of a backlog; tell whether the database has taken them all."""
        for item in backlog.waiting():
            began = time.monotonic()
            try:
                await backlog.write(sql, item)
            except StoreReplaced as error:
                self._replaced(sql, error)
                return False
            except StoreDamaged as error:
                self.failed(sql, error)
                return False
            except StoreUnavailable as error:
                backlog.refused(item)
                if sql.can_be_written_again():
                    self._open_anew(sql, error)
                else:
                    self._fails(error)
                return False
            self._observations.committed(time.monotonic() - began)
            backlog.written(item)
        if self.is_failing:
            self._works()
        return True

    @property
    def seconds_until_next_try(self) -> float:
        """Return after how many seconds it is worth trying again to write."""
        return max(self.patience.again, self._next_try - time.monotonic())

    async def _keep_beside(self) -> bool:
        """Keep what waits in the file beside, where there is one; tell whether that went well."""
        if self._beside is None:
            return False
        try:
            async with self._keeping:
                unwritten = [each for backlog in self._backlogs for each in backlog.to_keep()]
                await asyncio.to_thread(self._beside.keep, unwritten)
        except (OSError, PickleError) as error:
            log.warning("What is not written cannot be kept in the data folder; a kill would lose it: %s", error)
            return False
        return True

    async def _clear_beside(self, beside: UnwrittenFile) -> None:
        """Delete the file beside once all that is in it has been written."""
        async with self._keeping:
            if not self.is_failing:
                await asyncio.to_thread(beside.clear)

    async def _write_left(self, sql: "SqlStore") -> None:
        """Write what servers that were killed have left in the data folder."""
        if self._beside is None:
            return
        kinds = {backlog.plural: backlog for backlog in self._backlogs}
        for left in await asyncio.to_thread(self._beside.left):
            try:
                for kind, item in await asyncio.to_thread(left.items):
                    await kinds[kind].write_left(sql, left.server, item)
            except StoreUnavailable:
                left.release()
                raise
            await asyncio.to_thread(left.delete)
            log.info("What another process could not write before its end is written to the store %s.", self._name)

    def _may_try(self) -> bool:
        return not self.is_closed and time.monotonic() >= self._next_try

    def _works(self) -> None:
        if not any(backlog.waiting() for backlog in self._backlogs):
            self.is_failing = False
            self._pause = 0.0
            if self._beside is not None:
                _ = self.tasks.start(self._clear_beside(self._beside))
            log.info("The store %s works again.", self._name)
            self._tell(WORKS_AGAIN)

    def _try_again(self) -> None:
        """Open the database and write what waits, though nobody asks for anything."""
        self._next_try = 0.0
        self.open_soon()
        self.write_later()

    def _fails(self, error: Exception) -> None:
        if self._may_try():  # else this was asked before it failed, and says nothing new
            longest = max(self.patience.again, self.patience.longest)
            self._pause = min(longest, max(2 * self._pause, self.patience.again))
            self._next_try = time.monotonic() + self._pause
            if self._trying:
                self._trying.cancel()
            self._trying = asyncio.get_running_loop().call_later(self._pause, self._try_again)
        self._observations.store_failed()
        if not self.is_failing:
            self.is_failing, self.failing_since = True, time.monotonic()
            remedy = in_own_words("`elbowroom doctor` says how to mend it.")
            log.error(
                "The store %s does not work: %s. Chats go on; what is to be kept is in memory until it works again. %s",
                self._name,
                what_failed(error),
                remedy,
            )
            self._tell(FAILS.format(why=error.plainly if isinstance(error, StoreUnavailable) else UNKNOWN))

    def _tell(self, sentence: str) -> None:
        self.trouble = sentence if sentence != WORKS_AGAIN else self.trouble if self.trouble == REPLACED else ""
        self._news.pop(sentence, None)  # what happens again and again is told once, as the last thing that happened
        self._news[sentence] = None
