"""What is SQLite's alone: how its file is opened, written and checked, and what its errors mean."""

import errno
import logging
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Delete, Insert, Update, event
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState

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
BEGIN_WRITING: Final = "BEGIN IMMEDIATE"
WAL_RESET_FIXED: Final = (3, 51, 3)
"""Before it one connection could damage the file that resets the log while another commits: only one here does both."""
DIALECT: Final = sqlite_dialect.dialect(paramstyle="named")
Writing = Insert | Update | Delete
Values = Mapping[str, Any]


def create_engines(path: Path) -> tuple[AsyncEngine, AsyncEngine]:
    """Return engines for a file that can be opened: one that reads, and one that writes on its only connection.

    Errors never quote what was to be written. Raises sqlite3.Error.
    """
    # The driver's thread outlives a connection that fails, and may speak to an event loop that is closed by then.
    sqlite3.connect(path).close()
    if sqlite3.sqlite_version_info < WAL_RESET_FIXED:
        log.debug("SQLite %s has a flaw that only two programs on one file would come upon.", sqlite3.sqlite_version)
    return _engine(path, READERS, READING, "BEGIN"), _engine(path, 1, WRITING, BEGIN_WRITING)


def _engine(path: Path, connections: int, pragmas: Sequence[str], begin: str) -> AsyncEngine:
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={"isolation_level": None},  # the transaction is begun below, not by the driver
        hide_parameters=True,
        pool_size=connections,
        max_overflow=0,
        pool_reset_on_return=None,  # `reset` does that, where there is anything to be rolled back
    )

    def prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        try:
            for pragma in (f"busy_timeout = {BUSY_MILLISECONDS}", *pragmas):
                cursor.execute(f"PRAGMA {pragma}")
        finally:
            cursor.close()

    def reset(connection: Any, _: ConnectionPoolEntry, state: PoolResetState) -> None:
        if not state.terminate_only and connection.driver_connection.in_transaction:
            connection.rollback()

    event.listen(engine.sync_engine, "connect", prepare)
    event.listen(engine.sync_engine, "reset", reset)
    event.listen(engine.sync_engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


async def execute_together(connection: AsyncConnection, groups: Sequence[tuple[Writing, Sequence[Values]]]) -> None:
    """Carry out statements in order, each for all its values, in a transaction of their own: all of it, or nothing.

    The statements are constants, for each is translated once; the values are texts, numbers, bytes and None. It costs
    a fraction of what a connection's `execute` does, which goes to the thread of the connection and back four times for
    each statement: this goes there once. Only a private method of the driver takes a function there; the versions that
    `pyproject.toml` allows have it. Raises DBAPIError as `execute` does, without the values.
    """
    prepared = [(sql, _with(fixed, given)) for (sql, fixed), given in ((_prepared(one), all_) for one, all_ in groups)]
    driver: Any = (await connection.get_raw_connection()).driver_connection
    try:
        await driver._execute(lambda: _execute_together(driver._conn, prepared))  # noqa: SLF001  # see above
    except sqlite3.Error as error:
        raise DBAPIError.instance(None, None, error, sqlite3.Error, hide_parameters=True) from error


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


def _execute_together(connection: sqlite3.Connection, prepared: Sequence[tuple[str, Sequence[Values]]]) -> None:
    connection.execute(BEGIN_WRITING)
    try:
        for sql, given in prepared:
            connection.executemany(sql, given)
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


@lru_cache(maxsize=128)
def _prepared(statement: Writing) -> tuple[str, dict[str, Any]]:
    """Return a statement in SQLite's words, and those of its values that are always the same."""
    compiled = statement.compile(dialect=DIALECT)
    return str(compiled), {name: value.value for value, name in compiled.bind_names.items() if not value.required}


def _with(fixed: dict[str, Any], given: Sequence[Values]) -> Sequence[Values]:
    return [{**fixed, **values} for values in given] if fixed else given


def _translated(error: BaseException | None) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    if code in DAMAGED:
        return StoreDamaged(str(error))
    number = error.errno if isinstance(error, OSError) else None
    plainly = SAID_PLAINLY.get(code) or NUMBERS_SAID_PLAINLY.get(number or 0)
    return StoreUnavailable(str(error), plainly) if plainly else StoreUnavailable(str(error))
