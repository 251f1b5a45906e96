"""What is SQLite's alone: how its file is opened, written and checked, and what its errors mean."""

import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from elbowroom.store.errors import StoreDamaged, StoreUnavailable

log = logging.getLogger(__name__)
BUSY_MILLISECONDS: Final = 2000
"""How long to wait for another program that holds the file; a chat may be waiting too."""
READERS: Final = 3
"""How many may read at the same time, each with a connection and a thread of its own."""
READING: Final = ("query_only = ON",)
WRITING: Final = (
    "journal_mode = WAL",
    # What is acknowledged is on the disk when the power fails. Measured: 0.2 ms a commit instead of 0.03 on an SSD,
    # some 10 ms on a disk that turns; what streams is written together, a few times a second.
    "synchronous = FULL",
    "foreign_keys = ON",
    "journal_size_limit = 16777216",  # what a huge output has made of the log beside the file is given back
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
OF_THE_DRIVER: Final = (RuntimeError, OverflowError)
"""What else the driver raises: there is no thread to be had, a number is too large for a column."""
PRIMARY_CODE: Final = 0xFF
MOST_VARIABLES: Final = 500
"""How many values one statement may carry; SQLite's oldest limit is 999."""
WAL_RESET_FIXED: Final = (3, 51, 3)
"""Before it one connection could damage the file that resets the log while another commits: only one here does both."""


def create_engines(path: Path) -> tuple[AsyncEngine, AsyncEngine]:
    """Return engines for a file that can be opened: one that reads, and one that writes on its only connection.

    Errors never quote what was to be written. Raises sqlite3.Error.
    """
    # The driver's thread outlives a connection that fails, and may speak to an event loop that is closed by then.
    sqlite3.connect(path).close()
    if sqlite3.sqlite_version_info < WAL_RESET_FIXED:
        log.debug("SQLite %s has a flaw that only two programs on one file would come upon.", sqlite3.sqlite_version)
    return _engine(path, READERS, READING, "BEGIN"), _engine(path, 1, WRITING, "BEGIN IMMEDIATE")


def _engine(path: Path, connections: int, pragmas: Sequence[str], begin: str) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={"isolation_level": None},  # the transaction is begun below, not by the driver
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
    )

    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        try:
            for pragma in (f"busy_timeout = {BUSY_MILLISECONDS}", *pragmas):
                cursor.execute(f"PRAGMA {pragma}")
        finally:
            cursor.close()

    event.listen(engine.sync_engine, "connect", prepare)
    event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


async def check(connection: AsyncConnection) -> None:
    """Read the whole file. Raises StoreDamaged with the first thing that is wrong with it."""
    answer = (await connection.exec_driver_sql("PRAGMA quick_check(1)")).scalar()
    if answer != "ok":
        raise StoreDamaged(" ".join(str(answer).split()))


@asynccontextmanager
async def translated_errors() -> AsyncIterator[None]:
    """Raise StoreUnavailable or StoreDamaged for what the database and its driver raise."""
    try:
        yield
    except DBAPIError as error:
        raise _translated(error.orig) from error
    except (SQLAlchemyError, sqlite3.Error, OSError, *OF_THE_DRIVER) as error:
        raise _translated(error) from error


async def content_bytes(connection: AsyncConnection) -> int:
    """Return how much of the file is in use; what was deleted leaves room in it that is not."""
    pages, free, size = [
        (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    ]
    return int((pages - free) * size)


def _translated(error: BaseException | None) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    if code in DAMAGED:
        return StoreDamaged(str(error))
    number = error.errno if isinstance(error, OSError) else None
    plainly = SAID_PLAINLY.get(code) or NUMBERS_SAID_PLAINLY.get(number or 0)
    return StoreUnavailable(str(error), plainly) if plainly else StoreUnavailable(str(error))
