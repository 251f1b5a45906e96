"""The tables of version 2: outputs of tools, who refers to them, and memories."""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"


def upgrade() -> None:
    """Add tables for the outputs of tools and for memories."""
    op.create_table(
        "tool_outputs",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("mime_type", sa.Text, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sa.Column("lines", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("saved", sa.Float, nullable=False),
        sa.Column("last_used", sa.Float, nullable=False),
        sa.Column("last_named", sa.Float, nullable=False),
    )
    op.create_index("tool_outputs_by_last_use", "tool_outputs", ["last_used"])
    op.create_table(
        "tool_output_chunks",
        sa.Column("owner", sa.String, primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("line", sa.BigInteger, primary_key=True),
        sa.Column("column", sa.BigInteger, primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "tool_output_uses",
        sa.Column("place", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
    )
    op.create_index("tool_output_uses_by_id", "tool_output_uses", ["id"])
    op.create_table(
        "memories",
        sa.Column("room", sa.String, primary_key=True),
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("saved", sa.Float, nullable=False),
    )
    op.create_index("memories_by_age", "memories", ["room", "saved"])
