"""A file that an older elbowroom wrote is taken over in place."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from kept_outputs import ME, file_store, text_of, written_down
from ledger_files import keys_in, query
from ledger_samples import compaction, conversation, spoken
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable

from elbowroom.store.message_json import encoded
from elbowroom.store.tables import metadata

VERSION_1 = """
CREATE TABLE schema_version (version INTEGER NOT NULL);
CREATE TABLE ledger_entries (
    "key" VARCHAR NOT NULL, messages TEXT NOT NULL, window INTEGER NOT NULL, "before" INTEGER NOT NULL,
    "after" INTEGER NOT NULL, rung VARCHAR NOT NULL, created FLOAT NOT NULL, last_used FLOAT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX ledger_entries_by_last_use ON ledger_entries (last_used);
CREATE TABLE archived_messages (
    "key" VARCHAR NOT NULL, parent VARCHAR NOT NULL, message TEXT NOT NULL, saved FLOAT NOT NULL, PRIMARY KEY ("key")
);
INSERT INTO schema_version VALUES (1);
"""


async def test_tables_of_version_1_are_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Compactions of a version-1 file are found as before, and outputs and memories are kept beside them."""
    path = tmp_path / "elbowroom.db"
    entry, archive = compaction(conversation(3))
    values = (encoded(entry.messages), entry.window, entry.before, entry.after, entry.rung, entry.created)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(VERSION_1)
        connection.execute("INSERT INTO ledger_entries VALUES (?, ?, ?, ?, ?, ?, ?, 0)", (entry.key, *values))
        nodes = [(node.key, node.parent, encoded(node.message)) for node in archive]
        connection.executemany("INSERT INTO archived_messages VALUES (?, ?, ?, 0)", nodes)
    for _ in range(2):
        async with file_store(path) as store:
            assert await store.ledger.find([entry.key]) == [entry]
            assert await store.ledger.archived(entry.key) == spoken(conversation(3))
            ref = await store.tool_outputs.keep(ME, "read", "text")
            assert await text_of(store.tool_outputs, ref.id) == "text"
            await store.memories.save(ME, "agent", "likes tea", 1.0)
            assert await written_down(store.memories) == ["likes tea"]
        assert query(path, "SELECT version FROM schema_version") == [(3,)]
        assert query(path, "SELECT id FROM tool_outputs") == [(ref.id,)]
        assert keys_in(path) == {entry.key}
    assert not caplog.records


def test_the_tables_are_no_sqlite_speciality() -> None:
    """PostgreSQL could have all of them."""
    dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in metadata.tables.values():
        assert str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect))
