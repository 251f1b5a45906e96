"""Opens the store where the settings say; SQLAlchemy is loaded in a thread when the store is first used."""

import asyncio
import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from elbowroom.context.observations import Observations
from elbowroom.errors import StoreOpening
from elbowroom.settings.fields import data_dir
from elbowroom.settings.model import StoreSettings
from elbowroom.store.base import LIMITS_IN_MEMORY, Limits
from elbowroom.store.conversations import WriteBehindConversations
from elbowroom.store.lock import secret_beside
from elbowroom.store.outputs import WriteBehindToolOutputs
from elbowroom.store.rows import WriteBehindLedger, WriteBehindMemories
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

FILE_NAME: Final = "elbowroom.db"
SCHEMES: Final = ("sqlite://", "sqlite+aiosqlite://")
"""The second is what earlier versions took."""
IN_MEMORY: Final = frozenset({"", "/:memory:"})


class Store:
    """All that outlives a request, in one database; nothing of it raises anything when that fails."""

    def __init__(self, behind: WriteBehindStore, path: Path | None = None) -> None:
        self.ledger = WriteBehindLedger(behind)
        self.tool_outputs = WriteBehindToolOutputs(behind)
        self.memories = WriteBehindMemories(behind)
        self.conversations = WriteBehindConversations(behind)
        self._behind = behind
        self._path = path
        self._secret: asyncio.Future[bytes] | None = None

    async def secret(self) -> bytes:
        """Return the 32 bytes by which this store's compaction items are known; a store in memory forgets them."""
        if self._secret is None:
            self._secret = asyncio.ensure_future(asyncio.to_thread(secret_beside, self._path))
        return await asyncio.shield(self._secret)

    def open_soon(self) -> None:
        """Begin to open the database, so that the first request waits less for it; for when the server listens."""
        self._behind.open_soon()

    @property
    def is_opening(self) -> bool:
        """Tell whether the database is being opened, so that only what is new is known."""
        return self._behind.is_opening

    async def ready_for_words(self) -> None:
        """Wait a short while for the first opening, so that what is said from now on is written in time."""
        await self._behind.ready_for_words()

    async def ready(self, seconds: float | None = None) -> None:
        """Wait for so many seconds, or two, until what is kept can be told. Raises StoreOpening where it cannot then.

        A database that cannot be opened at all is no reason to wait: then what is new can be told.
        """
        if not await self._behind.ready(seconds):
            raise StoreOpening

    def news(self) -> list[str]:
        """Return short sentences for people about what has happened to the database, each once."""
        return self._behind.news()

    @property
    def is_failing(self) -> bool:
        """Tell whether the database does not work, so that new rows are only in memory."""
        return self._behind.is_failing

    @property
    def lag(self) -> float:
        """Return for how many seconds the oldest word that is not in the database has waited; 0 where all are."""
        return self.conversations.lag

    async def aclose(self) -> None:
        """Finish what is under way and close the store."""
        await self._behind.aclose()
        await self.conversations.aclose()


def open_store(settings: StoreSettings, environ: Mapping[str, str], observations: Observations | None = None) -> Store:
    """Return the store; nothing is read or loaded before it is used.

    Raises SettingsError where `ELBOWROOM_DATA_DIR` is wrong.
    """
    path = database_path(settings, environ)
    return _store(path, Limits.of(settings), observations) if path else open_in_memory(observations)


def open_in_memory(observations: Observations | None = None) -> Store:
    """Return a store that lasts as long as the process."""
    return _store(None, LIMITS_IN_MEMORY, observations)


def open_temporary() -> Store:
    """Return a store in memory for what is dropped a day after its last use at the latest."""
    return _store(None, replace(LIMITS_IN_MEMORY, retention_days=1), None)


def database_path(settings: StoreSettings, environ: Mapping[str, str]) -> Path | None:
    """Return the database's file, or None where everything is kept in memory."""
    if not settings.url:
        return data_dir(environ) / FILE_NAME
    place = settings.url
    for scheme in SCHEMES:
        place = place.removeprefix(scheme)
    return None if place in IN_MEMORY else Path(place.removeprefix("/"))


def _store(path: Path | None, limits: Limits, observations: Observations | None) -> Store:
    async def begin() -> "SqlStore":
        sql = await asyncio.to_thread(importlib.import_module, "elbowroom.store.sql")
        opened: SqlStore = await sql.SqlStore.open(path, limits)
        return opened

    return Store(WriteBehindStore(str(path or "in memory"), begin, observations=observations), path)
