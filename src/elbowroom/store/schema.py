"""Which version the tables of a file have, and how they become today's; Alembic is loaded only where that is needed."""

import asyncio
from functools import partial
from typing import Final

from sqlalchemy import Connection, delete, insert, inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.tables import SCHEMA_VERSION, alembic_version, metadata, schema_version

MIGRATIONS: Final = "elbowroom.store:migrations"


async def version_of(connection: AsyncConnection) -> int:
    """Return the version of the tables, 0 where there are none. Raises StoreUnavailable for those of a newer one."""
    return await connection.run_sync(_version)


async def make_tables(connection: AsyncConnection) -> None:
    """Make all tables in a new file, as all migrations together would: that takes a fraction of their time."""
    await connection.run_sync(partial(metadata.create_all, checkfirst=False))
    await connection.run_sync(alembic_version.create)
    await connection.execute(insert(alembic_version).values(version_num=str(SCHEMA_VERSION)))
    await connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))


async def bring_up_to_date(connection: AsyncConnection) -> None:
    """Run those migrations that a file has not seen, in the transaction that is open.

    Raises StoreUnavailable for a file that a newer one has written.
    """
    await connection.run_sync(_upgrade)


async def load_migrations() -> None:
    """Import what `bring_up_to_date` needs in a thread: it takes a third of a second."""
    await asyncio.to_thread(__import__, "alembic.command")


def _version(connection: Connection) -> int:
    """Return the version, 0 where there are no tables."""
    if not inspect(connection).has_table(schema_version.name):
        return 0
    found: int = connection.scalar(select(schema_version.c.version)) or 0
    if found > SCHEMA_VERSION:
        message = f"it was written by a newer elbowroom (tables of version {found}; this one knows {SCHEMA_VERSION})"
        raise StoreUnavailable(message, message)
    return found


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    found = _version(connection)
    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", MIGRATIONS)
    if found and not inspect(connection).has_table(alembic_version.name):  # from before Alembic
        command.stamp(config, str(found))
    command.upgrade(config, "head")
    # Also what earlier versions look at before they touch anything, and what is quicker to look at than Alembic's.
    connection.execute(delete(schema_version))
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))
