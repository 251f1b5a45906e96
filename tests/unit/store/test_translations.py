"""Translations of statements into SQL: made once in a process, whatever number of files it opens."""

from pathlib import Path
from typing import Any

import pytest

from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.dialect import SharedDialect


async def test_a_second_store_translates_nothing_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another file is made, opened and closed with what the first has had translated."""
    translated: list[Any] = []
    for compiler in ("statement_compiler", "ddl_compiler"):
        make = getattr(SharedDialect, compiler)

        def noting(dialect: Any, statement: Any, *rest: Any, make: Any = make, **named: Any) -> Any:
            translated.append(statement)
            return make(dialect, statement, *rest, **named)

        monkeypatch.setattr(SharedDialect, compiler, staticmethod(noting))
    for name in ("first.db", "second.db"):
        translated.clear()
        store = await SqlStore.open(tmp_path / name)
        await store.conversations.queue()
        await store.aclose()
    assert [str(statement) for statement in translated] == []
