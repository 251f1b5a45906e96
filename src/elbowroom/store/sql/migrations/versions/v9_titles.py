"""The tables of version 9: titles that people give to conversations."""

import sqlalchemy as sa
from alembic import op

revision = "9"
down_revision = "8"


def upgrade() -> None:
    """Let conversations have another title than the beginning of their first question; none that is there has."""
    op.add_column("conversations", sa.Column("renamed", sa.Text))
