"""The tables of version 6: how far messages are in the index for searches, and which deleted ones leave it."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Add the tables, let deleted parts of messages leave the index, and let conversations be found by their names."""
    op.create_index("conversations_by_name", "conversations", ["owner", "name"])
    op.create_table("search_progress", sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False))
    op.create_table(
        "search_leaving",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.execute(
        "CREATE TRIGGER message_parts_leave_the_index AFTER DELETE ON message_parts "
        "WHEN old.kind IN ('text', 'content') BEGIN "
        "INSERT OR IGNORE INTO search_leaving SELECT messages.number, old.position, old.kind, old.content "
        "FROM messages, search_progress WHERE messages.id = old.message AND messages.number <= search_progress.number; "
        "END"
    )
