"""Translations of statements into SQL: made once in a process, whatever number of files it opens."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect.sqlite import TRANSLATIONS, SharedDialect
from elbowroom.store.sql.schema import _making, turns


async def test_a_second_file_is_made_and_read_without_a_translation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text of its tables, and what reads and writes it, are those of the first."""
    TRANSLATIONS.clear()
    _making.cache_clear()
    translated: list[Any] = []
    for compiler in ("statement_compiler", "ddl_compiler"):
        make = getattr(SharedDialect, compiler)

        def noting(dialect: Any, statement: Any, *rest: Any, make: Any = make, **named: Any) -> Any:
            translated.append(statement)
            return make(dialect, statement, *rest, **named)

        monkeypatch.setattr(SharedDialect, compiler, staticmethod(noting))

    async def use(name: str) -> int:
        database = await Database.open(tmp_path / name)
        await database.read(lambda connection: connection.scalar(select(turns.c.id)))
        await database.aclose()
        return len(translated)

    first = await use("first.db")
    assert first > 10
    assert await use("second.db") == first
