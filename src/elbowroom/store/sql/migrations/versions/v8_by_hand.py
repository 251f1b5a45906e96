"""The tables of version 8: what a person wants of compactions, and has changed about them, and what they have kept."""

import sqlalchemy as sa
from alembic import op

revision = "8"
down_revision = "7"


def upgrade() -> None:
    """Let messages be pinned, and compactions be focused, judged, edited and undone; none that is there is."""
    op.add_column("messages", sa.Column("is_pinned", sa.Boolean))
    op.add_column("compactions", sa.Column("focus", sa.Text))
    op.add_column("compactions", sa.Column("verdict", sa.Text))
    op.add_column("compactions", sa.Column("edited", sa.Text))
    op.add_column("compactions", sa.Column("undone", sa.Float))
