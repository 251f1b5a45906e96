"""A file that an older elbowroom wrote is taken over in place."""

import logging
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from conversation_rows import Stored, put
from every_kind_of_row import VERSION_4
from frozen_versions import FROZEN, all_of, fill, thawed
from kept_outputs import ME, text_of, written_down
from ledger_files import bytes_of, file_store, keys_in, query, sql_store, write
from ledger_samples import compaction, conversation
from sqlalchemy import MetaData, create_engine
from sqlalchemy.dialects import postgresql
from sqlalchemy.engine import Dialect
from sqlalchemy.schema import CreateIndex, CreateTable
from stored_conversations import write_behind_conversations

from elbowroom.context.conversation import CompactionDetails, CompactionNoted, KeptCompaction
from elbowroom.store.base import SCHEMA_VERSION, StoreUnavailable, encoded, owner_key
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import create_engines
from elbowroom.store.sql.schema import bring_up_to_date, metadata

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
VERSION_2 = """
CREATE TABLE tool_outputs (
    owner VARCHAR NOT NULL, id VARCHAR NOT NULL, tool TEXT NOT NULL, mime_type TEXT NOT NULL, bytes BIGINT NOT NULL,
    lines BIGINT NOT NULL, size BIGINT NOT NULL, saved FLOAT NOT NULL, last_used FLOAT NOT NULL,
    last_named FLOAT NOT NULL, PRIMARY KEY (owner, id)
);
CREATE INDEX tool_outputs_by_last_use ON tool_outputs (last_used);
CREATE TABLE tool_output_chunks (
    owner VARCHAR NOT NULL, id VARCHAR NOT NULL, line BIGINT NOT NULL, "column" BIGINT NOT NULL, content BLOB NOT NULL,
    PRIMARY KEY (owner, id, line, "column")
);
CREATE TABLE tool_output_uses (
    place VARCHAR NOT NULL, "key" VARCHAR NOT NULL, id VARCHAR NOT NULL, PRIMARY KEY (place, "key", id)
);
CREATE INDEX tool_output_uses_by_id ON tool_output_uses (id);
CREATE TABLE memories (
    room VARCHAR NOT NULL, id VARCHAR NOT NULL, text TEXT NOT NULL, saved FLOAT NOT NULL, PRIMARY KEY (room, id)
);
CREATE INDEX memories_by_age ON memories (room, saved);
UPDATE schema_version SET version = 2;
"""
SUPPORT = Path(__file__).parents[2] / "support"
VERSION_3 = (SUPPORT / "tables_of_version_3.sql").read_text()
NEW_COLUMNS = {"conversations": 3, "turns": 1, "messages": 1, "compactions": 4, "queue": 1}
"""How many columns tables have got since, of which old rows have nothing."""
KEPT_TABLES = (
    "ledger_entries", "tool_outputs", "tool_output_chunks", "memories", "conversations", "turns", "messages",
    "message_parts", "step_usage", "compactions", "queue",
)  # fmt: skip
OF_ME = f"UPDATE conversations SET owner = '{owner_key(ME)}';"
ALEMBIC_IS_LOADED = """
import asyncio, sys
from pathlib import Path
from elbowroom.store.sql.database import Database

async def main():
    for _ in range(2):
        database = await Database.open(Path(sys.argv[1]))
        await database.aclose()

asyncio.run(main())
sys.exit("alembic" in sys.modules)
"""


INDEX = re.compile("search_(index|terms)")


def differences(path: Path) -> list[object]:
    """Return where the tables in a file are not those that the code describes, apart from the index for searches."""
    engine = create_engine(f"sqlite:///{path}")
    described = {"include_name": lambda name, kind, _: kind != "table" or not INDEX.match(name)}
    own = MetaData()
    for table in metadata.tables.values():
        if table.info.get("is_of", "sqlite") == "sqlite":
            table.to_metadata(own)
    with engine.connect() as connection:
        found: list[object] = compare_metadata(MigrationContext.configure(connection, opts=described), own)
    engine.dispose()
    return found


async def test_tables_of_version_1_are_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Compactions of a version-1 file are found as before, and outputs and memories are kept beside them."""
    path = tmp_path / "elbowroom.db"
    entry, made_from = compaction(conversation(3))
    values = (encoded(entry.messages), entry.window, entry.before, entry.after, entry.rung, entry.created)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(VERSION_1)
        connection.execute("INSERT INTO ledger_entries VALUES (?, ?, ?, ?, ?, ?, ?, 0)", (entry.key, *values))
        archived = (entry.key, "", encoded(made_from[-1]))
        connection.execute("INSERT INTO archived_messages VALUES (?, ?, ?, 0)", archived)
    for _ in range(2):
        async with file_store(path) as store:
            assert await store.ledger.find([entry.key]) == [entry]
            ref = await store.tool_outputs.keep(ME, "read", "text")
            assert await text_of(store.tool_outputs, ref.id) == "text"
            await store.memories.save(ME, "agent", "likes tea", 1.0)
            assert await written_down(store.memories) == ["likes tea"]
        assert query(path, "SELECT version FROM schema_version") == [(SCHEMA_VERSION,)]
        assert query(path, "SELECT id FROM tool_outputs") == [(ref.id,)]
        assert keys_in(path) == {entry.key}
    assert not caplog.records


async def test_tables_of_version_2_are_taken_over(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Outputs, who refers to them, and memories are there as before, byte for byte."""
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    async with file_store(new) as store:
        ref = await store.tool_outputs.keep(ME, "read", "text " * 50_000)
        await store.memories.save(ME, "agent", "likes tea", 1.0)
    write(old, VERSION_1, VERSION_2)
    tables = ("tool_outputs", "tool_output_chunks", "tool_output_uses", "memories")
    copies = [f"INSERT INTO {table} SELECT * FROM new.{table}" for table in tables]
    write(old, f"ATTACH '{new}' AS new; {'; '.join(copies)};")
    async with file_store(old) as store:
        assert await text_of(store.tool_outputs, ref.id) == "text " * 50_000
        assert await written_down(store.memories) == ["likes tea"]
    for table in tables:
        assert query(old, f"SELECT * FROM {table}") == query(new, f"SELECT * FROM {table}")
    assert not caplog.records


async def test_tables_of_version_3_are_taken_over(tmp_path: Path) -> None:
    """A compaction from before there were details is still there, and one with details stands behind it."""
    path = tmp_path / "elbowroom.db"
    write(path, VERSION_3)
    put(path, Stored("c", 1000.0))
    write(path, OF_ME)
    details = CompactionDetails(1.5, 2, 3, 40, "They spoke.")
    async with write_behind_conversations(path) as stored:
        stored.note([CompactionNoted("c", 900, 300, "plan", 2000.0, details)])
        found = await stored.read(ME, "c")
    assert found is not None
    assert found.compactions == (
        KeptCompaction(2, 1, "digest", 0.0),
        KeptCompaction(900, 300, "plan", 2000.0, details),
    )
    assert differences(path) == []
    assert query(path, "SELECT version FROM schema_version") == [(SCHEMA_VERSION,)]


async def test_a_file_of_version_4_loses_nothing(tmp_path: Path) -> None:
    """Every row of every kind that is read is there as it was, and what the archived messages kept is kept."""
    path, before = tmp_path / "elbowroom.db", tmp_path / "before.db"
    for file in (path, before):
        write(file, VERSION_4)
    async with sql_store(path):
        pass
    for table in KEPT_TABLES:
        old = query(before, f"SELECT * FROM {table}")
        assert old
        new = (None,) * NEW_COLUMNS.get(table, 0)
        assert query(path, f"SELECT * FROM {table}") == [(*row, *new) for row in old], table
    assert query(before, "SELECT DISTINCT place FROM tool_output_uses ORDER BY place") == [
        ("archived_messages",), ("ledger_entries",), ("tool_outputs",),
    ]  # fmt: skip
    as_of_entries = "SELECT DISTINCT CASE place WHEN 'archived_messages' THEN 'ledger_entries' ELSE place END, id"
    uses = query(before, f"{as_of_entries} FROM tool_output_uses ORDER BY 1, 2")
    assert query(path, "SELECT place, id FROM tool_output_uses ORDER BY place, id") == uses
    assert query(path, "SELECT name FROM sqlite_master WHERE name = 'archived_messages'") == []
    assert differences(path) == []
    async with file_store(path) as store, file_store(None) as memory:
        await fill(memory)
        assert await all_of(store) == await all_of(memory)


@pytest.mark.parametrize("version", FROZEN)
async def test_the_store_of_every_published_version_loses_nothing(version: str, tmp_path: Path) -> None:
    """A file that a published version has filled is read whole, and ends with the tables that the code describes."""
    path = tmp_path / "elbowroom.db"
    thawed(version, path)
    async with file_store(path) as store, file_store(None) as memory:
        await fill(memory)
        assert await all_of(store) == await all_of(memory)
    assert differences(path) == []


async def test_long_conversations_of_version_4_are_taken_over_soon(tmp_path: Path) -> None:
    """Many compactions of one long conversation take time for what they refer to, not for each message again."""
    path = tmp_path / "elbowroom.db"
    write(path, VERSION_4)
    length = 20_000
    with closing(sqlite3.connect(path)) as connection, connection:
        for table in ("ledger_entries", "archived_messages", "tool_output_uses"):
            connection.execute(f"DELETE FROM {table}")
        messages = [(f"k{number}", f"k{number - 1}") for number in range(length)]
        connection.executemany("INSERT INTO archived_messages VALUES (?, ?, '{}', 0)", messages)
        compacted = [(f"k{number}", time.time()) for number in range(0, length, 40)]
        connection.executemany("INSERT INTO ledger_entries VALUES (?, '[]', 1, 1, 1, 'plan', 0, ?)", compacted)
        uses = [("k100", "early"), ("k15000", "late"), ("k15000", "late too"), ("nobody", "lost")]
        connection.executemany("INSERT INTO tool_output_uses VALUES ('archived_messages', ?, ?)", uses)
    began = time.monotonic()
    async with sql_store(path):
        pass
    assert time.monotonic() - began < 10
    counted = "SELECT place, id, count(*) FROM tool_output_uses GROUP BY place, id ORDER BY id"
    assert query(path, counted) == [
        ("ledger_entries", "early", 497), ("ledger_entries", "late", 125), ("ledger_entries", "late too", 125),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "scripts", [(), (VERSION_1,), (VERSION_1, VERSION_2), (VERSION_3,), (VERSION_4,)], ids=["new", "1", "2", "3", "4"]
)
async def test_migrations_lead_to_the_tables_that_the_code_describes(tmp_path: Path, scripts: tuple[str, ...]) -> None:
    """Whatever a file begins with, it ends with the same tables, columns, indexes and constraints."""
    path = tmp_path / "elbowroom.db"
    write(path, *scripts)
    await (await Database.open(path)).aclose()
    assert differences(path) == []
    assert query(path, "SELECT version FROM schema_version") == [(SCHEMA_VERSION,)]
    assert query(path, "SELECT version_num FROM alembic_version") == [(str(SCHEMA_VERSION),)]


async def test_all_migrations_together_lead_there_too(tmp_path: Path) -> None:
    """From an empty file on they make the very tables that a new file is given at once."""
    path = tmp_path / "elbowroom.db"
    readers, writer = create_engines(path, 1)
    with writer.begin() as connection:
        bring_up_to_date(connection)
    readers.dispose()
    writer.dispose()
    assert differences(path) == []
    assert query(path, "SELECT version FROM schema_version") == [(SCHEMA_VERSION,)]


async def test_a_difference_would_be_found(tmp_path: Path) -> None:
    """The comparison is not blind."""
    path = tmp_path / "elbowroom.db"
    await (await Database.open(path)).aclose()
    write(path, "DROP INDEX turns_by_key; ALTER TABLE turns DROP COLUMN ended;")
    assert len(differences(path)) == 2


async def test_an_upgrade_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """All of it is one transaction: where the last step fails, the first has not happened either."""
    path = tmp_path / "elbowroom.db"
    write(path, VERSION_1, "CREATE TABLE queue (x)")
    before = query(path, "SELECT name, sql FROM sqlite_master")
    with pytest.raises(StoreUnavailable, match="queue already exists"):
        await Database.open(path)
    assert query(path, "SELECT name, sql FROM sqlite_master") == before
    assert query(path, "SELECT version FROM schema_version") == [(1,)]


async def test_a_file_of_a_newer_elbowroom_is_refused_in_words(tmp_path: Path) -> None:
    """Neither read nor changed; the person reads why, and what to do."""
    path = tmp_path / "elbowroom.db"
    await (await Database.open(path)).aclose()
    write(path, "UPDATE schema_version SET version = 99")
    before = bytes_of(path)
    versions = f"(tables of version 99; this one knows {SCHEMA_VERSION})"
    said = f"the database was written by a newer elbowroom {versions}: update elbowroom"
    with pytest.raises(StoreUnavailable) as refusal:
        await Database.open(path)
    assert (str(refusal.value), refusal.value.plainly) == (said, said)
    assert bytes_of(path) == before


@pytest.mark.slow
def test_new_and_current_files_are_opened_without_alembic(tmp_path: Path) -> None:
    """Its import takes a third of a second, which only the first start on an older file costs; a new one needs none."""
    command = [sys.executable, "-c", ALEMBIC_IS_LOADED, str(tmp_path / "elbowroom.db")]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0


async def test_upgrades_leave_logging_and_the_terminal_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is printed, no logger is changed or switched off, and all that is logged is Alembic's own steps."""
    caplog.set_level("INFO")
    root = logging.getLogger()
    before = (root.level, list(root.handlers), logging.getLogger("elbowroom").disabled)
    await (await Database.open(tmp_path / "elbowroom.db")).aclose()
    assert (root.level, list(root.handlers), logging.getLogger("elbowroom").disabled) == before
    assert tuple(capfd.readouterr()) == ("", "")
    assert {record.name.split(".")[0] for record in caplog.records} <= {"alembic"}


def test_the_tables_are_no_sqlite_speciality() -> None:
    """PostgreSQL could have all of them."""
    dialect: Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    for table in metadata.tables.values():
        assert str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert str(CreateIndex(index).compile(dialect=dialect))
