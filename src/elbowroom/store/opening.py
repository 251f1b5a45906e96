"""Opens the store where the settings say; SQLAlchemy is loaded in a thread when the store is first used."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from elbowroom.context.ledger import LedgerRows
from elbowroom.context.transcript import Message
from elbowroom.settings.model import StoreSettings
from elbowroom.settings.paths import data_dir
from elbowroom.store.lasting_rows import LastingLedgerRows
from elbowroom.store.memory_rows import MemoryLedgerRows

if TYPE_CHECKING:
    from elbowroom.store.ledger_rows import SqlLedgerRows

FILE_NAME: Final = "elbowroom.db"
SCHEME: Final = "sqlite+aiosqlite://"
IN_MEMORY: Final = frozenset({"", "/:memory:"})


class StoredLedgerRows(LedgerRows, Protocol):
    """The rows of the ledger for as long as a server runs."""

    async def archived(self, key: str) -> Sequence[Message]:
        """Return the messages that a key covers as the client sent them, in order, all but the system's."""
        ...

    async def aclose(self) -> None:
        """Finish what is under way and close the store."""
        ...


def open_ledger_rows(settings: StoreSettings, environ: Mapping[str, str]) -> StoredLedgerRows:
    """Return the rows of the ledger; nothing is read or loaded before they are used, and they raise nothing then.

    Raises SettingsError where `ELBOWROOM_DATA_DIR` is wrong.
    """
    path = database_path(settings, environ)
    if path is None:
        return MemoryLedgerRows()

    async def begin() -> "SqlLedgerRows":
        rows = await asyncio.to_thread(_load)
        return await rows.open(path, settings.retention_days)

    return LastingLedgerRows(str(path), begin)


def database_path(settings: StoreSettings, environ: Mapping[str, str]) -> Path | None:
    """Return the database's file, or None where everything is kept in memory."""
    if not settings.url:
        return data_dir(environ) / FILE_NAME
    place = settings.url.removeprefix(SCHEME)
    return None if place in IN_MEMORY else Path(place.removeprefix("/"))


def _load() -> "type[SqlLedgerRows]":
    from elbowroom.store.ledger_rows import SqlLedgerRows  # most of it is the import of SQLAlchemy

    return SqlLedgerRows
