"""The tables of version 3: conversations with their turns, messages, usage and queues."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    """Add the tables of conversations."""
    _add_conversations()
    _add_turns()
    _add_messages()
    _add_usage()
    _add_queue()


def _add_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("owner", sa.String, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("updated", sa.Float, nullable=False),
        *(sa.Column(f"{kind}_tokens", sa.BigInteger, nullable=False) for kind in ("input", "output")),
        *(sa.Column(f"cache_{kind}_tokens", sa.BigInteger, nullable=False) for kind in ("creation", "read")),
        sa.Column("total_tokens", sa.BigInteger, nullable=False),
        sa.Column("is_counted", sa.Boolean, nullable=False),
        sa.Column("steps", sa.Integer, nullable=False),
        sa.Column("compactions", sa.Integer, nullable=False),
        *(sa.Column(f"fill_{what}", sa.Integer) for what in ("tokens", "window", "trigger", "stop_at")),
    )
    op.create_index("conversations_by_owner", "conversations", ["owner", "updated"])
    op.create_index("conversations_by_update", "conversations", ["updated"])


def _add_turns() -> None:
    op.create_table(
        "turns",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("parent", sa.String, nullable=False),
        sa.Column("key", sa.String, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("began", sa.Float, nullable=False),
        sa.Column("ended", sa.Float),
        sa.Column("has_more", sa.Boolean, nullable=False),
    )
    for column in ("conversation", "key", "parent", "status"):
        op.create_index(f"turns_by_{column}", "turns", [column])


def _add_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("id", sa.String, nullable=False),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("turn", sa.String, nullable=False),
        sa.Column("key", sa.String),
        sa.Column("parent", sa.String, nullable=False),
        sa.Column("fields", sa.Text, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.UniqueConstraint("id", name="messages_id"),
        sa.UniqueConstraint("conversation", "key", name="messages_key"),
        sqlite_autoincrement=True,
    )
    op.create_index("messages_by_conversation", "messages", ["conversation", "number"])
    op.create_index("messages_by_key", "messages", ["key"])
    op.create_index("messages_by_turn", "messages", ["turn"])
    op.create_table(
        "message_parts",
        sa.Column("message", sa.String, primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )


def _add_usage() -> None:
    op.create_table(
        "step_usage",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("turn", sa.String, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_creation_tokens", sa.BigInteger, nullable=False),
        sa.Column("cache_read_tokens", sa.BigInteger, nullable=False),
        sa.Column("is_counted", sa.Boolean, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("step_usage_by_turn", "step_usage", ["turn"])
    op.create_table(
        "compactions",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("before", sa.Integer, nullable=False),
        sa.Column("after", sa.Integer, nullable=False),
        sa.Column("rung", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_index("compactions_by_conversation", "compactions", ["conversation"])


def _add_queue() -> None:
    op.create_table(
        "queue",
        sa.Column("number", NUMBER, primary_key=True),
        sa.Column("id", sa.String, nullable=False),
        sa.Column("conversation", sa.String, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("mode", sa.String, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("turn", sa.String, nullable=False),
        sa.UniqueConstraint("id", name="queue_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("queue_by_conversation", "queue", ["conversation"])
