"""The tables of the store, in terms that every SQL database knows."""

from typing import Final

from sqlalchemy import BigInteger, Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

SCHEMA_VERSION: Final = 2
"""Rises with every change of the tables; a file with a higher one was written by a newer elbowroom."""

metadata: Final = MetaData()

schema_version: Final = Table("schema_version", metadata, Column("version", Integer, nullable=False))

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

archived_messages: Final = Table(
    "archived_messages",
    metadata,
    Column("key", String, primary_key=True),
    Column("parent", String, nullable=False, comment="the key of the message before it"),
    Column("message", Text, nullable=False, comment="a JSON object"),
    Column("saved", Float, nullable=False, comment="seconds since 1970"),
)

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
