"""A store's file in the hands of a test: opened, looked into, held by another program, broken."""

import asyncio
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import event

from elbowroom.context.ledger import Archived, Entry
from elbowroom.settings.model import StoreSettings
from elbowroom.store.lasting_rows import LastingLedgerRows
from elbowroom.store.lasting_store import LastingStore, Patience
from elbowroom.store.ledger_rows import SqlLedgerRows
from elbowroom.store.limits import Limits
from elbowroom.store.opening import database_path
from elbowroom.store.sql_store import SqlStore

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
async def sql_store(
    path: Path, limits: Limits | None = None, clock: Callable[[], float] = time.time
) -> AsyncIterator[SqlStore]:
    """Open a store's file, let it go back within its limits, and close it again."""
    store = await SqlStore.open(path, limits, clock)
    try:
        await store._tasks.finished()
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def sql_rows(
    path: Path, retention_days: int = 0, clock: Callable[[], float] = time.time
) -> AsyncIterator[SqlLedgerRows]:
    """Open a store's file for the rows of the ledger and close it again."""
    async with sql_store(path, Limits(retention_days), clock) as store:
        yield store.ledger


def lasting_store(path: Path, patience: Patience = SOON) -> LastingStore:
    """Return a store that soon tries the file at this path again."""
    found = database_path(StoreSettings(url=f"sqlite+aiosqlite:///{path}"), {})
    assert found == path
    return LastingStore(str(path), lambda: SqlStore.open(path), patience)


class OwnLedgerRows(LastingLedgerRows):
    """Rows that close their store with them."""

    async def aclose(self) -> None:
        """Close the store."""
        await self._store.aclose()


def lasting_rows(path: Path, patience: Patience = SOON) -> OwnLedgerRows:
    """Return rows that fall back to memory, and soon try the file at this path again."""
    return OwnLedgerRows(lasting_store(path, patience))


@contextmanager
def counted_statements(rows: SqlLedgerRows) -> Iterator[list[str]]:
    """Collect the SQL statements that are executed, without those that begin and end a transaction."""
    statements: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        if not statement.startswith("BEGIN"):
            statements.append(statement)

    engines = [engine.sync_engine for engine in (rows._database._readers, rows._database._writer)]
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


async def save_until_written(rows: LastingLedgerRows, path: Path, entry: Entry, archive: Sequence[Archived]) -> None:
    """Save an entry, then go on asking, as requests would, until the file has it."""
    await rows.save(entry, archive)
    deadline = time.monotonic() + 60
    while not _has(path, entry.key):
        assert time.monotonic() < deadline, "it was never written"
        await rows.keys()
        await asyncio.sleep(0.05)
