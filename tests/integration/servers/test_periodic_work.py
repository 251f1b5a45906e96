"""What is to be done now and then, one of several servers does: the others leave it to that one."""

import pytest
from ledger_files import sql_store
from postgresql import new_place, shared_server
from standing_clock import DAY, Clock
from stored_conversations import begun, write_behind_conversations

from elbowroom.store import ServerPlace
from elbowroom.store.base import Limits, StoreUnavailable
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.search.text_index import FILLING_LOCK
from elbowroom.store.sql.store import LIMITS_LOCK

UNINDEXED = "SELECT count(*) FROM messages WHERE letters IS NULL"


def asked(place: ServerPlace, question: str) -> int:
    """Return the number that answers a question to a database."""
    rows = shared_server().ask(question, place.address.rpartition("/")[2])
    return int(rows[0][0])


@pytest.mark.slow
async def test_one_server_applies_the_limits() -> None:
    """While one of them deletes what is too old, another deletes nothing; later it does."""
    clock = Clock()
    async with new_place() as place, sql_store(place, Limits(retention_days=30), clock) as store:
        async with write_behind_conversations(place) as kept:
            kept.note(begun("old", "heron"))
            assert await kept.settled()
        clock.now += 60 * DAY
        told = "SELECT count(*) FROM conversations"
        asked(place, f"WITH aged AS (UPDATE conversations SET updated = {clock.now - 40 * DAY} RETURNING 1) {told}")
        clock.now += DAY
        other = await Database.open(place)
        async with other.alone(LIMITS_LOCK) as is_alone:
            assert is_alone
            await store._apply_limits()
            assert asked(place, told) == 1
        await store._apply_limits()
        assert asked(place, told) == 0
        await other.aclose()


async def test_the_work_of_a_server_that_dies_is_free_at_once() -> None:
    """The lock goes with the connection of the one that had it, and that one learns of it."""
    async with new_place() as place:
        dying, other = await Database.open(place), await Database.open(place)
        with pytest.raises(StoreUnavailable):
            await cut_off(place, dying, other)
        await dying.aclose()
        await other.aclose()


async def cut_off(place: ServerPlace, dying: Database, other: Database) -> None:
    """Cut the connection of a server that holds the lock, and let another take it."""
    holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    async with dying.alone(LIMITS_LOCK) as is_first:
        async with other.alone(LIMITS_LOCK) as is_alone:
            assert (is_first, is_alone) == (True, False)
        asked(place, f"SELECT count(pg_terminate_backend(pid)) FROM ({holder}) AS own")
        while asked(place, f"SELECT count(*) FROM ({holder}) AS own"):
            pass  # the server ends the connection soon
        async with other.alone(LIMITS_LOCK) as is_alone:
            assert is_alone


async def test_one_server_fills_the_index_for_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """While one of them puts messages in the index, another leaves it to that one; later it goes on."""
    monkeypatch.setattr("elbowroom.store.sql.store.SqlStore._index_soon", lambda *_: None)
    async with new_place() as place, sql_store(place) as store, write_behind_conversations(place) as kept:
        kept.note(begun("c", "heron"))
        assert await kept.settled()
        other = await Database.open(place)
        async with other.alone(FILLING_LOCK):
            assert not await store._index.step()
            assert asked(place, UNINDEXED) == 1
        while await store._index.step():
            pass
        assert asked(place, UNINDEXED) == 0
        await other.aclose()
