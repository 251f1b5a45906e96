"""The tables of version 10: which of several servers writes a turn, how they ask each other, and their agents."""

import sqlalchemy as sa
from alembic import op

from elbowroom.store.sql.schema import admission, agent_list, server_calls, servers

revision = "10"
down_revision = "9"


def upgrade() -> None:
    """Note the server of turns and of messages that wait, and let servers on PostgreSQL know of each other."""
    for table in ("turns", "queue"):
        op.add_column(table, sa.Column("server", sa.String))
    if op.get_bind().dialect.name == "postgresql":
        for made in (servers, server_calls, agent_list, admission):
            made.create(op.get_bind())
