"""What is SQLite's alone: how its file is opened, written and checked, and what its errors mean."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import URL, Connection, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from elbowroom.store.errors import StoreDamaged, StoreUnavailable

BUSY_MILLISECONDS: Final = 2000
"""How long to wait for another program that holds the file; a chat may be waiting too."""
CONNECTIONS: Final = 4
"""How many may read at the same time, each with a thread of its own, the one that writes among them."""
PRAGMAS: Final = (
    f"busy_timeout = {BUSY_MILLISECONDS}",
    "journal_mode = WAL",
    "synchronous = NORMAL",
    "foreign_keys = ON",
    "journal_size_limit = 16777216",  # what a huge output has made of the log beside the file is given back
)
DAMAGED: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
OF_THE_DRIVER: Final = (RuntimeError, OverflowError)
"""What else the driver raises: there is no thread to be had, a number is too large for a column."""
PRIMARY_CODE: Final = 0xFF
MOST_VARIABLES: Final = 500
"""How many values one statement may carry; SQLite's oldest limit is 999."""
WRITES: Final = "elbowroom_writes"
"""The option of an engine whose transactions write: they wait for their turn when they begin, not in the middle."""


def create_engine(path: Path) -> AsyncEngine:
    """Return an engine for a file that can be opened; errors never quote what was to be written.

    Raises sqlite3.Error.
    """
    # The driver's thread outlives a connection that fails, and may speak to an event loop that is closed by then.
    sqlite3.connect(path).close()
    engine = create_async_engine(
        URL.create("sqlite+aiosqlite", database=str(path)),
        connect_args={"isolation_level": None},  # the transaction is begun below, not by the driver
        hide_parameters=True,
        pool_size=CONNECTIONS,
        max_overflow=0,
    )
    event.listen(engine.sync_engine, "connect", _prepare)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _prepare(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()
    try:
        for pragma in PRAGMAS:
            cursor.execute(f"PRAGMA {pragma}")
    finally:
        cursor.close()


def _begin(connection: Connection) -> None:
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


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


def _translated(error: BaseException | None) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    return StoreDamaged(str(error)) if code in DAMAGED else StoreUnavailable(str(error))
