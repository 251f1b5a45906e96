"""Opens the store where the settings say; SQLAlchemy is loaded in a thread when the store is first used."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from elbowroom.context.observations import Observations
from elbowroom.errors import StoreAway, StoreOpening, StoreUnwritable
from elbowroom.settings.fields import data_dir
from elbowroom.settings.model import StoreSettings
from elbowroom.store.base import ALONE, LIMITS_IN_MEMORY, Limits, Servers, StoreUnavailable, sql_module
from elbowroom.store.conversations import WriteBehindConversations
from elbowroom.store.lock import SECRET_BYTES, secret_beside
from elbowroom.store.outputs import WriteBehindToolOutputs
from elbowroom.store.people import People
from elbowroom.store.place import Place, ServerPlace, place_of
from elbowroom.store.rows import WriteBehindLedger, WriteBehindMemories
from elbowroom.store.sharing import Together
from elbowroom.store.unwritten import UnwrittenFile
from elbowroom.store.write_behind import Patience, WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlStore

log = logging.getLogger(__name__)


class Store(WriteBehindStore):
    """All that outlives a request, in one database.

    What is asked or told never raises when the database fails: what cannot be read is not found, and what cannot be
    written waits. `ready` and `check_reachable` alone raise, for callers that cannot go on with less than all. What a
    database server has not taken is kept in a file in the `folder`.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Awaitable["SqlStore"]],
        patience: Patience | None = None,
        observations: Observations | None = None,
        *,
        place: Place = None,
        folder: Path | None = None,
    ) -> None:
        own = f"server_{secrets.token_hex(8)}"
        beside = UnwrittenFile(folder, own) if isinstance(place, ServerPlace) and folder is not None else None
        super().__init__(name, begin, patience, observations, beside)
        self.servers: Servers = Together(self, place, own) if isinstance(place, ServerPlace) else ALONE
        self.when_open(self.servers.start)
        self.ledger = WriteBehindLedger(self, self.servers)
        self.tool_outputs = WriteBehindToolOutputs(self)
        self.memories = WriteBehindMemories(self, self.servers)
        self.conversations = WriteBehindConversations(self, self.servers)
        self.people = People(self, self.servers)
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
        try:
            if sql := await self.opened():
                return await sql.secret()
        except StoreUnavailable as error:
            log.warning("The secret of compactions cannot be read from the store %s: %s", self._place, error)
        return secrets.token_bytes(SECRET_BYTES)

    async def ready(self, seconds: float | None = None) -> None:
        """Wait for so many seconds, or two, until what is kept can be told. Raises StoreOpening where it cannot then.

        A database that cannot be opened at all is no reason to wait: then what is new can be told.
        """
        if not await self.opening_ended(self.patience.asking if seconds is None else seconds):
            raise StoreOpening

    @asynccontextmanager
    async def in_time(self) -> AsyncIterator[None]:
        """Ask for what is kept in this block. Raises StoreAway where a server has not told it in two seconds."""
        seconds = self.patience.asking if isinstance(self._place, ServerPlace) else None
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
        if isinstance(self._place, ServerPlace) and self.current is None:
            raise StoreAway

    async def check_deleted(self) -> None:
        """Raise StoreUnwritable where a deletion is not written, so that after a restart it would not have happened."""
        if self._place is not None and not await self.conversations.settled():
            raise StoreUnwritable

    @property
    def state(self) -> Mapping[str, str]:
        """Return whether the database works, as `status` of ok, opening or failing, with what there is to know."""
        status = "failing" if self.is_failing else "opening" if self.current is None else "ok"
        return {"status": status, **({"note": self.trouble} if self.trouble else {})}

    @property
    def can_be_written(self) -> bool:
        """Tell whether the database is open, and has taken what was last written.

        A database server may fail for as long as the others count this one as there: what it says meanwhile is kept.
        """
        if not self.is_failing:
            return self.current is not None
        return self.servers.counts_for > time.monotonic() - self.failing_since

    @property
    def lag(self) -> float:
        """Return for how many seconds the oldest word that is not in the database has waited; 0 where all are."""
        return self.conversations.lag

    async def aclose(self) -> None:
        """Finish what is under way and close the store."""
        await self.servers.in_step(self.conversations.settled)
        await self.servers.aclose()
        await super().aclose()
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
        opened: SqlStore = await sql.SqlStore.open(place, limits, server=store.servers.id)
        return opened

    store = Store(str(place or "in memory"), begin, observations=observations, place=place, folder=folder)
    return store
