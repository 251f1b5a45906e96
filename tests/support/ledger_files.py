"""A store's file in the hands of a test: opened, looked into, held by another program, broken."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event
from standing_clock import DAY, Clock

from elbowroom.context.ledger import Entry
from elbowroom.context.transcript import Message
from elbowroom.store import Store
from elbowroom.store.base import LIMITS_IN_MEMORY, Limits
from elbowroom.store.packed import packed_entry
from elbowroom.store.place import Place
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.rows import SqlLedger
from elbowroom.store.write_behind import Patience

SOON = Patience(opening=30, again=0.05, closing=30)
HOLDER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA locking_mode = EXCLUSIVE")
connection.execute("BEGIN EXCLUSIVE")
connection.execute("CREATE TABLE IF NOT EXISTS held (x)")
print("held", flush=True)
sys.stdin.read()
connection.execute("ROLLBACK")
connection.close()
"""


@asynccontextmanager
async def sql_store(place: Place, limits: Limits | None = None, clock: Clock | None = None) -> AsyncIterator[SqlStore]:
    """Open a store, let it go back within its limits, and close it again."""
    store = await SqlStore.open(place, limits, clock.watched() if clock else None)
    try:
        await store._apply_limits()
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def store_after_a_day(path: Path, limits: Limits, clock: Clock) -> AsyncIterator[SqlStore]:
    """Open a store's file, let a day of running pass so that it trusts the clock, and the limits be applied."""
    async with sql_store(path, limits, clock) as store:
        clock.now += DAY
        await store._apply_limits()
        yield store


async def finished(store: SqlStore) -> None:
    """Wait until the limits are applied that were begun in the background, and all is written that was asked for."""
    if store._limiting:
        await store._limiting
    await store._database.write(lambda _: None)


@asynccontextmanager
async def file_store(
    place: Place,
    patience: Patience = SOON,
    begin: Callable[[], Awaitable[SqlStore]] | None = None,
) -> AsyncIterator[Store]:
    """Give a store with its rows at this place, which it soon tries again, or without one in memory."""
    limits = None if place else LIMITS_IN_MEMORY
    store = Store(str(place), begin or (lambda: SqlStore.open(place, limits)), patience)
    try:
        yield store
    finally:
        await store.aclose()


async def save_entry(sql: SqlStore, entry: Entry, made_from: Sequence[Message] = ()) -> None:
    """Save an entry in an open database."""
    packed = packed_entry(entry, made_from)
    assert packed
    await sql.ledger.save(packed)


def sql_of(store: Store) -> SqlStore:
    """Return the open database of a store."""
    assert store.current
    return store.current


@contextmanager
def counted_statements(rows: SqlLedger) -> Iterator[list[str]]:
    """Collect the SQL statements that are executed, without those that begin and end a transaction."""
    statements: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    engines = [rows.database._readers, rows.database._writer]
    for engine in engines:
        event.listen(engine, "before_cursor_execute", note)
    try:
        yield statements
    finally:
        for engine in engines:
            event.remove(engine, "before_cursor_execute", note)


def query(path: Path, statement: str, values: Sequence[Any] = ()) -> list[Any]:
    """Ask the file directly, or change it; returns the rows as tuples."""
    with closing(sqlite3.connect(path)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def write(path: Path, *scripts: str) -> None:
    """Run SQL scripts on a file."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for script in scripts:
            connection.executescript(script)


def bytes_of(path: Path) -> bytes:
    """Return what is in the file."""
    return path.read_bytes()


def keys_in(path: Path) -> set[str]:
    """Return the keys of the entries in the file, which has to be sound."""
    assert query(path, "PRAGMA integrity_check") == [("ok",)]
    return {key for (key,) in query(path, "SELECT key FROM ledger_entries")}


@contextmanager
def held_by_another_program(path: Path) -> Iterator[None]:
    """Let another process hold the file so that nobody else can read or write it."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        yield
        holder.stdin.close()
        holder.wait()


def _has(path: Path, key: str) -> bool:
    try:
        return bool(query(path, "SELECT 1 FROM ledger_entries WHERE key = ?", [key]))
    except sqlite3.DatabaseError:
        return False


async def save_until_written(store: Store, path: Path, entry: Entry, made_from: Sequence[Message]) -> None:
    """Save an entry, then go on asking, as requests would, until the file has it."""
    await store.ledger.save(entry, made_from)
    deadline = time.monotonic() + 60
    while not _has(path, entry.key):
        assert time.monotonic() < deadline, "it was never written"
        await store.ledger.keys()
        await asyncio.sleep(0.05)
