"""The tables of the store, in terms that every SQL database knows."""

from typing import Final

from sqlalchemy import Column, Float, Index, Integer, MetaData, String, Table, Text

SCHEMA_VERSION: Final = 1
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
