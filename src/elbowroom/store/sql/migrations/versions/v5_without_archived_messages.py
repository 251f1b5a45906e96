"""The tables of version 5: the messages that compactions were made from are kept once, in their conversations."""

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"
entries = sa.table("ledger_entries", sa.column("key"))
archived = sa.table("archived_messages", sa.column("key"), sa.column("parent"))
uses = sa.table("tool_output_uses", sa.column("place"), sa.column("key"), sa.column("id"))


def upgrade() -> None:
    """Drop the archived messages; the outputs that they refer to are from now on referred to by their compactions."""
    chain = (
        sa.select(entries.c.key.label("entry"), archived.c.key, archived.c.parent)
        .join(archived, archived.c.key == entries.c.key)
        .cte("chain", recursive=True)
    )
    chain = chain.union(
        sa.select(chain.c.entry, archived.c.key, archived.c.parent).join(archived, archived.c.key == chain.c.parent)
    )
    own = uses.alias()
    known = sa.exists().where(own.c.place == entries.name, own.c.key == chain.c.entry, own.c.id == uses.c.id)
    referred = (
        sa.select(sa.literal(entries.name), chain.c.entry, uses.c.id)
        .join(uses, uses.c.key == chain.c.key)
        .where(uses.c.place == archived.name, ~known)
        .distinct()
    )
    op.execute(sa.insert(uses).from_select(["place", "key", "id"], referred))
    op.execute(sa.delete(uses).where(uses.c.place == archived.name))
    op.drop_table(archived.name)
