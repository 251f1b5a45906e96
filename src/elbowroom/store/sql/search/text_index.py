"""An index of the letters of what was said, three at a time, with which a search need not read everything.

What is not in the index yet, a search reads, so that whatever stops the filling leaves searches right.
"""

import asyncio
import logging
from typing import Any, Final

from sqlalchemy import Connection, Select, func, select

from elbowroom.store.base import StoreUnavailable
from elbowroom.store.sql.asking import housekeeping
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.dialect import is_postgresql, try_lock
from elbowroom.store.sql.schema import messages, search_leaving
from elbowroom.store.sql.search import letters, trigrams
from elbowroom.store.sql.search.texts import Indexed

log = logging.getLogger(__name__)
PAUSE_SECONDS: Final = 0.05
AGAIN_SECONDS: Final = 30.0
"""After how many seconds new messages are put in the index; until then a search reads them."""

FILLING_LOCK: Final = 0x656C626F77696478
"""The advisory lock of the one among several servers that fills the index."""


class TextIndex:
    """Puts messages in the index once they are whole, and takes out those that were deleted, in short transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._stopped = asyncio.Event()
        self._is_missing = False

    def stop(self) -> None:
        """Stop after the transaction that is under way."""
        self._stopped.set()

    async def keep_up(self, wait: float = 0.0) -> None:
        """Bring the index up to date after so many seconds; a failure leaves it behind, with a line in the log."""
        try:
            while not self._is_missing and not await self._is_stopped_within(wait) and await self.step():
                wait = PAUSE_SECONDS
        except StoreUnavailable as error:
            log.debug("What was said could not be put in the index for searches: %s", error)

    async def take_out(self) -> None:
        """Take all deleted messages out. Raises StoreUnavailable."""
        while not self._stopped.is_set() and await self._take_out_some():
            pass

    @housekeeping
    def step(self, connection: Connection) -> bool:
        """Take some deleted messages out, or else put some new ones in; tell whether there may be more."""
        if is_postgresql(connection):
            return try_lock(connection, FILLING_LOCK) and letters.put_in(connection)
        return self._is_there(connection) and (trigrams.take_out(connection) or trigrams.put_in(connection))

    @housekeeping
    def _take_out_some(self, connection: Connection) -> bool:
        if is_postgresql(connection):  # where a message takes its letters along
            return False
        is_any = connection.scalar(select(search_leaving.c.number).limit(1)) is not None
        return is_any and self._is_there(connection) and trigrams.take_out(connection)

    def _is_there(self, connection: Connection) -> bool:
        self._is_missing = not trigrams.is_there(connection)
        return not self._is_missing

    async def _is_stopped_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._stopped.wait(), max(seconds, 0.0))
        except TimeoutError:
            return self._stopped.is_set()
        return True


def not_indexed(connection: Connection) -> Select[Any]:
    """Return the question how many messages are not in the index yet."""
    others = letters.OTHERS if is_postgresql(connection) else trigrams.OTHERS
    return select(func.count()).select_from(messages).where(others)


def found_in_index(connection: Connection, search: str) -> Indexed | None:
    """Return what the index tells of a text, None where there is no index, and where it does not help."""
    return letters.found(search) if is_postgresql(connection) else trigrams.found(connection, search)
