"""The rows of the ledger in an SQLite file: what is kept, for how long, and at what price."""

import asyncio
import stat
import sys
from pathlib import Path

import pytest
from ledger_files import bytes_of, counted_statements, keys_in, query, sql_rows
from ledger_samples import compaction, conversation, spoken
from standing_clock import DAY, HOUR, Clock

from elbowroom.store.errors import StoreUnavailable
from elbowroom.store.sql_store import SqlStore
from elbowroom.store.tables import SCHEMA_VERSION


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet, in a folder that is not there yet."""
    return tmp_path / "data" / "elbowroom.db"


async def test_what_was_saved_is_there_after_reopening(path: Path) -> None:
    """Entries, and the messages behind them, outlive the process that wrote them."""
    entry, archive = compaction(conversation(3), 4)
    async with sql_rows(path) as rows:
        await rows.save(entry, archive)
    async with sql_rows(path) as rows:
        assert list(await rows.keys()) == [entry.key]
        assert await rows.find([entry.key]) == [entry]
        assert await rows.archived(entry.key) == spoken(conversation(3), 4)


async def test_an_archived_message_stays_as_it_was_first(path: Path) -> None:
    """A longer history of the same conversation adds its new messages and writes no old one again."""
    async with sql_rows(path) as rows:
        await rows.save(*compaction(conversation(2)))
        before = query(path, "SELECT key, message FROM archived_messages")
        entry, archive = compaction(conversation(3))
        await rows.save(entry, archive)
        after = query(path, "SELECT key, message FROM archived_messages")
        assert set(before) < set(after)
        assert len(after) == len(archive) == len(before) + 2
        assert await rows.archived(entry.key) == spoken(conversation(3))


async def test_a_very_long_conversation_is_kept_whole(path: Path) -> None:
    """Neither a history nor a question may be larger than what one statement can carry."""
    messages = conversation(1500)
    entry, archive = compaction(messages)
    async with sql_rows(path) as rows:
        await rows.save(entry, archive)
        assert await rows.archived(entry.key) == spoken(messages)
        assert await rows.find([node.key for node in archive]) == [entry]


async def test_without_a_compaction_a_request_costs_no_query(path: Path) -> None:
    """The keys are known: of 10,000 entries none is looked up for a conversation that has none."""
    entry, archive = compaction(conversation(2))
    async with sql_rows(path) as rows:
        await rows.save(entry, archive)
        columns = "messages, window, before, after, rung, created, last_used"
        query(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
            f"INSERT INTO ledger_entries (key, {columns}) SELECT 'k' || i, {columns} FROM ledger_entries, n",
        )
    async with sql_rows(path) as rows:
        with counted_statements(rows) as statements:
            assert len(await rows.keys()) == 10_000
            assert await rows.find([f"unknown {number}" for number in range(2000)]) == []
            assert statements == []
            assert await rows.find([entry.key, "k1", "k9999", *(f"unknown {number}" for number in range(2000))])
            assert len(statements) == 1
        plan = query(path, f"EXPLAIN QUERY PLAN {statements[0].replace('?', '1')}")
        assert [line for *_, line in plan if line.startswith("SCAN")] == []


async def test_last_use_is_written_once_an_hour(path: Path) -> None:
    """Using an entry again and again costs one write an hour."""
    clock = Clock()
    entry, archive = compaction(conversation(2))
    last_used = f"SELECT last_used FROM ledger_entries WHERE key = '{entry.key}'"
    async with sql_rows(path, clock=clock) as rows:
        await rows.save(entry, archive)
        clock.now += HOUR - 1
        with counted_statements(rows) as statements:
            for _ in range(3):
                await rows.find([entry.key])
            await rows._tasks.finished()
        assert [line for line in statements if line.startswith("UPDATE")] == []
        clock.now += 1
        with counted_statements(rows) as statements:
            for _ in range(3):
                await rows.find([entry.key])
            await rows._tasks.finished()
        assert len([line for line in statements if line.startswith("UPDATE")]) == 1
        assert query(path, last_used) == [(clock.now,)]


async def test_entries_that_nobody_used_go_at_the_next_start(path: Path) -> None:
    """After the days of retention an unused entry goes with its messages; one that was used stays, whatever its age."""
    clock = Clock()
    old, old_archive = compaction(conversation(2, "old things"))
    used, used_archive = compaction(conversation(2, "used things"))
    async with sql_rows(path, clock=clock) as rows:
        await rows.save(old, old_archive)
        await rows.save(used, used_archive)
        clock.now += 20 * DAY
        await rows.find([used.key])
    clock.now += 15 * DAY
    async with sql_rows(path, retention_days=30, clock=clock) as rows:
        assert list(await rows.keys()) == [used.key]
        assert await rows.archived(used.key) == spoken(conversation(2, "used things"))
        assert await rows.archived(old.key) == []
    messages = query(path, "SELECT message FROM archived_messages")
    assert not [message for (message,) in messages if "old things" in message]
    assert keys_in(path) == {used.key}


async def test_messages_that_a_kept_entry_needs_stay(path: Path) -> None:
    """Of two conversations that began alike, the kept one keeps its beginning, though the other has gone."""
    clock = Clock()
    begun = conversation(2)
    old, old_archive = compaction([*begun, {"role": "user", "content": "to the left"}])
    kept_messages = [*begun, {"role": "user", "content": "to the right"}]
    kept, kept_archive = compaction(kept_messages)
    async with sql_rows(path, clock=clock) as rows:
        await rows.save(old, old_archive)
        clock.now += 60 * DAY
        await rows.save(kept, kept_archive)
    clock.now += 40 * DAY
    async with sql_rows(path, retention_days=90, clock=clock) as rows:
        assert await rows.archived(kept.key) == spoken(kept_messages)
        assert await rows.archived(old.key) == []


async def test_without_retention_everything_stays(path: Path) -> None:
    """0 days mean for ever."""
    clock = Clock()
    entry, archive = compaction(conversation(2))
    async with sql_rows(path, clock=clock) as rows:
        await rows.save(entry, archive)
    clock.now += 36500 * DAY
    async with sql_rows(path, retention_days=0, clock=clock) as rows:
        assert await rows.find([entry.key]) == [entry]


async def test_a_save_is_whole_or_not_there_wherever_it_is_cancelled(path: Path) -> None:
    """Whoever saves may be cancelled at any step: the entry is there with all its messages, or nothing of it is."""
    kept = 0
    async with sql_rows(path) as rows:
        for steps in range(40):
            entry, archive = compaction(conversation(20, f"run {steps}"))
            saving = asyncio.create_task(rows.save(entry, archive))
            for _ in range(steps):
                await asyncio.sleep(0)
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
            await rows._tasks.finished()
            messages = await rows.archived(entry.key)
            assert messages == (spoken(conversation(20, f"run {steps}")) if await rows.find([entry.key]) else [])
            kept += bool(messages)
        assert 0 < kept < 40
        assert keys_in(path) == set(await rows.keys())


async def test_closing_waits_for_a_save_whose_caller_has_gone(path: Path) -> None:
    """A save that was begun is finished before the file is closed."""
    entry, archive = compaction(conversation(20))
    store = await SqlStore.open(path)
    saving = asyncio.create_task(store.ledger.save(entry, archive))
    await asyncio.sleep(0)
    saving.cancel()
    await store.aclose()
    assert keys_in(path) == {entry.key}
    with pytest.raises(StoreUnavailable, match="closed"):
        await store.ledger.find([entry.key])


async def test_many_requests_at_the_same_time(path: Path) -> None:
    """A hundred saves and finds at once all succeed, and the loop goes on meanwhile."""
    samples = [compaction(conversation(10, f"subject {number}")) for number in range(100)]
    async with sql_rows(path) as rows:

        async def save_and_find(number: int) -> None:
            entry, archive = samples[number]
            await rows.save(entry, archive)
            assert await rows.find([entry.key]) == [entry]

        await asyncio.gather(*map(save_and_find, range(100)))
        assert len(await rows.keys()) == 100
    assert keys_in(path) == {entry.key for entry, _ in samples}


@pytest.mark.parametrize("content", ["not JSON", "5", "[[[["])
async def test_what_somebody_else_wrote_is_passed_over(
    path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An entry that cannot be read is not found, and said; the others are."""
    good, bad = compaction(conversation(2, "good")), compaction(conversation(2, "bad"))
    async with sql_rows(path) as rows:
        await rows.save(*good)
        await rows.save(*bad)
    query(path, "UPDATE ledger_entries SET messages = ? WHERE key = ?", [content, bad[0].key])
    query(path, "UPDATE archived_messages SET message = ? WHERE key = ?", ["{", bad[0].key])
    async with sql_rows(path) as rows:
        assert await rows.find([good[0].key, bad[0].key]) == [good[0]]
        assert await rows.archived(bad[0].key) == []
    assert "A compaction in the store cannot be read" in caplog.text
    assert "The messages behind a compaction in the store cannot be read" in caplog.text


async def test_tables_of_a_newer_version_are_left_alone(path: Path) -> None:
    """What a newer elbowroom wrote is neither read nor changed by this one."""
    async with sql_rows(path) as rows:
        await rows.save(*compaction(conversation(2)))
    assert query(path, "SELECT version FROM schema_version") == [(SCHEMA_VERSION,)]
    query(path, "UPDATE schema_version SET version = version + 1")
    before = bytes_of(path)
    with pytest.raises(StoreUnavailable, match="newer elbowroom"):
        await SqlStore.open(path)
    assert bytes_of(path) == before


async def test_the_file_is_in_wal_mode(path: Path) -> None:
    """Readers need not wait for the writer."""
    async with sql_rows(path) as rows:
        await rows.save(*compaction(conversation(2)))
        assert query(path, "PRAGMA journal_mode") == [("wal",)]
        assert path.with_name("elbowroom.db-wal").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
async def test_only_the_owner_can_read_what_is_made(path: Path) -> None:
    """The file and what belongs to it are for the owner alone, and so is a folder that is made."""
    async with sql_rows(path) as rows:
        await rows.save(*compaction(conversation(2)))
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
        assert modes == {"elbowroom.db": 0o600, "elbowroom.db-wal": 0o600, "elbowroom.db-shm": 0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
