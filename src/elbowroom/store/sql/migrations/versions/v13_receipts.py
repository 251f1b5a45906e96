"""The tables of version 13: what was ever put in a queue, and on PostgreSQL which machine has read a conversation."""

from alembic import op

from elbowroom.store.sql.schema import queue_receipts, read_prompts

revision = "13"
down_revision = "12"


def upgrade() -> None:
    """Note each message that is put in a queue from now on, and let servers on PostgreSQL tell where prompts went."""
    queue_receipts.create(op.get_bind())
    if op.get_bind().dialect.name == "postgresql":
        read_prompts.create(op.get_bind())
