"""Each kind of rows in a database in memory that is asked without threads, for tests of other rooms."""

import weakref
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from sqlalchemy import Connection

from elbowroom.context.conversation import Known
from elbowroom.store.base import LIMITS_IN_MEMORY, WatchedClock
from elbowroom.store.changes import Deleted, KeptChange, TurnDeleted
from elbowroom.store.outputs import WriteBehindToolOutputs
from elbowroom.store.questions import Conversations
from elbowroom.store.rows import WriteBehindLedger, WriteBehindMemories
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.conversations import SqlConversations
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.sharing import Written
from elbowroom.store.write_behind import WriteBehindStore

Result = TypeVar("Result")


class InlineDatabase(Database):
    """A database in memory that answers where it is asked."""

    def __init__(self) -> None:
        super().__init__(None)
        self._later: list[Callable[[Connection], object]] = []
        self._open()
        weakref.finalize(self, self._writer.dispose)

    async def do(self, work: Callable[[], Result], threads: Executor | None = None) -> Result:
        result = work()
        while self._later:
            self._try(self._later.pop(0))
        return result

    def write_later(self, change: Callable[[Connection], object]) -> None:
        """Make a change after the question that is being answered, or the next one."""
        self._later.append(change)


class MemoryConversations(SqlConversations, Conversations):
    """`Conversations` into which changes are taken at once."""

    is_opening = False

    def __init__(self) -> None:
        super().__init__(InlineDatabase())
        self.handing_on: list[Callable[[], None]] = []

    def note(self, changes: Sequence[KeptChange]) -> None:
        """Write changes."""
        self._write(changes, Written(0), "")

    def expect(self, noting: Awaitable[None]) -> None:
        """Wait for nothing."""

    def remembered(self, owner: str, name: str, keys: Sequence[str], common: int) -> Known | None:
        """Remember nothing."""
        return None

    def note_when_writing(self, hand_on: Callable[[], None]) -> None:
        """Keep it until `hand_on` is called."""
        self.handing_on.append(hand_on)

    def hand_on(self) -> None:
        """Ask for what has come until now, as a store does that writes."""
        handing_on, self.handing_on = self.handing_on, []
        for tell in handing_on:
            tell()

    async def settled(self) -> bool:
        """Tell that nothing is durable here."""
        return False

    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete a conversation; tell whether it was there."""
        found = await self.find(owner, conversation)
        if found:
            self._write([Deleted(found.id)], Written(0), "")
        return found is not None

    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete a turn; tell whether it was there."""
        is_there = await self.holder(owner, turn) is not None
        if is_there:
            self._write([TurnDeleted(turn)], Written(0), "")
        return is_there


class MemoryToolOutputs(WriteBehindToolOutputs):
    """`ToolOutputs` in memory."""

    def __init__(self) -> None:
        super().__init__(_store())


class MemoryMemories(WriteBehindMemories):
    """`Memories` in memory."""

    def __init__(self) -> None:
        super().__init__(_store())


class MemoryLedgerRows(WriteBehindLedger):
    """`LedgerRows` in memory."""

    def __init__(self) -> None:
        super().__init__(_store())


def _store() -> WriteBehindStore:
    async def begin() -> SqlStore:
        return SqlStore(InlineDatabase(), LIMITS_IN_MEMORY, WatchedClock())

    return WriteBehindStore("memory", begin)
