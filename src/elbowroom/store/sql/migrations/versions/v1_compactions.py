"""The tables of version 1: compactions, and the messages that they were made from."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table("schema_version", sa.Column("version", sa.Integer, nullable=False))
    op.create_table(
        "ledger_entries",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("messages", sa.Text, nullable=False),
        sa.Column("window", sa.Integer, nullable=False),
        sa.Column("before", sa.Integer, nullable=False),
        sa.Column("after", sa.Integer, nullable=False),
        sa.Column("rung", sa.String, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("last_used", sa.Float, nullable=False),
    )
    op.create_index("ledger_entries_by_last_use", "ledger_entries", ["last_used"])
    op.create_table(
        "archived_messages",
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("parent", sa.String, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("saved", sa.Float, nullable=False),
    )
