"""The tables of version 4: what a compaction took and left."""

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"


def upgrade() -> None:
    """Let compactions have details; of those that are there nobody knows them."""
    op.add_column("compactions", sa.Column("seconds", sa.Float))
    for count in ("groups_kept", "messages_kept", "messages_removed"):
        op.add_column("compactions", sa.Column(count, sa.Integer))
    op.add_column("compactions", sa.Column("summary", sa.Text))
