"""A disk that is full for a while: from a chosen statement of SQLite on, some fail, and so do commits."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

from sqlalchemy import Engine, create_engine

from elbowroom.store.sql.dialect import sqlite


@dataclass
class FullDisk:
    """Refuses `most` statements after the first `sound` ones, until it `is_healed`; `refused` counts them."""

    sound: int
    most: int
    is_healed: bool = False
    seen: int = 0
    refused: int = 0

    def check(self) -> None:
        """Count a statement. Raises sqlite3.OperationalError where it is one that fails."""
        self.seen += 1
        if not self.is_healed and self.sound < self.seen <= self.sound + self.most:
            self.refused += 1
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error


def _connection_on(disk: FullDisk) -> type[sqlite3.Connection]:
    """Return the connections to files on this disk."""

    class Cursor(sqlite3.Cursor):
        def execute(self, *given: Any) -> "Cursor":
            disk.check()
            super().execute(*given)
            return self

        def executemany(self, *given: Any) -> "Cursor":
            disk.check()
            super().executemany(*given)
            return self

    class OnDisk(sqlite3.Connection):
        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def execute(self, *given: Any) -> sqlite3.Cursor:
            disk.check()
            return super().execute(*given)

        def commit(self) -> None:
            disk.check()
            super().commit()

    return OnDisk


@cache
def _known() -> Engine:
    """Return an engine from which all others take over what it has translated into SQL, for there are hundreds."""
    engine = create_engine("sqlite://", paramstyle="named")
    with engine.connect():
        pass  # by which it learns what SQLite can do
    engine.dispose()
    return engine


@contextmanager
def files_on(disk: FullDisk) -> Iterator[None]:
    """Let all databases that are opened in this block be on this disk, which nobody waits for."""
    factory = _connection_on(disk)

    def engine(url: Any, *, connect_args: dict[str, Any], **options: Any) -> Any:
        if url.database != ":memory:":
            connect_args = {**connect_args, "factory": factory}
        made, known = create_engine(url, connect_args=connect_args, **options), _known()
        made.dialect, made._compiled_cache = known.dialect, known._compiled_cache
        return made

    make: Callable[..., Any] = engine
    hasty = [pragma.replace("synchronous = FULL", "synchronous = OFF") for pragma in sqlite.WRITING]
    with patch.object(sqlite, "create_engine", make), patch.object(sqlite, "WRITING", hasty):
        yield
