"""SQLite: how its file is opened, written and checked, and its errors."""

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from sqlalchemy import URL, Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState, QueuePool
from sqlalchemy.util import LRUCache

from elbowroom.errors import what_failed
from elbowroom.store.base import UNKNOWN, StoreDamaged, StoreUnavailable
from elbowroom.store.lock import LOG, has_log
from elbowroom.store.sql.dialect.words import waits_for_disk

log = logging.getLogger(__name__)
BUSY_MILLISECONDS: Final = 2000
"""How long to wait for another program that holds the file; a chat may be waiting too."""
ON_DISK, BY_SYSTEM = "FULL", "NORMAL"
"""What a transaction waits for: the disk, or only the system, which keeps what a program wrote that is killed."""
READING: Final = (
    "query_only = ON",
    "cache_size = -500",  # KiB, a quarter of the usual: each commit of the writer empties it
)
WRITING: Final = (
    "journal_mode = WAL",
    # What is acknowledged is on the disk when the power fails. Measured: 0.2 ms a commit instead of 0.03 on an SSD,
    # some 10 ms on a disk that turns, seconds on one that is busy: what streams is written `without_waiting`.
    f"synchronous = {ON_DISK}",
    "foreign_keys = ON",
    "journal_size_limit = 16777216",  # the room that a huge output took in the log beside the file is given back
)
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
FULL, UNWRITABLE, HELD = "the disk is full", "its file or folder cannot be written", "another program holds its file"
SAID_PLAINLY: Final = {
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: UNWRITABLE,
    sqlite3.SQLITE_PERM: UNWRITABLE,
    sqlite3.SQLITE_BUSY: HELD,
    sqlite3.SQLITE_LOCKED: HELD,
    sqlite3.SQLITE_CANTOPEN: "its file cannot be opened",
    sqlite3.SQLITE_IOERR: "its disk reports an error",
}
NUMBERS_SAID_PLAINLY: Final = {
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EACCES: UNWRITABLE,
    errno.EPERM: UNWRITABLE,
    errno.EROFS: UNWRITABLE,
}
PRIMARY_CODE: Final = 0xFF
STEPS_BETWEEN_LOOKS: Final = 10_000
"""After how many steps of SQLite a search looks whether it is still wanted; these take less than a millisecond."""
LEAVING: Final = (
    "CREATE TRIGGER message_parts_leave_the_index AFTER DELETE ON message_parts "
    "WHEN old.kind IN ('text', 'content') BEGIN "
    "INSERT OR IGNORE INTO search_leaving SELECT messages.number, old.position, old.kind, old.content "
    "FROM messages, search_progress WHERE messages.id = old.message AND messages.number <= search_progress.number; END"
)
"""Keeps what a deleted part said for the moment until it is out of the index, which has to be told it."""
OWN_TABLES: Final = (LEAVING,)
WAL_RESET_FIXED: Final = (3, 51, 3)
"""Before it one connection could damage the file that resets the log while another commits: only one here does both."""
DRIVER: Final = "sqlite+elbowroom"
TRANSLATIONS: Final[LRUCache[Any, Any]] = LRUCache(500)
"""What statements are in the database's words, for all engines of the process: that costs more than most questions."""


class SharedDialect(SQLiteDialect_pysqlite):
    """SQLite, equal to every other of this kind, so that engines share translations."""

    supports_statement_cache = True

    def __eq__(self, other: object) -> bool:
        """Tell whether a statement is the same in both."""
        return type(other) is type(self)

    def __hash__(self) -> int:
        """Return one number for all."""
        return hash(type(self))


registry.register(DRIVER.replace("+", "."), __name__, SharedDialect.__name__)


def create_engines(path: Path | None, readers: int, *, is_read_only: bool = False) -> tuple[Engine, Engine]:
    """Return an engine that reads and one that writes on its only connection; in memory both are the same.

    One that `is_read_only` refuses what is to be written. Errors never quote the values that were to be written.
    """
    if path is None:
        engine = _engine(URL.create(DRIVER, database=":memory:"), 1, (), "BEGIN")
        return engine, engine
    if is_read_only:
        url = URL.create(DRIVER, database=path.absolute().as_uri(), query={"uri": "true", **_reading_only(path)})
        return _engine(url, readers, READING, "BEGIN"), _engine(url, 1, READING, "BEGIN IMMEDIATE")
    if sqlite3.sqlite_version_info < WAL_RESET_FIXED:
        log.debug("SQLite %s has a flaw that only two programs on one file would come upon.", sqlite3.sqlite_version)
    url = URL.create(DRIVER, database=str(path))
    return _engine(url, readers, READING, "BEGIN"), _engine(url, 1, WRITING, "BEGIN IMMEDIATE")


def _reading_only(path: Path) -> dict[str, str]:
    """Return how SQLite opens a file to read it.

    Without a log and what goes with it nobody has the file open; SQLite needs to be told, or it makes such files.
    """
    is_open = has_log(path) or path.with_name(f"{path.name}-shm").exists()
    return {"mode": "ro"} if is_open else {"mode": "ro", "immutable": "1"}


def check(path: Path, is_over: Callable[[], bool]) -> None:
    """Read the whole file on a connection of its own, until this is true, which is asked every few milliseconds.

    Raises StoreDamaged with the first thing that is wrong with it, and StoreUnavailable where it is given up.
    """
    address = f"{path.absolute().as_uri()}?{urlencode(_reading_only(path))}"
    with closing(sqlite3.connect(address, uri=True)) as connection:
        connection.set_progress_handler(is_over, STEPS_BETWEEN_LOOKS)
        (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise StoreDamaged(" ".join(str(answer).split()))


def content_bytes(connection: Connection) -> int:
    """Return how much of the file is in use; deleted rows leave room in it that is not."""
    pages, free, size = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def number_from(connection: Connection, table: Table, first: int) -> None:
    """Let the numbers that a table gives out go on from here, which is above all that it has."""
    connection.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = ?", (table.name,))
    connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, first - 1))


def last_number(connection: Connection, table: Table) -> int:
    """Return the highest number that a table has given out, also to a row that is deleted; 0 for none."""
    given = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (table.name,)).scalar()
    return int(given or 0)


@contextmanager
def stopped_when(connection: Connection, is_over: Callable[[], bool]) -> Iterator[None]:
    """End statements with an error once this is true."""
    driver: Any = connection.connection.driver_connection
    driver.set_progress_handler(is_over, STEPS_BETWEEN_LOOKS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def bring_to_disk(path: Path) -> None:
    """Wait until the disk has all that was written to the database at this path. Raises OSError."""
    descriptor = os.open(f"{path}{LOG}", os.O_RDWR)  # beside which SQLite holds no locks that closing would give up
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def give_id(writer: Engine, drawn: int) -> None:
    """Let the first page of a file say this number, and bring its log into the file."""
    with closing(writer.raw_connection()) as lent:
        lent.cursor().execute(f"PRAGMA application_id = {drawn:d}")
    bring_log_into_file(writer)


def bring_log_into_file(writer: Engine) -> None:
    """Write all that the log has into the file, as far as nobody reads what was there before."""
    with closing(writer.raw_connection()) as lent:
        lent.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _engine(url: URL, connections: int, pragmas: Sequence[str], begin: str) -> Engine:
    engine = create_engine(
        url,
        paramstyle="named",
        # The transaction is begun below, not by the driver; a connection wanders between the store's own threads.
        connect_args={"isolation_level": None, "check_same_thread": False},
        hide_parameters=True,
        execution_options={"compiled_cache": TRANSLATIONS},
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,  # `reset` rolls back where that is needed
    )

    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        try:
            for pragma in (f"busy_timeout = {BUSY_MILLISECONDS}", *pragmas):
                cursor.execute(f"PRAGMA {pragma}")
        finally:
            cursor.close()

    def reset(connection: Any, _: ConnectionPoolEntry, state: PoolResetState) -> None:
        if not state.terminate_only and connection.in_transaction:
            connection.rollback()

    event.listen(engine, "connect", prepare)
    event.listen(engine, "reset", reset)

    def begun(connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        waits = ON_DISK if waits_for_disk(connection) else BY_SYSTEM
        if pragmas is WRITING and connection.info.get("waits", ON_DISK) != waits:
            driver.execute(f"PRAGMA synchronous = {waits}")
            connection.info["waits"] = waits
        driver.execute(begin)

    event.listen(engine, "begin", begun)
    return engine


def unavailable(error: BaseException | None) -> StoreUnavailable:
    """Return an error of SQLite or of the system as one of the store's."""
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    if code in DAMAGED:
        return StoreDamaged(str(error))
    number = error.errno if isinstance(error, OSError) else None
    plainly = SAID_PLAINLY.get(code) or NUMBERS_SAID_PLAINLY.get(number or 0)
    told = what_failed(error) if error is not None else UNKNOWN
    return StoreUnavailable(told, plainly) if plainly else StoreUnavailable(told)
