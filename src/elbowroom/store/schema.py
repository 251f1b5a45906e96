"""Which version the tables of a file have, and how they become today's; Alembic is loaded only where that is needed."""

import asyncio
from typing import Final

from sqlalchemy import Connection, delete, insert, inspect, select
from sqlalchemy.ext.asyncio import AsyncConnection

from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.tables import SCHEMA_VERSION, schema_version

MIGRATIONS: Final = "elbowroom.store:migrations"
OF_ALEMBIC: Final = "alembic_version"


async def is_current(connection: AsyncConnection) -> bool:
    """Tell whether the tables are those of this elbowroom. Raises StoreUnavailable for those of a newer one."""
    return await connection.run_sync(_version) == SCHEMA_VERSION


async def bring_up_to_date(connection: AsyncConnection) -> None:
    """Make all tables in a new file, or change those of an older elbowroom, in the transaction that is open.

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
    if found and not inspect(connection).has_table(OF_ALEMBIC):  # as elbowroom wrote it before it used Alembic
        command.stamp(config, str(found))
    command.upgrade(config, "head")
    # Also what earlier versions look at before they touch anything, and what is quicker to look at than Alembic's.
    connection.execute(delete(schema_version))
    connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))
