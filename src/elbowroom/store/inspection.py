"""Inspects a database's file without changing anything, for `elbowroom doctor`."""

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from elbowroom.store.base import SCHEMA_VERSION, VERSION_TABLE
from elbowroom.store.lock import doubt_about

CHECK_SECONDS: Final = 6.0
STEPS_BETWEEN_LOOKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state of a file; `detail` is the end of a sentence, empty where there is nothing to add."""

    state: Literal["absent", "sound", "damaged", "newer", "unreadable", "unchecked"]
    detail: str = ""


def inspect_file(path: Path) -> Inspection:
    """Return the state of the file; reading is given up after some seconds. For threads."""
    if not path.exists():
        return Inspection("absent")
    # Without a log beside it nobody writes the file; opened any other way, SQLite would create an empty one.
    way = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{way}", uri=True, timeout=1.0)) as connection:
            return _read(path, connection, time.monotonic() + CHECK_SECONDS)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return Inspection("damaged", str(error))
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return Inspection("unchecked", "another program holds it")
        return Inspection("unreadable", str(error))


def _read(path: Path, connection: sqlite3.Connection, deadline: float) -> Inspection:
    has_tables = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [VERSION_TABLE]
    ).fetchone()
    if has_tables:
        found = connection.execute(f'SELECT max(version) FROM "{VERSION_TABLE}"').fetchone()[0] or 0  # noqa: S608
        if found > SCHEMA_VERSION:
            return Inspection("newer")
    connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS_BETWEEN_LOOKS)
    try:
        answer = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_INTERRUPT:
            return Inspection("unchecked", f"that takes more than {CHECK_SECONDS:g} seconds{_doubted(path)}")
        raise
    return Inspection("sound") if answer == "ok" else Inspection("damaged", " ".join(str(answer).split()))


def _doubted(path: Path) -> str:
    if doubt_about(path) is None:
        return ""
    return "; it was not closed when elbowroom last ended, and elbowroom checks it while it runs"
