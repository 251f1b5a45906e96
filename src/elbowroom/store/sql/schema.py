"""The tables of the store in terms that every SQL database knows, and how older ones become these.

Alembic is loaded only where a file has older tables.
"""

import importlib
from contextlib import closing
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

from elbowroom.store.base import SCHEMA_VERSION, UNFINISHED, VERSION_TABLE, StoreUnavailable
from elbowroom.store.sql.dialect import KEY, own_tables

MIGRATIONS: Final = "elbowroom.store.sql:migrations"

alembic_version: Final = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""The table in which Alembic notes which of its migrations a file has seen."""

LARGEST_PART: Final = 3_800
"""The most characters of a part; a longer text goes on in a new part, for a part that grows is written anew.

With its other columns it fits into one page of SQLite's.
"""
TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""A text that is searched letter by letter, of which only ASCII has upper and lower case."""
SQLITE_ONLY: Final = {"is_of": "sqlite"}
"""Marks the tables that no other database has."""
POSTGRESQL_ONLY: Final = {"is_of": "postgresql"}
"""Marks the tables by which several servers share a database."""
NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")
"""The type of a number that the database gives out itself."""

metadata: Final = MetaData()

schema_version: Final = Table(VERSION_TABLE, metadata, Column("version", Integer, nullable=False))

ledger_entries: Final = Table(
    "ledger_entries",
    metadata,
    Column("key", KEY, primary_key=True),
    Column("messages", TEXT, nullable=False, comment="a JSON array"),
    Column("window", Integer, nullable=False, comment="tokens"),
    Column("before", Integer, nullable=False, comment="tokens"),
    Column("after", Integer, nullable=False, comment="tokens"),
    Column("rung", KEY, nullable=False),
    Column("created", Float, nullable=False, comment="seconds since 1970"),
    Column("last_used", Float, nullable=False, comment="seconds since 1970"),
)
Index("ledger_entries_by_last_use", ledger_entries.c.last_used)

tool_outputs: Final = Table(
    "tool_outputs",
    metadata,
    Column("owner", KEY, primary_key=True, comment="a hash of whose it is"),
    Column("id", KEY, primary_key=True),
    Column("tool", TEXT, nullable=False, comment="a JSON text"),
    Column("mime_type", TEXT, nullable=False, comment="a JSON text, empty for text"),
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
    Column("owner", KEY, primary_key=True),
    Column("id", KEY, primary_key=True),
    Column("line", BigInteger, primary_key=True, comment="of its first character, from 1"),
    Column("column", BigInteger, primary_key=True, comment="of its first character, from 1"),
    Column("content", LargeBinary, nullable=False, comment="compressed by zlib"),
)

tool_output_uses: Final = Table(
    "tool_output_uses",
    metadata,
    Column("place", KEY, primary_key=True, comment="the table of what refers to the output"),
    Column("key", KEY, primary_key=True, comment="its key there"),
    Column("id", KEY, primary_key=True, comment="the output's"),
)
Index("tool_output_uses_by_id", tool_output_uses.c.id)

memories: Final = Table(
    "memories",
    metadata,
    Column("room", KEY, primary_key=True, comment="a hash of owner and agent"),
    Column("id", KEY, primary_key=True),
    Column("text", TEXT, nullable=False, comment="a JSON text"),
    Column("saved", Float, nullable=False, comment="seconds since 1970"),
)
Index("memories_by_age", memories.c.room, memories.c.saved)

tokens: Final = Table(
    "tokens",
    metadata,
    Column("hash", KEY, primary_key=True, comment="the SHA-256 of the token"),
    Column("id", KEY, nullable=False, comment="a person's is a hash of the name"),
    Column("role", KEY, nullable=False, comment="owner, member, gateway or paired"),
    Column("person", TEXT, nullable=False, comment="a JSON text: whose it is; empty for whoever has the server's own"),
    Column("name", TEXT, nullable=False, comment="a JSON text"),
    Column("created", Float, nullable=False, comment="seconds since 1970"),
    Column("last_used", Float, comment="seconds since 1970; null for never"),
    UniqueConstraint("id", name="tokens_id"),
)

acts: Final = Table(
    "acts",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order in which they were done"),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    Column("person", TEXT, nullable=False, comment="a JSON text; empty for whoever has the server's own token"),
    Column("did", KEY, nullable=False, comment="added, changed or removed"),
    Column("what", TEXT, nullable=False, comment="a JSON text"),
    Column("keys", TEXT, nullable=False, comment="a JSON list: what of it was changed"),
    sqlite_autoincrement=True,
)

conversations: Final = Table(
    "conversations",
    metadata,
    Column("id", KEY, primary_key=True, comment="where the client gives it a name, a hash of owner and name"),
    Column("owner", KEY, nullable=False, comment="a hash of whose it is"),
    Column("name", TEXT, nullable=False, comment="a JSON text, empty where the client gives none"),
    Column("agent", TEXT, nullable=False, comment="a JSON text"),
    Column("title", TEXT, nullable=False, comment="a JSON text"),
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
    Column("fill_tokens", Integer, comment="of the next prompt, as the four below; null where it is not known"),
    Column("fill_window", Integer, comment="tokens"),
    Column("fill_trigger", Integer, comment="tokens"),
    Column("fill_stop_at", Integer, comment="tokens"),
    Column("metadata", TEXT, comment="a JSON object of a client's; null where it has given none"),
    Column("renamed", TEXT, comment="a JSON text, the title that a person gave it; null where nobody has"),
    Column("fill_turn", Integer, comment="tokens of a usual turn; null in rows of versions before 12"),
)
Index("conversations_by_owner", conversations.c.owner, conversations.c.updated)
Index("conversations_by_name", conversations.c.owner, conversations.c.name)
Index("conversations_by_update", conversations.c.updated)

turns: Final = Table(
    "turns",
    metadata,
    Column("id", KEY, primary_key=True),
    Column("conversation", KEY, nullable=False),
    Column("parent", KEY, nullable=False, comment="the key of the message that it answers"),
    Column("key", KEY, nullable=False, comment="of its answer, empty until it has ended"),
    Column("agent", TEXT, nullable=False, comment="a JSON text"),
    Column("status", KEY, nullable=False, comment="streaming, complete or interrupted"),
    Column("began", Float, nullable=False, comment="seconds since 1970"),
    Column("ended", Float, comment="seconds since 1970"),
    Column("has_more", Boolean, nullable=False, comment="it may hold more than its client has"),
    Column("server", KEY, comment="which writes it; empty or null where there is only one"),
)
Index("turns_by_conversation", turns.c.conversation)
Index("turns_by_key", turns.c.key)
Index("turns_by_parent", turns.c.parent)
Index("turns_by_status", turns.c.status)

messages: Final = Table(
    "messages",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order in which they came in"),
    Column("id", KEY, nullable=False),
    Column("conversation", KEY, nullable=False),
    Column("turn", KEY, nullable=False, comment="empty for one that a client sent"),
    Column("key", KEY, comment="its place in the chain; null within a turn"),
    Column("parent", KEY, nullable=False, comment="the key of the message before it, empty within a turn"),
    Column("fields", TEXT, nullable=False, comment="a JSON object: the message without what its parts hold"),
    Column("status", KEY, nullable=False, comment="streaming, complete or interrupted"),
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
    Column("message", KEY, primary_key=True),
    Column("position", Integer, primary_key=True, autoincrement=False, comment="from 0"),
    Column("kind", KEY, nullable=False, comment="text, reasoning, content, tool_call or lost"),
    Column("status", KEY, nullable=False, comment="streaming, complete or interrupted"),
    Column("content", TEXT, nullable=False, comment="JSON: a piece of a text, a content, or a call"),
)

step_usage: Final = Table(
    "step_usage",
    metadata,
    Column("number", NUMBER, primary_key=True),
    Column("turn", KEY, nullable=False),
    Column("model", TEXT, nullable=False, comment="a JSON text"),
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
    Column("conversation", KEY, nullable=False),
    Column("before", Integer, nullable=False, comment="tokens"),
    Column("after", Integer, nullable=False, comment="tokens"),
    Column("rung", KEY, nullable=False),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    Column("seconds", Float, comment="that it took; null, as those below, for one from before version 4"),
    Column("groups_kept", Integer, comment="word for word"),
    Column("messages_kept", Integer),
    Column("messages_removed", Integer),
    Column("summary", TEXT, comment="a JSON text, empty where nothing was told"),
    Column("focus", TEXT, comment="a JSON text: what a person wanted kept or dropped; null for nothing"),
    Column("verdict", TEXT, comment="what code finds that was kept: pass, soft fail or hard fail, and the numbers"),
    Column("edited", TEXT, comment="a JSON text: the summary as a person has changed it; null for unchanged"),
    Column("undone", Float, comment="when a person took it back, in seconds since 1970; null where it holds"),
    sqlite_autoincrement=True,
)
Index("compactions_by_conversation", compactions.c.conversation)

queue: Final = Table(
    "queue",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order in which they came in"),
    Column("id", KEY, nullable=False),
    Column("conversation", KEY, nullable=False),
    Column("message", TEXT, nullable=False, comment="a JSON object"),
    Column("mode", KEY, nullable=False, comment="steer or follow_up"),
    Column("at", Float, nullable=False, comment="seconds since 1970"),
    Column("turn", KEY, nullable=False, comment="which has taken it, empty while it waits"),
    Column("server", KEY, comment="which hands it to its turns; empty or null for whichever runs the next one"),
    UniqueConstraint("id", name="queue_id"),
    sqlite_autoincrement=True,
)
Index("queue_by_conversation", queue.c.conversation)

queue_receipts: Final = Table(
    "queue_receipts",
    metadata,
    Column("id", KEY, primary_key=True, comment="of a message that was put in the queue, and may have left it"),
    Column("conversation", KEY, nullable=False),
    Column("fingerprint", KEY, nullable=False, comment="a hash of message and mode"),
)
Index("queue_receipts_by_conversation", queue_receipts.c.conversation)

servers: Final = Table(
    "servers",
    metadata,
    Column("id", KEY, primary_key=True, comment="chosen when it started"),
    Column("name", TEXT, nullable=False, comment="a JSON text: the computer, the process"),
    Column("started", Float, nullable=False, comment="seconds since 1970 by the clock of the database, as below"),
    Column("renewed", Float, nullable=False, comment="when it last said that it is there"),
    info=POSTGRESQL_ONLY,
)
server_batches: Final = Table(
    "server_batches",
    metadata,
    Column("server", KEY, primary_key=True),
    Column("number", BigInteger, nullable=False, comment="of the last batch of changes that it has written"),
    Column("place", Integer, nullable=False, comment="how many of the batch after it are written, one by one"),
    info=POSTGRESQL_ONLY,
)
server_calls: Final = Table(
    "server_calls",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order in which they were made"),
    Column("server", KEY, nullable=False, comment="which is asked"),
    Column("caller", KEY, nullable=False, comment="which asks"),
    Column("operation", KEY, nullable=False),
    Column("given", TEXT, nullable=False, comment="a JSON object"),
    Column("made", Float, nullable=False, comment="seconds since 1970 by the clock of the database"),
    Column("is_taken", Boolean, nullable=False, comment="the server that is asked has begun to answer"),
    Column("answer", TEXT, comment="a JSON object; null until it is answered"),
    info=POSTGRESQL_ONLY,
)
Index("server_calls_by_server", server_calls.c.server, server_calls.c.is_taken)
admission: Final = Table(
    "admission",
    metadata,
    Column("number", NUMBER, primary_key=True, comment="in the order of arrival"),
    Column("pool", KEY, nullable=False, comment="a machine and a model"),
    Column("server", KEY, nullable=False, comment="which asks the model; its row counts while that is there"),
    Column("tokens", Integer, nullable=False, comment="of the model's window"),
    Column("rank", Integer, nullable=False, comment="0 for a chat; lower goes first"),
    Column("is_granted", Boolean, nullable=False),
    info=POSTGRESQL_ONLY,
)
Index("admission_by_pool", admission.c.pool)
read_prompts: Final = Table(
    "read_prompts",
    metadata,
    Column("conversation", KEY, primary_key=True),
    Column("model", KEY, nullable=False, comment="a machine and a model, which has read its last prompt"),
    Column("window", Integer, comment="tokens"),
    Column("tokens", Integer, nullable=False),
    Column("read", Float, nullable=False, comment="seconds since 1970 by the clock of the database"),
    info=POSTGRESQL_ONLY,
)
Index("read_prompts_by_model", read_prompts.c.model, read_prompts.c.read)
agent_list: Final = Table(
    "agent_list",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="always 1"),
    Column("revision", BigInteger, nullable=False, comment="how often they have been changed"),
    Column("rows", TEXT, nullable=False, comment="a JSON list of tables, as [[agents]] of a settings file"),
    info=POSTGRESQL_ONLY,
)

search_progress: Final = Table(
    "search_progress",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="messages up to it are in the index"),
    info=SQLITE_ONLY,
)
search_leaving: Final = Table(
    "search_leaving",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=False, comment="of a deleted message in the index"),
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("kind", KEY, nullable=False),
    Column("content", TEXT, nullable=False, comment="as the deleted part had it"),
    info=SQLITE_ONLY,
)


def version_of(connection: Connection) -> int:
    """Return the version of the tables, 0 where there are none.

    Raises StoreUnavailable for those of a newer elbowroom, and for those into which a copy has not come to its end.
    """
    found = noted_version(connection)
    if found > SCHEMA_VERSION:
        versions = f"(tables of version {found}; this one knows {SCHEMA_VERSION})"
        message = f"the database was written by a newer elbowroom {versions}: update elbowroom"
        raise StoreUnavailable(message, message)
    if found < 0:
        raise StoreUnavailable(UNFINISHED, UNFINISHED)
    return found


def noted_version(connection: Connection) -> int:
    """Return the version of the tables as it is noted, negative for those of an unfinished copy, 0 for no tables."""
    if not inspect(connection).has_table(schema_version.name):
        return 0
    return connection.scalar(select(schema_version.c.version)) or 0


def make_tables(connection: Connection) -> None:
    """Make all tables in a new database, as all migrations together would: that takes a fraction of their time."""
    with closing(connection.connection.cursor()) as cursor:
        for sql in _making(connection.dialect):
            cursor.execute(sql)
    connection.execute(insert(alembic_version).values(version_num=str(SCHEMA_VERSION)))
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))


@lru_cache
def _making(dialect: Dialect) -> list[str]:
    """Return what makes all tables, in the database's words; that takes longer than to carry it out."""
    made: list[str] = []
    engine = create_mock_engine(
        f"{dialect.name}://", lambda sql, *_, **__: made.append(str(sql.compile(dialect=dialect)))
    )
    metadata.create_all(engine, tables_of(dialect), checkfirst=False)
    alembic_version.create(engine, checkfirst=False)
    return [*made, *own_tables(dialect)]


def tables_of(dialect: Dialect) -> list[Table]:
    """Return the tables that a database of this kind has."""
    return [table for table in metadata.tables.values() if table.info.get("is_of", dialect.name) == dialect.name]


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
