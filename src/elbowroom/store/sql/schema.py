"""The tables of the store in terms that every SQL database knows, and how older ones become these.

Alembic is loaded only where a file has older tables.
"""

import importlib
from functools import lru_cache
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    create_mock_engine,
    delete,
    insert,
    inspect,
    select,
)
from sqlalchemy.engine.interfaces import Dialect

from elbowroom.store.base import SCHEMA_VERSION, VERSION_TABLE, StoreUnavailable

MIGRATIONS: Final = "elbowroom.store.sql:migrations"

alembic_version: Final = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""The table in which Alembic notes which of its migrations a file has seen."""

LARGEST_PART: Final = 3_800
"""The most characters of a part; a longer text goes on in a new part, for a part that grows is written anew.

With its other columns it fits into one page of SQLite's.
"""
NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")
"""The type of a number that the database gives out itself."""

metadata: Final = MetaData()

schema_version: Final = Table(VERSION_TABLE, metadata, Column("version", Integer, nullable=False))

ledger_entries: Final = Table(
    "ledger_entries",
    metadata,
    Column("key", String, primary_key=True),
    Column("messages", Text, nullable=False, comment="a JSON array"),
    Column("window", Integer, nullable=False, comment="tokens"),
    Column("before", Integer, nullable=False, comment="tokens"),
    Column("after", Integer, nullable=False, comment="tokens"),
    Column("rung", String, nullable=False),
    Column("created", Float, nullable=False, comment="seconds since 1970"),
    Column("last_used", Float, nullable=False, comment="seconds since 1970"),
)
Index("ledger_entries_by_last_use", ledger_entries.c.last_used)

tool_outputs: Final = Table(
    "tool_outputs",
    metadata,
    Column("owner", String, primary_key=True, comment="a hash of whose it is"),
    Column("id", String, primary_key=True),
    Column("tool", Text, nullable=False, comment="a JSON text"),
    Column("mime_type", Text, nullable=False, comment="a JSON text, empty for text"),
    Column("bytes", BigInteger, nullable=False, comment="of UTF-8, or of what is no text"),
    Column("lines", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False, comment="the bytes that it takes"),
    Column("saved", Float, nullable=False, comment="seconds since 1970"),
    Column("last_used", Float, nullable=False, comment="seconds since 1970"),
    Column("last_named", Float, nullable=False, comment="when it last stood in a prompt; 0 for never"),
)
Index("tool_outputs_by_last_use", tool_outputs.c.last_used)

tool_output_chunks: Final = Table(
    "tool_output_chunks",
    metadata,
    Column("owner", String, primary_key=True),
    Column("id", String, primary_key=True),
    Column("line", BigInteger, primary_key=True, comment="of its first character, from 1"),
    Column("column", BigInteger, primary_key=True, comment="of its first character, from 1"),
    Column("content", LargeBinary, nullable=False, comment="compressed by zlib"),
)

tool_output_uses: Final = Table(
    "tool_output_uses",
    metadata,
    Column("place", String, primary_key=True, comment="the table of what refers to the output"),
    Column("key", String, primary_key=True, comment="its key there"),
    Column("id", String, primary_key=True, comment="the output's"),
)
Index("tool_output_uses_by_id", tool_output_uses.c.id)

memories: Final = Table(
    "memories",
    metadata,
    Column("room", String, primary_key=True, comment="a hash of owner and agent"),
    Column("id", String, primary_key=True),
    Column("text", Text, nullable=False, comment="a JSON text"),
    Column("saved", Float, nullable=False, comment="seconds since 1970"),
)
Index("memories_by_age", memories.c.room, memories.c.saved)

conversations: Final = Table(
    "conversations",
    metadata,
    Column("id", String, primary_key=True, comment="where the client gives it a name, a hash of owner and name"),
    Column("owner", String, nullable=False, comment="a hash of whose it is"),
    Column("name", Text, nullable=False, comment="a JSON text, empty where the client gives none"),
    Column("agent", Text, nullable=False, comment="a JSON text"),
    Column("title", Text, nullable=False, comment="a JSON text"),
    Column("created", Float, nullable=False, comment="seconds since 1970"),
    Column("updated", Float, nullable=False, comment="seconds since 1970"),
    Column("input_tokens", BigInteger, nullable=False, comment="of all steps, as the columns below"),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_creation_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("total_tokens", BigInteger, nullable=False, comment="the four above together"),
    Column("is_counted", Boolean, nullable=False, comment="some of them are counted here"),
    Column("steps", Integer, nullable=False),
    Column("compactions", Integer, nullable=False),
    Column("fill_tokens", Integer, comment="of the last step, as the three below; null where it is not known"),
    Column("fill_window", Integer, comment="tokens"),
    Column("fill_trigger", Integer, comment="tokens"),
    Column("fill_stop_at", Integer, comment="tokens"),
    Column("metadata", Text, comment="a JSON object of a client's; null where it has given none"),
    Column("renamed", Text, comment="a JSON text, the title that a person gave it; null where nobody has"),
)
Index("conversations_by_owner", conversations.c.owner, conversations.c.updated)
Index("conversations_by_name", conversations.c.owner, conversations.c.name)
Index("conversations_by_update", conversations.c.updated)

turns: Final = Table(
    "turns",
    metadata,
    Column("id", String, primary_key=True),
    Column("conversation", String, nullable=False),
    Column("parent", String, nullable=False, comment="the key of the message that it answers"),
    Column("key", String, nullable=False, comment="of its answer, empty until it has ended"),
    Column("agent", Text, nullable=False, comment="a JSON text"),
    Column("status", String, nullable=False, comment="streaming, complete or interrupted"),
    Column("began", Float, nullable=False, comment="seconds since 1970"),
    Column("ended", Float, comment="seconds since 1970"),
    Column("has_more", Boolean, nullable=False, comment="it may hold more than its client has"),
)
Index("turns_by_conversation", turns.c.conversation)
Index("turns_by_key", turns.c.key)
Index("turns_by_parent", turns.c.parent)
Index("turns_by_status", turns.c.status)

messages: Final = Table(
    "messages",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order in which they came in"),
    Column("id", String, nullable=False),
    Column("conversation", String, nullable=False),
    Column("turn", String, nullable=False, comment="empty for one that a client sent"),
    Column("key", String, comment="its place in the chain; null within a turn"),
    Column("parent", String, nullable=False, comment="the key of the message before it, empty within a turn"),
    Column("fields", Text, nullable=False, comment="a JSON object: the message without what its parts hold"),
    Column("status", String, nullable=False, comment="streaming, complete or interrupted"),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    Column("is_pinned", Boolean, comment="a person wants it never to be summarised; null for no"),
    UniqueConstraint("id", name="messages_id"),
    UniqueConstraint("conversation", "key", name="messages_key"),  # rows without a key are never equal
    sqlite_autoincrement=True,
)
Index("messages_by_conversation", messages.c.conversation, messages.c.number)
Index("messages_by_key", messages.c.key)
Index("messages_by_turn", messages.c.turn)

message_parts: Final = Table(
    "message_parts",
    metadata,
    Column("message", String, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False, comment="from 0"),
    Column("kind", String, nullable=False, comment="text, reasoning, content, tool_call or lost"),
    Column("status", String, nullable=False, comment="streaming, complete or interrupted"),
    Column("content", Text, nullable=False, comment="JSON: a piece of a text, a content, or a call"),
)

step_usage: Final = Table(
    "step_usage",
    metadata,
    Column("number", NUMBER, primary_key=True),
    Column("turn", String, nullable=False),
    Column("model", Text, nullable=False, comment="a JSON text"),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cache_creation_tokens", BigInteger, nullable=False),
    Column("cache_read_tokens", BigInteger, nullable=False),
    Column("is_counted", Boolean, nullable=False, comment="they are counted here"),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    sqlite_autoincrement=True,
)
Index("step_usage_by_turn", step_usage.c.turn)

compactions: Final = Table(
    "compactions",
    metadata,
    Column("number", NUMBER, primary_key=True),
    Column("conversation", String, nullable=False),
    Column("before", Integer, nullable=False, comment="tokens"),
    Column("after", Integer, nullable=False, comment="tokens"),
    Column("rung", String, nullable=False),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    Column("seconds", Float, comment="that it took; null, as those below, for one from before version 4"),
    Column("groups_kept", Integer, comment="word for word"),
    Column("messages_kept", Integer),
    Column("messages_removed", Integer),
    Column("summary", Text, comment="a JSON text, empty where nothing was told"),
    Column("focus", Text, comment="a JSON text: what a person wanted kept or dropped; null for nothing"),
    Column("verdict", Text, comment="what code finds that was kept: pass, soft fail or hard fail, and the numbers"),
    Column("edited", Text, comment="a JSON text: the summary as a person has changed it; null for unchanged"),
    Column("undone", Float, comment="when a person took it back, in seconds since 1970; null where it holds"),
    sqlite_autoincrement=True,
)
Index("compactions_by_conversation", compactions.c.conversation)

queue: Final = Table(
    "queue",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order in which they came in"),
    Column("id", String, nullable=False),
    Column("conversation", String, nullable=False),
    Column("message", Text, nullable=False, comment="a JSON object"),
    Column("mode", String, nullable=False, comment="steer or follow_up"),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    Column("turn", String, nullable=False, comment="which has taken it, empty while it waits"),
    UniqueConstraint("id", name="queue_id"),
    sqlite_autoincrement=True,
)
Index("queue_by_conversation", queue.c.conversation)


search_progress: Final = Table(
    "search_progress",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="messages up to it are in the index"),
)
search_leaving: Final = Table(
    "search_leaving",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="of a deleted message in the index"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", String, nullable=False),
    Column("content", Text, nullable=False, comment="as the deleted part had it"),
)
LEAVING: Final = (
    "CREATE TRIGGER message_parts_leave_the_index AFTER DELETE ON message_parts "
    "WHEN old.kind IN ('text', 'content') BEGIN "
    "INSERT OR IGNORE INTO search_leaving SELECT messages.number, old.position, old.kind, old.content "
    "FROM messages, search_progress WHERE messages.id = old.message AND messages.number <= search_progress.number; END"
)
"""Keeps what a deleted part said for the moment until it is out of the index, which has to be told it."""


def version_of(connection: Connection) -> int:
    """Return the version of the tables, 0 where there are none. Raises StoreUnavailable for those of a newer one."""
    if not inspect(connection).has_table(schema_version.name):
        return 0
    found: int = connection.scalar(select(schema_version.c.version)) or 0
    if found > SCHEMA_VERSION:
        message = f"it was written by a newer elbowroom (tables of version {found}; this one knows {SCHEMA_VERSION})"
        raise StoreUnavailable(message, message)
    return found


def make_tables(connection: Connection) -> None:
    """Make all tables in a new database, as all migrations together would: that takes a fraction of their time."""
    for sql in _making(connection.dialect):
        connection.exec_driver_sql(sql)
    connection.execute(insert(alembic_version).values(version_num=str(SCHEMA_VERSION)))
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))


@lru_cache
def _making(dialect: Dialect) -> list[str]:
    """Return what makes all tables, in the database's words; that takes longer than to carry it out."""
    made: list[str] = []
    engine = create_mock_engine(
        f"{dialect.name}://", lambda sql, *_, **__: made.append(str(sql.compile(dialect=dialect)))
    )
    metadata.create_all(engine, checkfirst=False)
    alembic_version.create(engine, checkfirst=False)
    return [*made, LEAVING]


def load_migrations() -> None:
    """Import what `bring_up_to_date` needs, which takes a third of a second."""
    importlib.import_module("alembic.command")


def bring_up_to_date(connection: Connection) -> None:
    """Run the migrations that a file has not seen, in the transaction that is open.

    Raises StoreUnavailable for a file that a newer elbowroom has written.
    """
    from alembic import command
    from alembic.config import Config

    found = version_of(connection)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", MIGRATIONS)
    if found and not inspect(connection).has_table(alembic_version.name):  # from before Alembic
        command.stamp(config, str(found))
    command.upgrade(config, "head")
    # Earlier versions look at this before they touch anything; it is quicker to read than Alembic's table.
    connection.execute(delete(schema_version))
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))
