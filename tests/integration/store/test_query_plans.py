"""No question of a turn, a page or a list, and nothing that writes, costs more where more is kept."""

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Delete, Insert, Update, event
from sqlalchemy.dialects import sqlite
from stored_conversations import ME, whole

from elbowroom.context.conversation import PageWanted
from elbowroom.store.sql import SqlConversations, SqlStore, statements
from elbowroom.store.sql.conversations import _named, _newest

Question = Callable[[SqlConversations], Coroutine[Any, Any, Any]]
NOTHING_KEPT = ("SCAN CONSTANT ROW", "SCAN path", "SCAN (subquery")
"""What is gone through without reading what is kept: a value, the places of a walk that ends early."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    """A store in a file, with two conversations."""
    store = await SqlStore.open(tmp_path / "elbowroom.db")
    await store._tasks.finished()  # limits and the index ask questions of their own
    await store.conversations.write([*whole("c", name="chat"), *whole("d")])
    try:
        yield store
    finally:
        await store.aclose()


async def plans(store: SqlStore, asked: list[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Return each step of the plans of statements, with the statement."""

    def explain(connection: Connection) -> list[tuple[str, str]]:
        driver: Any = connection.connection.driver_connection
        found = []
        for sql, given in asked:
            found += [(sql, row[3]) for row in driver.execute(f"EXPLAIN QUERY PLAN {sql}", given)]
        return found

    return await store._database.read(explain)


def costly(steps: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the steps that read a whole table, or all turns of a conversation."""
    return [
        (sql, step)
        for sql, step in steps
        if (step.startswith("SCAN") and not step.startswith(NOTHING_KEPT)) or "turns_by_conversation" in step
    ]


def page_of(wanted: PageWanted) -> Question:
    """Return the question for a page."""
    return lambda kept: kept.page(ME, "c", wanted)


@pytest.mark.parametrize(
    "question",
    [
        lambda kept: kept.rows(ME, limit=21),
        lambda kept: kept.rows(ME, before=5.0, limit=21),
        lambda kept: kept.find(ME, "c"),
        lambda kept: kept.find(ME, "chat"),
        lambda kept: kept.holder(ME, "c-t"),
        lambda kept: kept.turns("c", ["c.1", "c.2"]),
        lambda kept: kept.overview(ME, "c"),
        lambda kept: kept.message(ME, "c", "c-t.2"),
        *(
            page_of(PageWanted(2, cursor, is_backward, is_latest))
            for cursor in ("", "c-t.1")
            for is_backward in (True, False)
            for is_latest in (True, False)
        ),
    ],
)
async def test_questions_use_indexes(store: SqlStore, question: Question) -> None:
    """Each statement of a question about one conversation, or a page of the list, finds its rows by an index."""
    asked: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if not statement.startswith("BEGIN"):
            asked.append((statement, parameters))

    event.listen(store._database._readers, "before_cursor_execute", note)
    assert await question(store.conversations) is not None
    assert asked
    assert costly(await plans(store, asked)) == []


async def test_a_name_is_found_by_the_index_of_names(store: SqlStore) -> None:
    """An owner's other conversations are not gone through, and a list goes through no more than its page."""
    named, newest = _named(ME, "chat"), _newest(ME).limit(21)
    for statement, index in ((named, "conversations_by_name (owner=? AND name=?)"), (newest, "conversations_by_owner")):
        sql = str(statement.compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}))
        [step, *_] = [step for _, step in await plans(store, [(sql, {})])]
        assert index in step


async def test_what_is_written_is_found_by_indexes(store: SqlStore) -> None:
    """No statement that writes a change reads a table, or all turns of a conversation; a deletion reads its own."""
    writing = [found for found in vars(statements).values() if isinstance(found, Insert | Update | Delete)]
    compiled = [found.compile(dialect=sqlite.dialect(paramstyle="named")) for found in writing]
    asked = [(str(each), dict.fromkeys(each.bind_names.values())) for each in compiled]
    assert len(asked) > 15
    assert costly(await plans(store, asked)) == []
