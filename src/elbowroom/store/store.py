"""Opens the store where the settings say; SQLAlchemy is loaded in a thread when the store is first used."""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elbowroom.context.observations import Observations
from elbowroom.errors import StoreAway, StoreOpening, StoreUnwritable
from elbowroom.settings.fields import data_dir
from elbowroom.settings.model import StoreSettings
from elbowroom.store.base import ALONE, LIMITS_IN_MEMORY, Limits, Servers, sql_module
from elbowroom.store.conversations import WriteBehindConversations
from elbowroom.store.lock import secret_beside
from elbowroom.store.outputs import WriteBehindToolOutputs
from elbowroom.store.people import People
from elbowroom.store.place import Place, ServerPlace, place_of
from elbowroom.store.rows import WriteBehindLedger, WriteBehindMemories
from elbowroom.store.sharing import Together
from elbowroom.store.unwritten import UnwrittenFile
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore


class Store:
    """All that outlives a request, in one database.

    What is asked or told never raises when the database fails: what cannot be read is not found, and what cannot be
    written waits. `ready` and `check_reachable` alone raise, for callers that cannot go on with less than all.
    """

    def __init__(self, behind: WriteBehindStore, place: Place = None, servers: Servers = ALONE) -> None:
        self.ledger = WriteBehindLedger(behind, servers)
        self.tool_outputs = WriteBehindToolOutputs(behind)
        self.memories = WriteBehindMemories(behind, servers)
        self.conversations = WriteBehindConversations(behind, servers)
        self.people = People(behind, servers)
        self.servers = servers
        self._behind = behind
        self._place = place
        self._secret: asyncio.Future[bytes] | None = None

    async def secret(self) -> bytes:
        """Return the 32 bytes by which this store's compaction items are known; a store in memory forgets them."""
        if self._secret is None or (self._secret.done() and self._secret.exception()):
            self._secret = asyncio.ensure_future(self._read_secret())
        return await asyncio.shield(self._secret)

    async def _read_secret(self) -> bytes:
        if not isinstance(self._place, ServerPlace):
            return await asyncio.to_thread(secret_beside, self._place)
        return await self._behind.secret()

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

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Ask for what is kept in this block. Raises StoreAway where a server has not told it in two seconds."""
        seconds = self._behind.asking_seconds if isinstance(self._place, ServerPlace) else None
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                yield
        except TimeoutError:
            if limit.expired():
                raise StoreAway from None
            raise

    def check_reachable(self) -> None:
        """Raise StoreAway where a database server is out of reach, which may keep what is not found without it."""
        if isinstance(self._place, ServerPlace) and self._behind.current is None:
            raise StoreAway

    async def check_deleted(self) -> None:
        """Raise StoreUnwritable where a deletion is not written, so that after a restart it would not have happened."""
        if self._place is not None and not await self.conversations.settled():
            raise StoreUnwritable

    def news(self) -> list[str]:
        """Return short sentences for people about what has happened to the database, each once."""
        return self._behind.news()

    @property
    def is_failing(self) -> bool:
        """Tell whether the database does not work, so that new rows are only in memory."""
        return self._behind.is_failing

    @property
    def state(self) -> Mapping[str, str]:
        """Return whether the database works, as `status` of ok, opening or failing, with what there is to know."""
        status = "failing" if self.is_failing else "opening" if self._behind.current is None else "ok"
        return {"status": status, **({"note": self._behind.trouble} if self._behind.trouble else {})}

    @property
    def can_be_written(self) -> bool:
        """Tell whether the database is open, and has taken what was last written.

        A database server may fail for as long as the others count this one as there: what it says meanwhile is kept.
        """
        if not self._behind.is_failing:
            return self._behind.current is not None
        return self.servers.counts_for > time.monotonic() - self._behind.failing_since

    @property
    def lag(self) -> float:
        """Return for how many seconds the oldest word that is not in the database has waited; 0 where all are."""
        return self.conversations.lag

    async def aclose(self) -> None:
        """Finish what is under way and close the store."""
        await self.servers.in_step(self.conversations.settled)
        await self.servers.aclose()
        await self._behind.aclose()
        await self.conversations.aclose()


def open_store(settings: StoreSettings, environ: Mapping[str, str], observations: Observations | None = None) -> Store:
    """Return the store; nothing is read or loaded before it is used.

    Raises SettingsError where `ELBOWROOM_DATA_DIR` is wrong.
    """
    place = store_place(settings, environ)
    if place is None:
        return open_in_memory(observations)
    return _store(place, Limits.of(settings), observations, data_dir(environ))


def open_in_memory(observations: Observations | None = None) -> Store:
    """Return a store that lasts as long as the process."""
    return _store(None, LIMITS_IN_MEMORY, observations)


def open_temporary() -> Store:
    """Return a store in memory for what is dropped a day after its last use at the latest."""
    return _store(None, replace(LIMITS_IN_MEMORY, retention_days=1), None)


def store_place(settings: StoreSettings, environ: Mapping[str, str]) -> Place:
    """Return where everything is kept, None for in memory. Raises SettingsError where what that needs is missing."""
    return place_of(settings.url, environ)


def database_path(settings: StoreSettings, environ: Mapping[str, str]) -> Path | None:
    """Return the database's file, or None where everything is kept in memory or on a database server."""
    place = store_place(settings, environ)
    return place if isinstance(place, Path) else None


def _store(place: Place, limits: Limits, observations: Observations | None, folder: Path | None = None) -> Store:
    async def begin() -> "SqlStore":
        sql = await asyncio.to_thread(sql_module)
        opened: SqlStore = await sql.SqlStore.open(place, limits, server=servers.id)
        return opened

    own = f"server_{secrets.token_hex(8)}"
    beside = UnwrittenFile(folder, own) if isinstance(place, ServerPlace) and folder is not None else None
    behind = WriteBehindStore(str(place or "in memory"), begin, observations=observations, beside=beside)
    servers = Together(behind, place, own) if isinstance(place, ServerPlace) else ALONE
    behind.when_open(servers.start)
    return Store(behind, place, servers)
