"""The database: opened and checked once, read by many at a time, written by one."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Final, Self

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from elbowroom.store.database_file import prepare_file, set_aside
from elbowroom.store.errors import StoreDamaged, StoreUnavailable
from elbowroom.store.schema import bring_up_to_date, load_migrations, make_tables, version_of
from elbowroom.store.sqlite import Values, Writing, check, create_engines, execute_together, translated_errors
from elbowroom.store.tables import SCHEMA_VERSION

log = logging.getLogger(__name__)
MIGRATING: Final = threading.Lock()
"""Held while tables change: Alembic knows one migration in a process."""


class Database:
    """An open database file that has been found sound; made by `open`, given back by `aclose`.

    `set_aside` is where the file is now that was damaged when this one was opened in its place.
    """

    def __init__(self, path: Path, readers: AsyncEngine, writer: AsyncEngine) -> None:
        self.path = path
        self.set_aside: Path | None = None
        self._readers = readers
        self._writer = writer
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
        database = await cls._open_sound(path)
        database.set_aside = aside
        return database

    @classmethod
    async def _open_sound(cls, path: Path) -> Self:
        async with translated_errors():
            await asyncio.to_thread(prepare_file, path)
            database = cls(path, *await asyncio.to_thread(create_engines, path))
        try:
            await database._prepare()
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
            async with translated_errors(), self._writer.begin() as connection:
                yield connection

    async def write(self, groups: Sequence[tuple[Writing, Sequence[Values]]]) -> None:
        """Write statements in order, each with all its values, all or nothing; cheaper than `writing` by far.

        The statements are constants. Raises StoreUnavailable.
        """
        async with self._turn:
            self._check_open()
            async with translated_errors(), self._writer.connect() as connection:
                await execute_together(connection, groups)

    async def aclose(self) -> None:
        """Close every connection; nobody may hold one any more."""
        self._is_closed = True
        await self._readers.dispose()
        await self._writer.dispose()  # the last one that is closed writes the log into the file

    async def _prepare(self) -> None:
        async with self.reading() as connection:
            await check(connection)
            version = await version_of(connection)
        if version == SCHEMA_VERSION:
            return
        if version == 0:
            async with self.writing() as connection:
                await make_tables(connection)
            return
        await load_migrations()
        while not MIGRATING.acquire(blocking=False):  # noqa: ASYNC110  # whoever holds it may have another event loop
            await asyncio.sleep(0.01)
        try:
            async with self.writing() as connection:
                await bring_up_to_date(connection)
        finally:
            MIGRATING.release()

    def _check_open(self) -> None:
        if self._is_closed:  # an engine would open the file again
            raise StoreUnavailable("it has been closed")
