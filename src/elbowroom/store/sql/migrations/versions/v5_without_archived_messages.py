"""The tables of version 5: the messages that compactions were made from are kept once, in their conversations."""

from collections.abc import Iterator

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"
entries = sa.table("ledger_entries", sa.column("key"))
archived = sa.table("archived_messages", sa.column("key"), sa.column("parent"))
uses = sa.table("tool_output_uses", sa.column("place"), sa.column("key"), sa.column("id"))


def upgrade() -> None:
    """Drop the archived messages; the outputs that they refer to are from now on referred to by their compactions."""
    connection = op.get_bind()
    parents = {row.key: row.parent for row in connection.execute(sa.select(archived.c.key, archived.c.parent))}
    referred = _uses_of(connection, archived.name)
    naming = {key: ids for key, ids in referred.items() if key in parents}
    known = _uses_of(connection, entries.name)
    nearest: dict[str, str] = {}
    for entry in connection.scalars(sa.select(entries.c.key)).all() if naming else ():
        ids = {used for key in _chain(entry, parents, naming, nearest) for used in naming[key]}
        if new := ids - known.get(entry, set()):
            connection.execute(
                sa.insert(uses), [{"place": entries.name, "key": entry, "id": used} for used in sorted(new)]
            )
    op.execute(sa.delete(uses).where(uses.c.place == archived.name))
    op.drop_table(archived.name)


def _uses_of(connection: sa.Connection, place: str) -> dict[str, set[str]]:
    """Return the ids of outputs that the rows of a table refer to, by the keys of the rows."""
    found: dict[str, set[str]] = {}
    for key, used in connection.execute(sa.select(uses.c.key, uses.c.id).where(uses.c.place == place)):
        found.setdefault(key, set()).add(used)
    return found


def _chain(key: str, parents: dict[str, str], naming: dict[str, set[str]], nearest: dict[str, str]) -> Iterator[str]:
    """Yield the messages that refer to outputs, from a message back to the first; `nearest` saves walking twice."""
    seen: set[str] = set()
    while (key := _first_naming(key, parents, naming, nearest)) and key not in seen:
        yield key
        seen.add(key)
        key = parents[key]


def _first_naming(key: str, parents: dict[str, str], naming: dict[str, set[str]], nearest: dict[str, str]) -> str:
    """Return the message itself or the nearest one before it that refers to outputs; empty where there is none."""
    passed: list[str] = []
    while key in parents and key not in naming and key not in nearest:
        nearest[key] = ""  # where another program has made a ring, it is walked once
        passed.append(key)
        key = parents[key]
    found = key if key in naming else nearest.get(key, "")
    nearest.update(dict.fromkeys(passed, found))
    return found
