"""The database: opened and checked once, read by many at a time, written by one."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Self

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from elbowroom.store.database_file import prepare_file, set_aside
from elbowroom.store.errors import StoreDamaged, StoreUnavailable
from elbowroom.store.sqlite import WRITES, check, create_engine, translated_errors
from elbowroom.store.tables import SCHEMA_VERSION, metadata, schema_version

log = logging.getLogger(__name__)


class Database:
    """An open database file that has been found sound; made by `open`, given back by `aclose`."""

    def __init__(self, path: Path, engine: AsyncEngine) -> None:
        self.path = path
        self._readers = engine
        self._writers = engine.execution_options(**{WRITES: True})
        self._turn = asyncio.Lock()
        self._is_closed = False

    @classmethod
    async def open(cls, path: Path) -> Self:
        """Open the file, or make it with its folder; one that is damaged is set aside first, and the log says so.

        Raises StoreUnavailable.
        """
        try:
            return await cls._open_sound(path)
        except StoreDamaged as damage:
            async with translated_errors():
                aside = await asyncio.to_thread(set_aside, path, datetime.now().astimezone())
            log.error("The store %s is damaged: %s. It is kept as %s, and a new one is begun.", path, damage, aside)  # noqa: TRY400
        return await cls._open_sound(path)

    @classmethod
    async def _open_sound(cls, path: Path) -> Self:
        async with translated_errors():
            await asyncio.to_thread(prepare_file, path)
            engine = await asyncio.to_thread(create_engine, path)
        database = cls(path, engine)
        try:
            async with database.reading() as connection:
                await check(connection)
            async with database.writing() as connection:
                await _prepare_tables(connection, path)
        except BaseException:
            await database.aclose()
            raise
        return database

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Hold a connection that sees the database as it is now. Raises StoreUnavailable."""
        self._check_open()
        async with translated_errors(), self._readers.begin() as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """Hold the only transaction that writes: committed at the end, rolled back if that is not reached.

        Raises StoreUnavailable.
        """
        async with self._turn:
            self._check_open()
            async with translated_errors(), self._writers.begin() as connection:
                yield connection

    async def aclose(self) -> None:
        """Close every connection; nobody may hold one any more."""
        self._is_closed = True
        await self._readers.dispose()

    def _check_open(self) -> None:
        if self._is_closed:  # an engine would open the file again
            raise StoreUnavailable("it has been closed")


async def _prepare_tables(connection: AsyncConnection, path: Path) -> None:
    await connection.run_sync(schema_version.create, checkfirst=True)
    found = (await connection.execute(select(schema_version.c.version))).scalar()
    if found is not None and found > SCHEMA_VERSION:
        raise StoreUnavailable(
            f"it was written by a newer elbowroom (tables of version {found}; this one knows {SCHEMA_VERSION})"
        )
    await connection.run_sync(metadata.create_all)
    if found is None:
        await connection.execute(insert(schema_version).values(version=SCHEMA_VERSION))
    elif found < SCHEMA_VERSION:  # all that an older file lacks is tables
        await connection.execute(update(schema_version).values(version=SCHEMA_VERSION))
