"""Inspects a database without changing anything: for `elbowroom doctor`, and for a server that starts."""

import math
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from elbowroom.errors import SettingsError
from elbowroom.store.base import SCHEMA_VERSION, UNFINISHED, VERSION_TABLE
from elbowroom.store.lock import doubt_about
from elbowroom.store.place import OTHER_ENCODING, Place, ServerPlace

if TYPE_CHECKING:
    import sqlite3

    from psycopg import Connection

CHECK_SECONDS: Final = 6.0
START_SECONDS: Final = 2.0
"""How long a server that starts looks for its database; it goes on without."""
VERSION: Final = f'SELECT max(version) FROM "{VERSION_TABLE}"'  # noqa: S608
STEPS_BETWEEN_LOOKS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Inspection:
    """The state of a file; `detail` is the end of a sentence, empty where there is nothing to add."""

    state: Literal["absent", "sound", "damaged", "newer", "unfinished", "unreadable", "unchecked"]
    detail: str = ""


def inspect_file(path: Path) -> Inspection:
    """Return the state of the file; reading is given up after some seconds. For threads."""
    import sqlite3

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


def inspect_server(place: ServerPlace) -> Inspection:
    """Return the state of a database on a PostgreSQL server. For threads."""
    import psycopg

    try:
        with _connected(place, CHECK_SECONDS) as connection:
            if wrong := _wrong_encoding(connection):
                return Inspection("unreadable", wrong)
            has_tables = connection.execute("SELECT to_regclass(%s)", [VERSION_TABLE]).fetchone() != (None,)
            found = connection.execute(VERSION).fetchone() if has_tables else None
    except (psycopg.Error, SettingsError) as error:
        return Inspection("unreadable", " ".join(str(error).split()).removesuffix("."))
    if found is None:
        return Inspection("absent")
    return _of_version(found[0] or 0) or Inspection("sound")


def check_encoding(place: Place) -> None:
    """Raise SettingsError where a database server cannot hold every text, which no waiting mends.

    One that is out of reach, or whose password is, passes: that may come. Takes two seconds at most, as a rule.
    """
    if not isinstance(place, ServerPlace):
        return
    import psycopg

    try:
        with _connected(place, START_SECONDS) as connection:
            wrong = _wrong_encoding(connection)
    except (psycopg.Error, SettingsError):
        return
    if wrong:
        raise SettingsError(f"The store {place} cannot be used: {wrong}.")


def _connected(place: ServerPlace, seconds: float) -> "Connection[Any]":
    import psycopg

    limit = {} if "connect_timeout=" in place.address else {"connect_timeout": math.ceil(seconds)}
    password = place.password()
    return psycopg.connect(place.address, **({"password": password, **limit} if password else limit))


def _wrong_encoding(connection: "Connection[Any]") -> str | None:
    """Return what is wrong with the encoding of a database, and the command that mends it; None for nothing."""
    encoding = connection.info.parameter_status("server_encoding")
    return None if encoding == "UTF8" else OTHER_ENCODING.format(encoding=encoding)


def _of_version(found: int) -> Inspection | None:
    if found > SCHEMA_VERSION:
        return Inspection("newer")
    return Inspection("unfinished", UNFINISHED) if found < 0 else None


def _read(path: Path, connection: "sqlite3.Connection", deadline: float) -> Inspection:
    import sqlite3

    has_tables = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", [VERSION_TABLE]
    ).fetchone()
    if has_tables:
        found = connection.execute(VERSION).fetchone()[0] or 0
        if refused := _of_version(found):
            return refused
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
