"""Opens the store where the settings say; SQLAlchemy is loaded in a thread when the store is first used."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from elbowroom.context.conversation import Conversations
from elbowroom.context.ledger import LedgerRows
from elbowroom.context.memories import Memories
from elbowroom.context.observations import Observations
from elbowroom.context.outputs import ToolOutputs
from elbowroom.context.transcript import Message
from elbowroom.settings.fields import data_dir
from elbowroom.settings.model import StoreSettings
from elbowroom.store.conversations_lasting import LastingConversations
from elbowroom.store.conversations_memory import MemoryConversations
from elbowroom.store.lasting_rows import LastingLedgerRows
from elbowroom.store.lasting_store import LastingStore
from elbowroom.store.limits import Limits
from elbowroom.store.memories_lasting import LastingMemories
from elbowroom.store.memories_memory import MemoryMemories
from elbowroom.store.memory_rows import MemoryLedgerRows
from elbowroom.store.tool_outputs_lasting import LastingToolOutputs
from elbowroom.store.tool_outputs_memory import MemoryToolOutputs

if TYPE_CHECKING:
    from elbowroom.store.sql_store import SqlStore

FILE_NAME: Final = "elbowroom.db"
SCHEME: Final = "sqlite+aiosqlite://"
IN_MEMORY: Final = frozenset({"", "/:memory:"})


class StoredLedgerRows(LedgerRows, Protocol):
    """The rows of the ledger for as long as a server runs."""

    async def archived(self, key: str) -> Sequence[Message]:
        """Return the messages that a key covers as the client sent them, in order, all but the system's."""
        ...


@dataclass(frozen=True, slots=True)
class Store:
    """All that outlives a request, in one database or in memory; none of it raises anything when that fails."""

    ledger: StoredLedgerRows
    tool_outputs: ToolOutputs
    memories: Memories
    conversations: Conversations
    _close: Callable[[], Awaitable[None]]
    _lasting: LastingStore | None = None

    def open_soon(self) -> None:
        """Begin to open the database, so that the first request waits less for it; for when the server listens."""
        if self._lasting:
            self._lasting.open_soon()

    def news(self) -> list[str]:
        """Return what has happened to the database that a person should read about: short sentences, each once."""
        return self._lasting.news() if self._lasting else []

    @property
    def is_failing(self) -> bool:
        """Tell whether the database does not work, so that what is new is only in memory."""
        return self._lasting is not None and self._lasting.is_failing

    async def aclose(self) -> None:
        """Finish what is under way and close the store."""
        await self._close()


def open_store(settings: StoreSettings, environ: Mapping[str, str], observations: Observations | None = None) -> Store:
    """Return the store; nothing is read or loaded before it is used.

    Raises SettingsError where `ELBOWROOM_DATA_DIR` is wrong.
    """
    path = database_path(settings, environ)
    if path is None:
        return _in_memory()

    async def begin() -> "SqlStore":
        store = await asyncio.to_thread(_load)
        return await store.open(path, Limits.of(settings))

    lasting = LastingStore(str(path), begin, observations=observations)
    ledger, tool_outputs, memories = LastingLedgerRows(lasting), LastingToolOutputs(lasting), LastingMemories(lasting)
    return Store(ledger, tool_outputs, memories, LastingConversations(lasting), lasting.aclose, lasting)


def database_path(settings: StoreSettings, environ: Mapping[str, str]) -> Path | None:
    """Return the database's file, or None where everything is kept in memory."""
    if not settings.url:
        return data_dir(environ) / FILE_NAME
    place = settings.url.removeprefix(SCHEME)
    return None if place in IN_MEMORY else Path(place.removeprefix("/"))


def _in_memory() -> Store:
    ledger, tool_outputs, memories = MemoryLedgerRows(), MemoryToolOutputs(), MemoryMemories()
    conversations = MemoryConversations()

    async def forget() -> None:
        for rows in (ledger, tool_outputs, memories, conversations):
            await rows.aclose()

    return Store(ledger, tool_outputs, memories, conversations, forget)


def _load() -> "type[SqlStore]":
    from elbowroom.store.sql_store import SqlStore  # most of it is the import of SQLAlchemy

    return SqlStore
