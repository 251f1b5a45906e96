"""The tables of version 12: how many tokens one more turn of a conversation takes."""

import sqlalchemy as sa
from alembic import op

revision = "12"
down_revision = "11"


def upgrade() -> None:
    """Let conversations tell how large their turns are; that of those that are there is known with their next turn."""
    op.add_column("conversations", sa.Column("fill_turn", sa.Integer))
