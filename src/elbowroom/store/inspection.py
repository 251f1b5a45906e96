"""Looks at a database's file from outside, without changing anything: for `elbowroom doctor`."""

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from filelock import FileLock, Timeout

from elbowroom.store.tables import SCHEMA_VERSION, schema_version

CHECK_SECONDS: Final = 6.0
STEPS_BETWEEN_LOOKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Inspection:
    """How a file is; `detail` is the end of a sentence, empty where there is nothing to add."""

    state: Literal["absent", "sound", "damaged", "newer", "unreadable", "unchecked"]
    detail: str = ""


def inspect_file(path: Path) -> Inspection:
    """Return how the file is; reading it is given up after some seconds. For threads."""
    if not path.exists():
        return Inspection("absent")
    # Without a log beside it nobody writes the file; opened any other way, SQLite would leave an empty one behind.
    way = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, timeout=1.0)) as connection:
            return _inspected(connection, time.monotonic() + CHECK_SECONDS)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Inspection("damaged", str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Inspection("unchecked", "another program holds it")
        return Inspection("unreadable", str(error))


def is_in_use(path: Path) -> bool:
    """Tell whether a server holds the lock beside the file. For threads."""
    lock_file = path.with_name(f"{path.name}.lock")
    if not lock_file.exists():
        return False
    lock = FileLock(lock_file, mode=0o600, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return True
    except OSError:
        return False
    lock.release()
    return False


def _inspected(connection: sqlite3.Connection, deadline: float) -> Inspection:
    has_tables = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [schema_version.name]
    ).fetchone()
    if has_tables:
        found = connection.execute(f'SELECT max(version) FROM "{schema_version.name}"').fetchone()[0] or 0  # noqa: S608
        if found > SCHEMA_VERSION:
            return Inspection("newer")
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_INTERRUPT:
            return Inspection("unchecked", f"that takes more than {CHECK_SECONDS:g} seconds")
        raise
    return Inspection("sound") if answer == "ok" else Inspection("damaged", " ".join(str(answer).split()))
