"""The database: opened once, then asked on threads of its own, on which turns wait for nobody who reads or searches."""

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from sqlalchemy import Connection, Engine

from elbowroom.errors import what_failed
from elbowroom.store.base import SCHEMA_VERSION, StoreDamaged, StoreUnavailable, retrieved
from elbowroom.store.identity import OwnFile, StoreReplaced
from elbowroom.store.lock import (
    doubt_about,
    forget_doubt,
    has_log,
    may_be_written,
    note_doubt,
    prepare_file,
    set_aside,
)
from elbowroom.store.place import Place, ServerPlace
from elbowroom.store.sql.dialect import (
    UNWRITABLE,
    break_off,
    bring_log_into_file,
    bring_to_disk,
    check,
    create_engines,
    give_id,
    has_lost,
    lock_tables,
    plain_errors,
    settling_engine,
    sole_holder,
    stopped_when,
    without_waiting,
)
from elbowroom.store.sql.schema import bring_up_to_date, load_migrations, make_tables, version_of

log = logging.getLogger(__name__)
READERS: Final = 2
"""How many questions of turns are answered at the same time, each on a thread with a connection of its own."""
BROWSERS: Final = 2
"""How many questions of people who list, read and export conversations are."""
CONNECTIONS: Final = READERS + BROWSERS + 1
"""How many connections read; one of them searches."""
ASKED_SECONDS: Final = 1.0
REST_SECONDS: Final = 0.01
"""Until so long after the last question or change, a check of the file rests so long every few milliseconds."""
LATER_AGAIN_SECONDS: Final = 60.0
MIGRATING: Final = threading.Lock()
"""Held while tables change: Alembic knows one migration in a process."""
Result = TypeVar("Result")


class Database:
    """An open database in a file or in memory; made by `open`, given back by `aclose`.

    Everything that is begun is finished, also when its caller is cancelled; only a search is given up. `set_aside` is
    the new name of a damaged file in whose place this one was begun. `is_read_only` tells that the file could not be
    written when it was opened, and `is_unchecked` that the last process did not close it and nobody has checked it.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.path = place if isinstance(place, Path) else None
        self.set_aside: Path | None = None
        self.is_read_only = False
        self.is_unchecked = False
        self._writing = ThreadPoolExecutor(1, "store-writer")
        self._reading = ThreadPoolExecutor(READERS, "store-reader") if place else self._writing
        self._browsing = ThreadPoolExecutor(BROWSERS, "store-browser") if place else self._writing
        self._searching = ThreadPoolExecutor(1, "store-searcher") if place else self._writing
        self._settling = ThreadPoolExecutor(1, "store-settler")
        self._syncing = ThreadPoolExecutor(1, "store-syncer")
        self._is_unsynced = threading.Event()
        self._is_disk_failing = False
        self._file: OwnFile | None = None
        self._is_left = False
        self._readers: Engine
        self._writer: Engine
        self._at_once: Engine
        self._settler: Engine
        self._settled: Connection | None = None  # only the thread that settles touches it
        self._holders: set[Engine] = set()
        self._next_later = 0.0
        self._last_asked = 0.0
        self._is_closed = False
        self._is_check_over = threading.Event()

    @classmethod
    async def open(cls, place: Place) -> Self:
        """Open the file, or make it with its folder; a damaged one is set aside first, and the log says so.

        The whole file is read only where something in it could not be read before. One that cannot be written is
        opened for reading. Without a place it is in memory. Raises StoreUnavailable.
        """
        database = cls(place)
        try:
            await database.do(database._open)
        except BaseException:
            await database.aclose()
            raise
        return database

    async def read(self, question: Callable[[Connection], Result]) -> Result:
        """Answer a question of a turn on a thread that reads, in one transaction. Raises StoreUnavailable."""
        return await self.do(partial(_transact, self._readers, question), self._reading)

    async def browse(self, question: Callable[[Connection], Result]) -> Result:
        """Answer a question that no turn waits for, on other threads, in one transaction. Raises StoreUnavailable."""
        return await self.do(partial(_transact, self._readers, question), self._browsing)

    async def search(self, question: Callable[[Connection], Result]) -> Result:
        """Answer a question that may read all rows, one at a time, so that other questions never wait for it.

        It is given up when the caller is cancelled or the database is closed. Raises StoreUnavailable.
        """
        is_given_up = threading.Event()
        try:
            return await self.do(partial(self._search, question, is_given_up), self._searching)
        finally:
            is_given_up.set()

    async def write(self, change: Callable[[Connection], Result]) -> Result:
        """Make a change on the thread that writes, in one transaction: all or nothing. Raises StoreUnavailable."""

        def made() -> Result:
            self.check_place()
            return _transact(self._writer, change)

        return await self.do(made)

    async def keep_house(self, change: Callable[[Connection], Result]) -> Result:
        """Make a change as `write` does, but leave the disk to the background.

        What is said is written by the same thread, and is not to wait for the disk behind it. Raises StoreUnavailable.
        """

        def made() -> Result:
            with self.writing_at_once() as connection:
                return change(connection)

        return await self.do(made)

    async def settle(self, change: Callable[[Connection], Result]) -> Result:
        """Make a change that servers settle among each other, while others write; each statement is over at once.

        A power cut may take it back. Raises StoreUnavailable.
        """
        return await self.do(partial(self._settle, change), self._settling)

    async def do(self, work: Callable[[], Result], threads: Executor | None = None) -> Result:
        """Do work on the thread that writes, or on others, which opens its transactions. Raises StoreUnavailable."""
        if self._is_closed:
            raise StoreUnavailable("it has been closed")
        self._last_asked = time.monotonic()
        with plain_errors():
            future = asyncio.wrap_future((threads or self._writing).submit(self._noting_damage, work))
        future.add_done_callback(retrieved)
        await asyncio.wait([future])  # which cancels nothing
        return future.result()

    def check_place(self) -> None:
        """Raise StoreReplaced where another file, or none, is where this one was; for the thread that writes."""
        if self.path is not None and self._file is not None and not (self._is_left or self._file.is_there):
            raise StoreReplaced(self.path)

    def mark(self) -> None:
        """Let the file be known again after a crash; for the thread that writes. Raises StoreUnavailable."""
        if self._file is not None and not self.is_read_only and (drawn := self._file.mark_soon()) is not None:
            with plain_errors():
                give_id(self._writer, drawn)
            self._file.marked(drawn)

    def leave(self) -> None:
        """Let the file go that is not at its place any more, whole and without what is beside that place.

        It can still be read until it is closed; for the thread that writes. Raises StoreUnavailable.
        """
        if self._file is None or self._is_left:
            return
        self._is_left = True
        with plain_errors():
            bring_log_into_file(self._writer)
            self._file.leave()

    @contextmanager
    def writing_at_once(self) -> Iterator[Connection]:
        """Hold the only transaction that writes; it outlives the process, and the disk gets it in the background.

        For work on the thread that writes. A power cut takes back what the disk has not got. Raises StoreUnavailable.
        A PostgreSQL server is waited for until its disk has it: when it fails, this process lives on, and would go on
        after words that are lost.
        """
        self.check_place()
        with plain_errors(), self._at_once.begin() as connection:
            yield connection
        if self.path is not None:
            self._is_unsynced.set()
            self._syncing.submit(self._sync)

    @asynccontextmanager
    async def alone(self, lock: int) -> AsyncIterator[bool]:
        """Hold a lock for work of many transactions; tells whether no other server has it. Raises StoreUnavailable."""
        with plain_errors():
            holding = sole_holder(self.place, lock, self._holders)
            is_alone = await asyncio.to_thread(holding.__enter__)
            try:
                yield is_alone
            finally:
                await asyncio.to_thread(holding.__exit__, None, None, None)

    def write_later(self, change: Callable[[Connection], object]) -> None:
        """Make a change that may be missing in the background, from any thread; after a failure none for a while."""
        if not self._is_closed and time.monotonic() >= self._next_later:
            self._writing.submit(self._try, change)

    async def check(self) -> None:
        """Read the whole file, while others wait for nothing, where the last process did not close it.

        Raises StoreDamaged, and StoreUnavailable where that is stopped: then the next process does it.
        """
        if self.path is None or not self.is_unchecked:
            return
        began, done = time.monotonic(), Future[None]()
        done.set_running_or_notify_cancel()  # whoever awaits it may be cancelled, and the thread ends it all the same
        # A daemon, since SQLite before 3.41 cannot be stopped everywhere, and the end of a process waits for others.
        threading.Thread(target=self._check, args=(self.path, done), name="store-checker", daemon=True).start()
        await asyncio.wrap_future(done)
        self.is_unchecked = False
        log.info(
            "The store %s was not closed when elbowroom last ended. It has been checked and is sound (%.1f s).",
            self.path,
            time.monotonic() - began,
        )

    def stop_check(self) -> None:
        """Stop reading the whole file."""
        self._is_check_over.set()

    def can_be_written_again(self) -> bool:
        """Tell whether the file could not be written when it was opened, and can be now."""
        return self.is_read_only and self.path is not None and may_be_written(self.path)

    async def aclose(self) -> None:
        """Finish what is under way, and close every connection."""
        self.stop_check()
        self._is_closed = True
        await asyncio.to_thread(self._close)

    async def end_within(self, ending: Coroutine[Any, Any, None], seconds: float) -> None:
        """Wait for the end of all work; after so many seconds the connections to a PostgreSQL server are broken off."""
        task = asyncio.create_task(ending)
        _, pending = await asyncio.wait([task], timeout=seconds)
        if pending and isinstance(self.place, ServerPlace):
            for engine in (*self._engines(), *self._holders):
                break_off(engine)
        await task

    def _noting_damage(self, work: Callable[[], Result]) -> Result:
        """Do work; where something cannot be read, the whole file is checked when it is opened the next time."""
        try:
            return work()
        except StoreDamaged:
            if self.path is not None:
                note_doubt(self.path, "suspected")
            raise

    def _settle(self, change: Callable[[Connection], Result]) -> Result:
        """Make a change on a connection that is kept: to be lent another one takes as long as the change."""
        kept, self._settled = self._settled, None
        with plain_errors():
            if kept is not None and has_lost(kept):
                kept.close()
                kept = None
            connection = kept or self._settler.connect()
            try:
                made = change(connection)
            except BaseException:
                connection.close()
                raise
        self._settled = connection
        return made

    def _check(self, path: Path, done: "Future[None]") -> None:
        try:
            self._noting_damage(partial(check, path, self._gives_way))
            forget_doubt(path)
            done.set_result(None)
        except StoreUnavailable as error:
            done.set_exception(error)

    def _gives_way(self) -> bool:
        """Rest a moment where somebody has just asked for something; tell whether the check is to be stopped."""
        if time.monotonic() - self._last_asked < ASKED_SECONDS:
            self._is_check_over.wait(REST_SECONDS)
        return self._is_check_over.is_set()

    def _search(self, question: Callable[[Connection], Result], is_given_up: threading.Event) -> Result:
        def is_over() -> bool:
            return self._is_closed or is_given_up.is_set()

        if is_over():
            raise StoreUnavailable("nobody waits for the search any more")
        with plain_errors(), self._readers.begin() as connection, stopped_when(connection, is_over):
            return question(connection)

    def _sync(self) -> None:
        """Bring to the disk what was written since this was last done."""
        if self.path is None or not self._is_unsynced.is_set():
            return
        self._is_unsynced.clear()
        try:
            if self._is_left:
                return
            bring_to_disk(self.path)
            self._is_disk_failing = False
            if self._file is not None:
                self._file.note_log()
        except OSError as error:
            if not self._is_disk_failing:
                log.warning(
                    "The disk does not take what was written; a power cut would take it back: %s", what_failed(error)
                )
            self._is_disk_failing = True

    def _try(self, change: Callable[[Connection], object]) -> None:
        try:
            with self.writing_at_once() as connection:
                change(connection)
        except StoreUnavailable as error:
            self._next_later = time.monotonic() + LATER_AGAIN_SECONDS
            log.debug("Something that may be missing was not written: %s", error)

    def _open(self) -> None:
        try:
            self._open_sound()
        except StoreDamaged as damage:
            self._close_engines()
            if self.path is None:
                raise
            self._release_file()
            with plain_errors():
                self.set_aside = set_aside(self.path, datetime.now().astimezone())
            text = "The store %s is damaged: %s. It is kept as %s, and a new one is begun."
            log.error(text, self.path, damage, self.set_aside)  # noqa: TRY400
            self._open_sound()

    def _open_sound(self) -> None:
        with plain_errors():
            was_closed = self.path is None or not has_log(self.path)
            if self.path:
                prepare_file(self.path)
                self._file = self._file or OwnFile(self.path)
                self.is_read_only = not may_be_written(self.path)
            self._readers, self._writer = create_engines(self.place, CONNECTIONS, is_read_only=self.is_read_only)
            self._at_once = without_waiting(self._writer)
            if isinstance(self.place, ServerPlace):
                self._settler = settling_engine(self.place)
            with self._readers.begin() as connection:
                version = version_of(connection)
            if self.path:
                self._look_at_doubt(self.path, was_closed=was_closed)
            if version < SCHEMA_VERSION:
                self._make_current(version)

    def _look_at_doubt(self, path: Path, *, was_closed: bool) -> None:
        """Check the whole file where something in it could not be read, and have it checked later after a crash."""
        doubt = doubt_about(path)
        if doubt == "suspected":
            check(path, lambda: False)
            forget_doubt(path)
        elif doubt == "unclean" or not was_closed:
            note_doubt(path, "unclean")
            self.is_unchecked = True

    def _make_current(self, version: int) -> None:
        """Make the tables, or bring those of an older version up to date."""
        if self.is_read_only:
            raise StoreUnavailable("it has not the tables of this version, and it cannot be written", UNWRITABLE)
        if version == 0:
            with self._writer.begin() as connection:
                lock_tables(connection)
                if version_of(connection) == 0:
                    make_tables(connection)
        else:
            load_migrations()
            with MIGRATING, self._writer.begin() as connection:
                lock_tables(connection)
                bring_up_to_date(connection)

    def _close(self) -> None:
        for threads in (self._searching, self._browsing, self._reading, self._settling, self._writing, self._syncing):
            threads.shutdown()
        if self._settled is not None:
            self._settled.close()
        self._close_engines()
        self._release_file()

    def _release_file(self) -> None:
        if self._file is not None:
            self._file.release()
            self._file = None

    def _close_engines(self) -> None:
        for engine in self._engines():
            engine.dispose()

    def _engines(self) -> list[Engine]:
        """Return what has been made to connect with; the connection closed last writes the log into the file."""
        made = (getattr(self, name, None) for name in ("_settler", "_readers", "_writer"))
        return [engine for engine in made if engine]


def _transact(engine: Engine, work: Callable[[Connection], Result]) -> Result:
    with plain_errors(), engine.begin() as connection:
        return work(connection)
