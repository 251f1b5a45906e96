"""PostgreSQL: how it is connected to, what its tables have besides those of every database, and its errors."""

import os
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from select import select as readable
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from sqlalchemy import Connection, Engine, Table, create_engine, event, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool

from elbowroom.errors import SettingsError
from elbowroom.store.base import StoreBusy, StoreUnavailable
from elbowroom.store.lock import SECRET_BYTES
from elbowroom.store.place import OTHER_ENCODING, ServerPlace
from elbowroom.store.sql.dialect.words import INSERTED, ROLE

DRIVER: Final = "postgresql+elbowroom"
CONNECTING: Final = {"connect_timeout": "5", "tcp_user_timeout": "10000", "keepalives_idle": "30"}
"""Options of libpq that count where the address names no others: seconds, milliseconds, seconds."""
SETTINGS: Final = {
    "lock_timeout": "'10s'",
    "statement_timeout": "'120s'",
    "idle_in_transaction_session_timeout": "'300s'",
    "jit": "off",  # which takes longer than the questions
}
SETTLING: Final = SETTINGS | {
    "lock_timeout": "'1500ms'",
    "synchronous_commit": "off",
}
"""What servers settle among each other takes milliseconds, and is begun anew after a power cut."""
SECONDS_BETWEEN_LOOKS: Final = 0.05
"""How often a search looks whether it is still wanted."""
OPENED: Final[WeakKeyDictionary[Engine, WeakSet[Any]]] = WeakKeyDictionary()
"""The connections of each engine that may still make some."""
OPENING: Final = threading.Lock()
ADVISORY_LOCK: Final = 0x656C626F77726F6F
"""Held while the tables are made or changed, so that no two servers do that."""
OLDEST: Final = 15
"""The oldest PostgreSQL whose words are used here."""
READ_ONLY: Final = "25006"
LOCKED: Final = "55P03"
UNREACHABLE: Final = "its database server cannot be reached"
SAID_PLAINLY: Final = {
    "08": UNREACHABLE,
    "28": "its database server refuses the user's name or password",
    "3D": "its database server has no database of this name",
    "42501": "its database server gives it too few rights",
    READ_ONLY: "its database server takes no changes at the moment",
    "53": "its database server is overloaded",
    "53100": "the disk of its database server is full",
    LOCKED: "its database server takes too long",
    "57014": "its database server takes too long",
    "57P": UNREACHABLE,
    "58": "the disk of its database server reports an error",
    "XX001": "its database server reports that data is damaged",
    "XX002": "its database server reports that data is damaged",
}
"""What to tell people by the beginning of an SQLSTATE; of several the longest counts."""
CANNOT_CONNECT: Final = {
    "authentication failed": SAID_PLAINLY["28"],
    "no password supplied": SAID_PLAINLY["28"],
    "does not exist": SAID_PLAINLY["3D"],
}
"""What a failure to connect says, for which libpq tells no SQLSTATE."""
READ_ROLE: Final = (
    f"CREATE FUNCTION {ROLE}(fields text) RETURNS text LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$ BEGIN "
    "RETURN regexp_replace(replace(fields, '\\\\', '//'), '\\\\u(0000|[dD][89a-fA-F]..)', '?', 'g')::json ->> 'role'; "
    "EXCEPTION WHEN data_exception THEN RETURN ''; END $$"
)
"""Reads a role beside what JSON may hold and PostgreSQL's own functions refuse: a NUL, and halves of pairs."""
GRANT_WINDOW: Final = """
CREATE FUNCTION grant_window(wanted text, capacity bigint, counts_for double precision)
RETURNS TABLE (granted bigint, holder text) LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY
    WITH living AS (
        SELECT admission.* FROM admission JOIN servers ON servers.id = admission.server
        WHERE pool = wanted AND servers.renewed > extract(epoch FROM clock_timestamp()) - counts_for
    ), line AS (
        SELECT number, tokens, sum(tokens) OVER (ORDER BY rank, number)
            + (SELECT coalesce(sum(tokens), 0) FROM living WHERE is_granted) AS filled
        FROM living WHERE NOT is_granted
    )
    UPDATE admission SET is_granted = true FROM line
    WHERE admission.number = line.number AND (filled <= capacity OR filled = line.tokens)
    RETURNING admission.number::bigint, admission.server::text;
END $$"""
"""Grants the leases of a model that there is room for, in order up to the first that finds none.

A lease counts where its server was there so many seconds ago; one that is too large for the model is granted alone.
"""
HOLD_WINDOW: Final = """
CREATE FUNCTION hold_window(wanted text, asking text, share integer, goes_at integer, capacity bigint,
    counts_for double precision, lock integer)
RETURNS TABLE (made bigint, granted bigint, holder text) LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(lock, hashtext(wanted));
    INSERT INTO admission (pool, server, tokens, rank, is_granted) VALUES (wanted, asking, share, goes_at, false)
    RETURNING number INTO made;
    RETURN QUERY SELECT made, new.granted, new.holder FROM grant_window(wanted, capacity, counts_for) AS new
    UNION ALL SELECT made, NULL, NULL;
END $$"""
"""Makes a lease and grants what there is room for. It is a function, whose statements are planned only once."""
OWN_TABLES: Final = (
    "ALTER TABLE messages ADD COLUMN letters tsvector",
    "CREATE INDEX messages_by_letters ON messages USING gin (letters)",
    "CREATE INDEX messages_without_letters ON messages (number) WHERE letters IS NULL",
    f"ALTER TABLE memories ADD COLUMN {INSERTED} BIGINT GENERATED ALWAYS AS IDENTITY",
    "CREATE TABLE store_secret (number INTEGER PRIMARY KEY CHECK (number = 1), secret BYTEA NOT NULL)",
    READ_ROLE,
    GRANT_WINDOW,
    HOLD_WINDOW,
)
"""What the tables have on PostgreSQL alone: the letters of a message for searches, null until it is in the index."""


class ServerDialect(PGDialect_psycopg):
    """PostgreSQL, equal to every other of this kind, so that engines share translations."""

    supports_statement_cache = True

    def is_disconnect(self, e: Any, connection: Any, cursor: Any) -> bool:
        """Tell whether another connection may do what this one cannot: it is lost, or its server was demoted."""
        is_lost: bool = super().is_disconnect(e, connection, cursor)  # type: ignore[no-untyped-call]
        return is_lost or getattr(e, "sqlstate", None) == READ_ONLY

    def __eq__(self, other: object) -> bool:
        """Tell whether a statement is the same in both."""
        return type(other) is type(self)

    def __hash__(self) -> int:
        """Return one number for all."""
        return hash(type(self))


registry.register(DRIVER.replace("+", "."), __name__, ServerDialect.__name__)


def create_engines(place: ServerPlace, readers: int) -> tuple[Engine, Engine]:
    """Return an engine that reads and one that writes on its only connection.

    A transaction that reads sees one moment. Errors never quote the values that were to be written.
    """
    return _engine(place, readers, is_reading=True), _engine(place, 1, is_reading=False)


def settling_engine(place: ServerPlace) -> Engine:
    """Return an engine with one connection for what servers settle among each other: each statement is over at once.

    So nobody who is stopped in the middle of it holds a lock.
    """
    return _engine(place, 1, is_reading=False, settings=SETTLING).execution_options(isolation_level="AUTOCOMMIT")


def has_lost(connection: Connection) -> bool:
    """Tell whether a connection that nobody has used for a while has been closed by the server, which is not asked."""
    return connection.invalidated or _is_lost(connection.connection.dbapi_connection)


def break_off(engine: Engine) -> None:
    """End the connections of an engine whose server no longer answers, and let it make no others; from any thread.

    Whoever waits on one of them gets an error as from a server that is gone.
    """
    with OPENING:
        opened = list(OPENED.pop(engine, ()))
    for connection in opened:
        with suppress(Exception), socket.socket(fileno=os.dup(connection.fileno())) as same:  # unless it has ended
            same.shutdown(socket.SHUT_RDWR)


def lock_tables(connection: Connection) -> None:
    """Hold the right to make or change tables until the transaction ends."""
    connection.exec_driver_sql("SET LOCAL lock_timeout = 0")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({ADVISORY_LOCK})")


@contextmanager
def sole_holder(place: ServerPlace, lock: int, holders: set[Engine] | None = None) -> Iterator[bool]:
    """Hold a lock on a connection of its own, whose engine is in `holders` until the end; tells whether it was free.

    The lock is that of a transaction, so that it also works through a pooler, and goes with the connection.
    """
    unused, engine = create_engines(place, 1)
    unused.dispose()
    holders = set() if holders is None else holders
    holders.add(engine)
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")
            yield try_lock(connection, lock)
    finally:
        engine.dispose()
        holders.discard(engine)


def try_lock(connection: Connection, lock: int) -> bool:
    """Take a lock until the transaction ends, unless another transaction has it; tell whether that went well."""
    return bool(connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({lock})").scalar_one())


def kept_secret(connection: Connection) -> bytes:
    """Return the secret that the database keeps, made where there is none."""
    given = {"secret": secrets.token_bytes(SECRET_BYTES)}
    connection.execute(text("INSERT INTO store_secret VALUES (1, :secret) ON CONFLICT DO NOTHING"), given)
    return bytes(connection.exec_driver_sql("SELECT secret FROM store_secret").scalar_one())


def found_secret(connection: Connection) -> bytes | None:
    """Return the secret that the database keeps, None where nobody has needed one."""
    found = connection.exec_driver_sql("SELECT secret FROM store_secret").scalar()
    return None if found is None else bytes(found)


def keep_secret(connection: Connection, secret: bytes) -> None:
    """Keep a secret in place of the one that is kept."""
    connection.exec_driver_sql("DELETE FROM store_secret")
    connection.execute(text("INSERT INTO store_secret VALUES (1, :secret)"), {"secret": secret})


def number_from(connection: Connection, table: Table, first: int) -> None:
    """Let the numbers that a table gives out go on from here, which is above all that it has."""
    given = {"table": table.name, "first": first}
    connection.execute(text("SELECT setval(pg_get_serial_sequence(:table, 'number'), :first, false)"), given)


def last_number(connection: Connection, table: Table) -> int:
    """Return the highest number that a table has given out, also to a row that is deleted; 0 for none."""
    sequence = connection.execute(
        text("SELECT pg_get_serial_sequence(:table, 'number')"), {"table": table.name}
    ).scalar_one()
    given = "CASE WHEN is_called THEN last_value ELSE last_value - 1 END"
    question = f"SELECT greatest((SELECT max(number) FROM {table.name}), {given}) FROM {sequence}"  # noqa: S608
    return int(connection.exec_driver_sql(question).scalar_one())


def rows_written(connection: Connection, tables: Sequence[str]) -> int:
    """Return how many rows of these tables were ever inserted, changed or deleted, as the server counts them."""
    own = "SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables WHERE schemaname = current_schema()"
    return int(connection.execute(text(f"{own} AND relname = ANY(:tables)"), {"tables": list(tables)}).scalar() or 0)


def refresh_statistics(connection: Connection) -> None:
    """Have the server look at the rows that came in, by which it plans how to answer questions."""
    connection.exec_driver_sql("ANALYZE")


def faults(connection: Connection) -> list[str]:
    """Return what is wrong with the server and the database, in sentences."""

    def setting(name: str) -> str:
        return str(connection.exec_driver_sql(f"SHOW {name}").scalar_one())

    found = []
    if int(setting("server_version_num")) < OLDEST * 10_000:
        found.append(f"The server is PostgreSQL {setting('server_version')}; elbowroom needs {OLDEST} or newer.")
    if setting("in_hot_standby") == "on":
        found.append("The server is a replica, which takes no changes.")
    return found


@contextmanager
def stopped_when(connection: Connection, is_over: Callable[[], bool]) -> Iterator[None]:
    """End statements with an error once this is true."""
    driver: Any = connection.connection.driver_connection
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.wait(SECONDS_BETWEEN_LOOKS):
            if is_over():
                with suppress(Exception):  # the statement may have ended, or the connection
                    driver.cancel_safe(timeout=5.0)

    watching = threading.Thread(target=watch, name="store-search-watcher", daemon=True)
    watching.start()
    try:
        yield
    finally:
        is_done.set()
        watching.join()


def content_bytes(connection: Connection) -> int:
    """Return how many bytes the rows take, as the database's own statistics tell, but no more than its files do.

    The room of deleted rows stays in the files, so that their size alone tells too much.
    """
    return int(connection.exec_driver_sql(CONTENT_BYTES).scalar_one())


CONTENT_BYTES: Final = """
SELECT coalesce(sum(least(files, CASE WHEN width IS NULL THEN files ELSE live * (width + 28) END)), 0)
FROM (
    SELECT pg_total_relation_size(own.relid) AS files, own.n_live_tup AS live,
        (SELECT sum(avg_width) FROM pg_stats WHERE schemaname = own.schemaname AND tablename = own.relname) AS width
    FROM pg_stat_user_tables own WHERE own.schemaname = current_schema()
) AS of_tables
"""


def unavailable(error: BaseException | None) -> StoreUnavailable:
    """Return an error of psycopg as one of the store's."""
    state, message = getattr(error, "sqlstate", None) or "", " ".join(str(error).split())
    known = [plainly for start, plainly in sorted(SAID_PLAINLY.items()) if state.startswith(start)] if state else []
    if not state and _is_of_connection(error):
        known = [said for words, said in CANNOT_CONNECT.items() if words in message] or [UNREACHABLE]
    kind = StoreBusy if state == LOCKED else StoreUnavailable
    return kind(message, known[-1]) if known else kind(message)


def _is_of_connection(error: BaseException | None) -> bool:
    return type(error).__name__ in ("OperationalError", "ConnectionTimeout", "InterfaceError")


def _engine(
    place: ServerPlace, connections: int, *, is_reading: bool, settings: Mapping[str, str] = SETTINGS
) -> Engine:
    engine = create_engine(
        f"{DRIVER}://",
        connect_args={name: value for name, value in CONNECTING.items() if f"{name}=" not in place.address},
        hide_parameters=True,
        poolclass=QueuePool,
        pool_size=connections,
        max_overflow=0,
        isolation_level="REPEATABLE READ" if is_reading else "READ COMMITTED",
        use_native_hstore=False,  # of which it would ask at each start
    )

    def connect(dialect: Any, _: ConnectionPoolEntry, __: Any, options: dict[str, Any]) -> Any:
        password = _password_of(place)
        secret = {"password": password} if password else {}
        # libpq reads the address itself, which may name several servers, or a file of its own with all of this.
        if engine not in OPENED:
            raise StoreUnavailable("it has been closed", UNREACHABLE)
        made = dialect.loaded_dbapi.connect(place.address, fallback_application_name="elbowroom", **options, **secret)
        if (encoding := made.info.parameter_status("server_encoding")) != "UTF8":
            made.close()
            raise StoreUnavailable(wrong := OTHER_ENCODING.format(encoding=encoding), wrong)
        with OPENING:
            if engine in OPENED:
                OPENED[engine].add(made)
                return made
        made.close()
        raise StoreUnavailable("it has been closed", UNREACHABLE)

    def prepare(connection: Any, _: ConnectionPoolEntry) -> None:
        connection.autocommit = True
        connection.execute("; ".join(f"SET {name} = {value}" for name, value in settings.items()))
        connection.autocommit = False
        connection.read_only = is_reading or None

    OPENED[engine] = WeakSet()
    event.listen(engine, "do_connect", connect)
    event.listen(engine, "connect", prepare)
    event.listen(engine, "checkout", _look_at_connection)
    return engine


def _password_of(place: ServerPlace) -> str | None:
    try:
        return place.password()
    except SettingsError as error:
        raise StoreUnavailable(str(error), "the password of its database cannot be read") from error


def _look_at_connection(connection: DBAPIConnection, _: ConnectionPoolEntry, __: Any) -> None:
    """Have all connections made anew where the server has closed this one while nobody used it."""
    if _is_lost(connection):
        raise InvalidatePoolError


def _is_lost(driver: Any) -> bool:
    """Tell whether the server has closed a connection while nobody used it; the server is not asked."""
    try:
        if not driver.closed and readable([driver.fileno()], [], [], 0)[0]:
            driver.pgconn.consume_input()
        return bool(driver.closed or driver.pgconn.status != 0)
    except Exception:  # noqa: BLE001  # whatever libpq says of a connection that is lost
        return True
