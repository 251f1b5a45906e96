"""The tables of version 7: what clients keep beside a conversation."""

import sqlalchemy as sa
from alembic import op

revision = "7"
down_revision = "6"


def upgrade() -> None:
    """Let conversations have metadata; those that are there have none."""
    op.add_column("conversations", sa.Column("metadata", sa.Text))
