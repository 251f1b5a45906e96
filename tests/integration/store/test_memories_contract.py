"""What memories promise: in a file, in memory, and where the file cannot be opened."""

from pathlib import Path

import pytest
import store_fixtures
from kept_outputs import ME, written_down
from ledger_files import file_store, query, sql_store

from elbowroom.context.memories import Memories, Memory, memory_of
from elbowroom.store import Store
from elbowroom.store.packed import MOST_MEMORIES

ODD = ["", "\ud800", "a\0b", "'; DROP TABLE memories; --", "\U0001f600", "x" * 100_000, "one\ntwo\n"]


store = store_fixtures.store


@pytest.fixture
def memories(store: Store) -> Memories:
    """The memories of a store of each kind."""
    return store.memories


async def test_the_newest_comes_first(memories: Memories) -> None:
    """What was saved is there, the newest first, whatever the order of saving."""
    assert await memories.all(ME, "agent") == []
    saved = [await memories.save(ME, "agent", f"memory {when}", float(when)) for when in (2, 1, 3)]
    assert await memories.all(ME, "agent") == [saved[2], saved[0], saved[1]]


async def test_the_same_again_is_renewed(memories: Memories) -> None:
    """A text that differs in white space alone is the same memory: saved now, as it is written now, once."""
    first = await memories.save(ME, "agent", "likes  green tea", 1.0)
    await memories.save(ME, "agent", "is tired", 2.0)
    again = await memories.save(ME, "agent", " likes green\n\ttea ", 3.0)
    assert again == Memory(first.id, " likes green\n\ttea ", 3.0)
    assert await written_down(memories) == [" likes green\n\ttea ", "is tired"]
    assert (await memories.save(ME, "agent", "likes greentea", 4.0)).id != first.id


async def test_owners_and_agents_are_apart(memories: Memories) -> None:
    """Nobody reads or deletes what another owner, or another agent of the same owner, has saved."""
    rooms = [(owner, agent) for owner in ("a", "a b", *ODD[:4]) for agent in ("b", "b c", *ODD[:4])]
    saved = {room: await memories.save(*room, "the same secret", 1.0) for room in rooms}
    assert len({memory.id for memory in saved.values()}) == len(rooms)
    for room in rooms:
        assert await memories.all(*room) == [saved[room]]
    assert not await memories.delete(*rooms[0], saved[rooms[1]].id)
    assert await memories.delete(*rooms[0], saved[rooms[0]].id)
    assert [len(await memories.all(*room)) for room in rooms] == [0, *[1] * (len(rooms) - 1)]


async def test_any_text_is_kept(memories: Memories) -> None:
    """Lone surrogates, NUL, quotes and length come back as they were."""
    for when, text in enumerate(ODD):
        await memories.save(ME, "agent", text, float(when))
    assert await written_down(memories) == ODD[::-1]


async def test_what_is_deleted_is_gone(memories: Memories) -> None:
    """Deleting tells whether the memory was there; it can be saved again."""
    memory = await memories.save(ME, "agent", "likes tea", 1.0)
    for ref_id in ("", "\ud800", "\0", "x" * 12, "' OR 1=1; --"):
        assert not await memories.delete(ME, "agent", ref_id)
    assert await memories.delete(ME, "agent", memory.id)
    assert not await memories.delete(ME, "agent", memory.id)
    assert await memories.all(ME, "agent") == []
    await memories.save(ME, "agent", "likes tea", 2.0)
    assert await written_down(memories) == ["likes tea"]


async def test_in_memory_the_rooms_go_in_which_nothing_was_saved_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database in memory has those of so many agents and owners."""
    monkeypatch.setattr("elbowroom.store.sql.rows.MOST_ROOMS_IN_MEMORY", 10)
    async with sql_store(None) as sql:
        for when in range(12):
            await sql.memories.save(f"room {when}", memory_of(ME, "agent", "text", float(when)))
        left = [len(await sql.memories.all(f"room {when}")) for when in (0, 1, 2, 11)]
    assert left == [0, 0, 1, 1]


async def test_the_oldest_go_in_a_file(tmp_path: Path) -> None:
    """Of one owner and agent the newest thousand are kept; others lose nothing by it."""
    path = tmp_path / "elbowroom.db"
    async with sql_store(path) as store:
        await store.memories.save("other", memory_of(ME, "other", "old", -1.0))
        await store.memories.save("room", memory_of(ME, "agent", "memory 0", 0.0))
        ((room,),) = query(path, "SELECT room FROM memories WHERE saved = 0")
        query(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1200) "
            "INSERT INTO memories (room, id, text, saved) SELECT ?, 'm' || i, '\"text\"', i FROM n",
            [room],
        )
        await store.memories.save("room", memory_of(ME, "agent", "newest", 5000.0))
        kept = await store.memories.all("room")
        assert [memory.saved for memory in kept] == [5000.0, *map(float, range(1200, 201, -1))]
        assert len(kept) == MOST_MEMORIES
        assert len(await store.memories.all("other")) == 1


async def test_what_was_saved_last_stays_whatever_the_clock_said(tmp_path: Path) -> None:
    """A memory that is saved while the clock is far behind is not the oldest of those that are too many."""
    path = tmp_path / "elbowroom.db"
    async with sql_store(path) as store:
        await store.memories.save("room", memory_of(ME, "agent", "first", 1000.0))
        ((room,),) = query(path, "SELECT room FROM memories")
        query(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) "
            "INSERT INTO memories (room, id, text, saved) SELECT ?, 'm' || i, '\"text\"', 1000 + i FROM n",
            [room],
        )
        for text in ("behind", "behind as well"):
            await store.memories.save("room", memory_of(ME, "agent", text, 1.0))
        kept = await store.memories.all("room")
        assert len(kept) == MOST_MEMORIES
        assert {"behind", "behind as well"} <= {memory.text for memory in kept}


async def test_memories_outlive_the_server(tmp_path: Path) -> None:
    """They are there after a restart, however long ago they were saved."""
    path = tmp_path / "elbowroom.db"
    async with file_store(path) as store:
        memory = await store.memories.save(ME, "agent", "likes tea", 1.0)
    async with file_store(path) as store:
        assert await store.memories.all(ME, "agent") == [memory]
