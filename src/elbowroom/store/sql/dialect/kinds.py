"""What differs between databases where it is asked of one: how it is opened, its size, and its errors."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, InterfaceError, SQLAlchemyError

from elbowroom.store import lock as files
from elbowroom.store.base import StoreUnavailable
from elbowroom.store.place import Place, ServerPlace
from elbowroom.store.sql.dialect import sqlite

POSTGRESQL: Final = "postgresql"
REFUSED: Final = (DataError, IntegrityError, InterfaceError, OverflowError)
"""What a database or its driver raises when the values that it was given are at fault, and not the database."""
OF_THE_DRIVER: Final = (RuntimeError, OverflowError)
"""What else the driver raises: no thread could be started, a number is too large for a column."""


def create_engines(place: Place, readers: int, *, is_read_only: bool = False) -> tuple[Engine, Engine]:
    """Return an engine that reads and one that writes on its only connection; in memory both are the same.

    A file that `is_read_only` refuses what is to be written. Errors never quote the values that were to be written.
    """
    if isinstance(place, ServerPlace):
        from elbowroom.store.sql.dialect import postgresql

        return postgresql.create_engines(place, readers)
    return sqlite.create_engines(place, readers, is_read_only=is_read_only)


def settling_engine(place: ServerPlace) -> Engine:
    """Return an engine for what servers of a database settle among each other; its changes wait for no disk."""
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.settling_engine(place)


def has_lost(connection: Connection) -> bool:
    """Tell whether a PostgreSQL server has closed a connection while nobody used it; the server is not asked."""
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.has_lost(connection)


def break_off(engine: Engine) -> None:
    """End the connections to a PostgreSQL server that no longer answers, and make no others; from any thread."""
    from elbowroom.store.sql.dialect import postgresql

    postgresql.break_off(engine)


def is_postgresql(connection: Connection) -> bool:
    """Tell whether this is a connection to PostgreSQL."""
    return connection.dialect.name == POSTGRESQL


def own_tables(dialect: Dialect) -> Sequence[str]:
    """Return what makes that of the tables which no other database has."""
    if dialect.name != POSTGRESQL:
        return sqlite.OWN_TABLES
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.OWN_TABLES


def lock_tables(connection: Connection) -> None:
    """Hold the right to make or change tables until the transaction ends; SQLite gives it to whoever writes."""
    if is_postgresql(connection):
        from elbowroom.store.sql.dialect import postgresql

        postgresql.lock_tables(connection)


def kept_secret(connection: Connection) -> bytes:
    """Return the secret that a PostgreSQL database keeps, made where there is none."""
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.kept_secret(connection)


def found_secret(place: Path | ServerPlace, connection: Connection) -> bytes | None:
    """Return the secret of the store at this place, which is in its database or beside it; None for none."""
    if isinstance(place, Path):
        return files.found_secret(place)
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.found_secret(connection)


def keep_secret(place: Path | ServerPlace, connection: Connection, secret: bytes) -> None:
    """Keep a secret for the store at this place. Raises OSError."""
    if isinstance(place, Path):
        files.keep_secret(place, secret)
        return
    from elbowroom.store.sql.dialect import postgresql

    postgresql.keep_secret(connection, secret)


def number_from(connection: Connection, table: Table, first: int) -> None:
    """Let the numbers that a table gives out go on from here, which is above all that it has."""
    if not is_postgresql(connection):
        sqlite.number_from(connection, table, first)
        return
    from elbowroom.store.sql.dialect import postgresql

    postgresql.number_from(connection, table, first)


def last_number(connection: Connection, table: Table) -> int:
    """Return the highest number that a table has given out, also to a row that is deleted; 0 for none."""
    if not is_postgresql(connection):
        return sqlite.last_number(connection, table)
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.last_number(connection, table)


def rows_written(connection: Connection, tables: Sequence[str]) -> int:
    """Return how many rows of these tables of PostgreSQL were ever inserted, changed or deleted."""
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.rows_written(connection, tables)


def refresh_statistics(connection: Connection) -> None:
    """Have PostgreSQL look at the rows that came in, by which it plans how to answer questions; SQLite needs none."""
    if is_postgresql(connection):
        from elbowroom.store.sql.dialect import postgresql

        postgresql.refresh_statistics(connection)


def server_faults(connection: Connection) -> list[str]:
    """Return what is wrong with a PostgreSQL server and its database, in sentences."""
    if not is_postgresql(connection):
        return []
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.faults(connection)


def try_lock(connection: Connection, lock: int) -> bool:
    """Take a lock until the transaction ends, unless another one has it; a database without servers has no other."""
    if not is_postgresql(connection):
        return True
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.try_lock(connection, lock)


def sole_holder(place: Place, lock: int, holders: set[Engine] | None = None) -> AbstractContextManager[bool]:
    """Hold a lock until the end; tells whether no other server has it. A file and memory are of one process anyway."""
    if not isinstance(place, ServerPlace):
        return nullcontext(enter_result=True)
    from elbowroom.store.sql.dialect import postgresql

    return postgresql.sole_holder(place, lock, holders)


def stopped_when(connection: Connection, is_over: Callable[[], bool]) -> AbstractContextManager[None]:
    """End statements with an error once this is true."""
    if is_postgresql(connection):
        from elbowroom.store.sql.dialect import postgresql

        return postgresql.stopped_when(connection, is_over)
    return sqlite.stopped_when(connection, is_over)


def content_bytes(connection: Connection) -> int:
    """Return how many bytes of the database are in use; deleted rows leave room in it that is not."""
    if is_postgresql(connection):
        from elbowroom.store.sql.dialect import postgresql

        return postgresql.content_bytes(connection)
    return sqlite.content_bytes(connection)


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
    cause = error.__cause__
    is_lost = isinstance(cause, DBAPIError) and cause.connection_invalidated
    return isinstance(cause, REFUSED) and not is_lost


def _unavailable(error: BaseException | None) -> StoreUnavailable:
    if type(error).__module__.startswith("psycopg"):
        from elbowroom.store.sql.dialect import postgresql

        return postgresql.unavailable(error)
    return sqlite.unavailable(error)


def check(path: Path, is_over: Callable[[], bool]) -> None:
    """Read a whole file on a connection of its own, until this is true, which is asked every few milliseconds.

    Raises StoreDamaged with the first thing that is wrong with it, and StoreUnavailable where it is given up.
    """
    with plain_errors():
        sqlite.check(path, is_over)
