"""The table of version 13: which messages were ever put in a queue, so that the same request twice does it once."""

from alembic import op

from elbowroom.store.sql.schema import queue_receipts

revision = "13"
down_revision = "12"


def upgrade() -> None:
    """Note each message that is put in a queue from now on."""
    queue_receipts.create(op.get_bind())
