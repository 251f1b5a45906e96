"""What differs between databases, today SQLite alone: how it is opened, written and checked, and its errors."""

import errno
import logging
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Delete,
    Engine,
    Insert,
    Select,
    Table,
    TableValuedAlias,
    Update,
    bindparam,
    case,
    create_engine,
    event,
    func,
    literal,
    literal_column,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import DBAPIConnection, DBAPICursor, Dialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry, PoolResetState, QueuePool
from sqlalchemy.util import LRUCache

from elbowroom.store.base import StoreDamaged, StoreUnavailable
from elbowroom.store.lock import LOG, has_log

log = logging.getLogger(__name__)
BUSY_MILLISECONDS: Final = 2000
"""How long to wait for another program that holds the file; a chat may be waiting too."""
ON_DISK, BY_SYSTEM = "FULL", "NORMAL"
"""What a transaction waits for: the disk, or only the system, which keeps what a program wrote that is killed."""
WAITS_FOR: Final = "waits_for"
READING: Final = ("query_only = ON",)
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
REFUSED: Final = (DataError, IntegrityError, InterfaceError, OverflowError)
"""What a database or its driver raises when the values that it was given are at fault, and not the database."""
OF_THE_DRIVER: Final = (RuntimeError, OverflowError)
"""What else the driver raises: no thread could be started, a number is too large for a column."""
PRIMARY_CODE: Final = 0xFF
STEPS_BETWEEN_LOOKS: Final = 10_000
"""After how many steps of SQLite a search looks whether it is still wanted; these take less than a millisecond."""
MOST_VARIABLES: Final = 500
"""How many values one statement may carry; SQLite's oldest limit is 999."""
WAL_RESET_FIXED: Final = (3, 51, 3)
"""Before it one connection could damage the file that resets the log while another commits: only one here does both."""
DRIVER: Final = "sqlite+elbowroom"
TRANSLATIONS: Final[LRUCache[Any, Any]] = LRUCache(500)
"""What statements are in the database's words, for all engines of the process: that costs more than most questions."""
Writing = Insert | Update | Delete
Values = Mapping[str, Any]
Name = TypeVar("Name", str, int)


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
        # Without a log beside it nobody writes the file; SQLite needs to be told, for it cannot make files of its own.
        query = {"uri": "true", "mode": "ro"} | ({} if has_log(path) else {"immutable": "1"})
        url = URL.create(DRIVER, database=path.absolute().as_uri(), query=query)
        return _engine(url, readers, READING, "BEGIN"), _engine(url, 1, READING, "BEGIN IMMEDIATE")
    if sqlite3.sqlite_version_info < WAL_RESET_FIXED:
        log.debug("SQLite %s has a flaw that only two programs on one file would come upon.", sqlite3.sqlite_version)
    url = URL.create(DRIVER, database=str(path))
    return _engine(url, readers, READING, "BEGIN"), _engine(url, 1, WRITING, "BEGIN IMMEDIATE")


def skipping(statement: Insert) -> Insert:
    """Let an insertion skip a row that is there already, or that has NULL where that may not be."""
    return statement.prefix_with("OR IGNORE")


def execute_all(connection: Connection, groups: Sequence[tuple[Writing, Sequence[Values]]]) -> None:
    """Carry out statements in order, each for all its values, which are texts, numbers, bytes and None.

    The statements are constants, for each is translated into SQL once for each kind of database: that takes several
    times as long as carrying it out. The driver does that itself, for the way through SQLAlchemy takes longer as well.
    """
    with _driver(connection) as cursor:
        for statement, given in groups:
            sql, fixed = _translated(statement, connection.dialect)
            cursor.executemany(sql, [{**fixed, **values} for values in given] if fixed else given)


def selected(connection: Connection, statement: Select[Any], given: Sequence[Values]) -> list[Sequence[Any]]:
    """Return the rows that a statement selects for all these values, of columns that hold texts and numbers.

    The statement is a constant, as for `execute_all`.
    """
    rows: list[Sequence[Any]] = []
    with _driver(connection) as cursor:
        sql, fixed = _translated(statement, connection.dialect)
        for values in given:
            cursor.execute(sql, {**fixed, **values})
            rows += cursor.fetchall()
    return rows


def batched(names: Sequence[Name]) -> Iterator[Sequence[Name]]:
    """Yield names or numbers in as many pieces as statements have to carry them."""
    for start in range(0, len(names), MOST_VARIABLES):
        yield names[start : start + MOST_VARIABLES]


def listed(name: str) -> TableValuedAlias:
    """Return a JSON list that is given under a name as a table of `key`, the place from 0, and `value`."""
    return func.json_each(bindparam(name)).table_valued("key", "value", name=name)


def role_of(fields: ColumnElement[Any]) -> ColumnElement[Any]:
    """Return the role in the fields of a message, which another program may have written."""
    return case((func.json_valid(fields) == 1, func.json_extract(fields, "$.role")), else_=literal(""))


def check(path: Path, is_over: Callable[[], bool]) -> None:
    """Read the whole file on a connection of its own, until this is true, which is asked every few milliseconds.

    Raises StoreDamaged with the first thing that is wrong with it, and StoreUnavailable where it is given up.
    """
    with plain_errors(), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
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
    """Let the numbers that an empty table gives out begin here."""
    connection.exec_driver_sql("INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)", (table.name, first - 1))


def newest_first(table: Table) -> ColumnElement[Any]:
    """Return what orders rows by when they were inserted, the last first, whatever the clock said then."""
    return literal_column(f"{table.name}.rowid").desc()


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


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise StoreUnavailable or StoreDamaged for the errors of the database and its driver."""
    try:
        yield
    except DBAPIError as error:
        raise _unavailable(error.orig) from error
    except RecursionError:  # a mistake of elbowroom's, for which the database is not to be closed
        raise
    except (SQLAlchemyError, sqlite3.Error, OSError, *OF_THE_DRIVER) as error:
        raise _unavailable(error) from error


def is_refusal(error: StoreUnavailable) -> bool:
    """Tell whether the values were at fault, so that others may still be written."""
    return isinstance(error.__cause__, REFUSED)


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
        if pragmas is WRITING:
            driver.execute(f"PRAGMA synchronous = {connection.get_execution_options().get(WAITS_FOR, ON_DISK)}")
        driver.execute(begin)

    event.listen(engine, "begin", begun)
    return engine


def without_waiting(writer: Engine) -> Engine:
    """Return the engine whose transactions are over once the system has them, though the disk has not."""
    return writer.execution_options(**{WAITS_FOR: BY_SYSTEM})


@contextmanager
def _driver(connection: Connection) -> Iterator[DBAPICursor]:
    """Lend the driver's own cursor; its errors are raised as SQLAlchemy's."""
    driver = connection.dialect.loaded_dbapi
    cursor = connection.connection.cursor()
    try:
        yield cursor
    except driver.Error as error:
        raise DBAPIError.instance(None, None, error, driver.Error, hide_parameters=True) from error
    finally:
        cursor.close()


@lru_cache(maxsize=128)
def _translated(statement: Writing | Select[Any], dialect: Dialect) -> tuple[str, dict[str, Any]]:
    """Return a statement in the database's words, and its values that are always the same."""
    compiled = statement.compile(dialect=dialect)
    return str(compiled), {name: value.value for value, name in compiled.bind_names.items() if not value.required}


def _unavailable(error: BaseException | None) -> StoreUnavailable:
    code = getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE
    if code in DAMAGED:
        return StoreDamaged(str(error))
    number = error.errno if isinstance(error, OSError) else None
    plainly = SAID_PLAINLY.get(code) or NUMBERS_SAID_PLAINLY.get(number or 0)
    return StoreUnavailable(str(error), plainly) if plainly else StoreUnavailable(str(error))
