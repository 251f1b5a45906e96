"""The table of version 11: which changes a server has written, for when PostgreSQL's answer to that is lost."""

from alembic import op

from elbowroom.store.sql.schema import server_batches

revision = "11"
down_revision = "10"


def upgrade() -> None:
    """Let servers on PostgreSQL note what they have written."""
    if op.get_bind().dialect.name == "postgresql":
        server_batches.create(op.get_bind())
