"""The tables of version 14: the tokens of people and of paired programs, and who has changed what."""

from alembic import op

from elbowroom.store.sql.schema import acts, tokens

revision = "14"
down_revision = "13"


def upgrade() -> None:
    """Make both tables."""
    for made in (tokens, acts):
        made.create(op.get_bind())
