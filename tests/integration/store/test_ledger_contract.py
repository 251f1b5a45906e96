"""What the rows of the ledger promise: in a file, in memory, and where the file cannot be opened."""

import asyncio
import threading
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import store_fixtures
from ledger_files import (
    counted_statements,
    file_store,
    finished,
    keys_in,
    query,
    save_entry,
    sql_store,
    store_after_a_day,
)
from ledger_samples import compaction, conversation
from standing_clock import DAY, HOUR, Clock

from elbowroom.context.ledger import Entry
from elbowroom.store import Store
from elbowroom.store.base import LIMITS_IN_MEMORY, Limits, StoreUnavailable
from elbowroom.store.sql import rows

store = store_fixtures.store
ODD = {
    "lone surrogate": "before \ud800 after",
    "NUL": "before \0 after",
    "emoji": "\U0001f600",
    "line separators": "\u2028\u2029\x85",
    "numbers": [2**80, -0.0, 1e308, float("inf")],
    "nested": {"a": [{"b": [None, True, [[]]]}]},
    "empty": "",
    "quotes": "'; DROP TABLE ledger_entries; --",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet, in a folder that is not there yet."""
    return tmp_path / "data" / "elbowroom.db"


def entry_of(content: Any, key: str = "key") -> Entry:
    """Return an entry with one message."""
    return Entry(key, ({"role": "user", "content": content},), 1, 1, 1, "digest", 0.0)


async def test_nothing_is_there_at_first(store: Store) -> None:
    """New rows have no keys and find nothing."""
    assert list(await store.ledger.keys()) == []
    assert await store.ledger.find([]) == []
    assert await store.ledger.find(["one", "two"]) == []


async def test_what_was_saved_is_found(store: Store) -> None:
    """Entries come back equal, each once, however often and in whatever order they are asked for."""
    one, one_made_from = compaction(conversation(3), 4)
    two, two_made_from = compaction(conversation(3))
    await store.ledger.save(one, one_made_from)
    await store.ledger.save(two, two_made_from)
    assert set(await store.ledger.keys()) == {one.key, two.key}
    found = await store.ledger.find([two.key, "other", one.key, one.key])
    assert sorted(found, key=lambda entry: entry.key) == sorted([one, two], key=lambda entry: entry.key)
    assert await store.ledger.find([one.key]) == [one]


async def test_an_entry_takes_the_place_of_an_older_one(store: Store) -> None:
    """There is one entry for a key: the last that was saved."""
    entry, made_from = compaction(conversation(3))
    later = Entry(entry.key, ({"role": "user", "content": "better"},), 4096, 3000, 500, "digest", entry.created + 1)
    await store.ledger.save(entry, made_from)
    await store.ledger.save(later, [])
    assert list(await store.ledger.keys()) == [entry.key]
    assert await store.ledger.find([entry.key]) == [later]


async def test_odd_messages_survive(store: Store) -> None:
    """Whatever JSON can hold comes back as it was, NaN as NaN; any mapping is a message."""
    for name, content in ODD.items():
        odd = entry_of(content, name)
        await store.ledger.save(odd, odd.messages)
        assert await store.ledger.find([name]) == [odd], name
    await store.ledger.save(Entry("key", (MappingProxyType({"n": float("nan")}),), 1, 1, 1, "digest", 0.0), [])
    (found,) = await store.ledger.find(["key"])
    assert found.messages[0]["n"] != found.messages[0]["n"]


def endless() -> list[Any]:
    """Return a list that holds itself."""
    value: list[Any] = []
    value.append(value)
    return value


def deep() -> list[Any]:
    """Return a list in a hundred thousand lists."""
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


async def test_what_cannot_be_kept_is_refused_without_an_error(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """Neither JSON nor a key that is no text is the chat's problem: the log says so, and the next one is kept."""
    refused = [entry_of(value) for value in (b"bytes", {1, 2}, object(), endless(), deep(), 10**5000)]
    for number, entry in enumerate([*refused, Entry("\ud800", (), 1, 1, 1, "digest", 0.0)], 1):
        await store.ledger.save(entry, [])
        assert list(await store.ledger.keys()) == []
        assert caplog.text.count("A compaction cannot be kept") == number
    assert await store.ledger.find(["\ud800"]) == []
    entry, made_from = compaction(conversation(1))
    await store.ledger.save(entry, made_from)
    assert await store.ledger.find([entry.key]) == [entry]


async def test_what_was_saved_is_there_after_reopening(path: Path) -> None:
    """Entries outlive the process that wrote them."""
    entry, made_from = compaction(conversation(3), 4)
    async with file_store(path) as store:
        await store.ledger.save(entry, made_from)
    async with file_store(path) as store:
        assert list(await store.ledger.keys()) == [entry.key]
        assert await store.ledger.find([entry.key]) == [entry]


async def test_without_a_compaction_a_request_costs_no_query(path: Path) -> None:
    """The keys are known: of 10,000 entries none is looked up for a conversation that has none."""
    entry, made_from = compaction(conversation(2))
    async with sql_store(path) as sql:
        await save_entry(sql, entry, made_from)
        columns = "messages, window, before, after, rung, created, last_used"
        query(
            path,
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) "
            f"INSERT INTO ledger_entries (key, {columns}) SELECT 'k' || i, {columns} FROM ledger_entries, n",
        )
    unknown = [f"unknown {number}" for number in range(2000)]
    async with sql_store(path) as sql:
        with counted_statements(sql.ledger) as statements:
            assert len(sql.ledger.last_used) == 10_000
            assert await sql.ledger.find(unknown) == []
            assert statements == []
            assert len(await sql.ledger.find([entry.key, "k1", "k9999", *unknown])) == 3
            assert len(statements) == 1
        statement = statements[0].split("IN (")[0] + "IN ('k1', 'k2')"
        plan = query(path, f"EXPLAIN QUERY PLAN {statement}")
        assert [line for *_, line in plan if line.startswith("SCAN")] == []


async def test_last_use_is_written_once_an_hour(path: Path) -> None:
    """Using an entry again and again costs one write an hour."""
    clock = Clock()
    entry, made_from = compaction(conversation(2))
    async with sql_store(path, clock=clock) as sql:
        await save_entry(sql, entry, made_from)
        clock.now += HOUR - 1
        for written in (0, 1):
            with counted_statements(sql.ledger) as statements:
                for _ in range(3):
                    await sql.ledger.find([entry.key])
                await finished(sql)
            assert len([line for line in statements if line.startswith("UPDATE")]) == written
            clock.now += 1
    assert query(path, "SELECT last_used FROM ledger_entries") == [(clock.now - 1,)]


class SlowlyChanged(dict[str, float | None]):
    """Keys of entries; a thread that reads changes them slowly, so that a save comes in between if it can."""

    def __init__(self, keys: dict[str, float | None]) -> None:
        super().__init__(keys)
        self.is_changing, self.is_saved = threading.Event(), threading.Event()

    def __or__(self, other: Any) -> dict[str, float | None]:  # type: ignore[override]
        changed: dict[str, float | None] = dict(self) | other
        if threading.current_thread().name.startswith("store-reader"):
            self.is_changing.set()
            self.is_saved.wait(0.5)
        return changed


@pytest.mark.slow
async def test_using_an_entry_while_another_is_saved(path: Path) -> None:
    """An entry that is saved is found from then on, also where another is used at the same moment."""
    clock, (used, _), (saved, made_from) = Clock(), compaction(conversation(1)), compaction(conversation(2))
    async with sql_store(path, clock=clock) as sql:
        await save_entry(sql, used)
        clock.now += HOUR
        sql.ledger.last_used = keys = SlowlyChanged(sql.ledger.last_used)
        using = asyncio.create_task(sql.ledger.find([used.key]))
        await asyncio.to_thread(keys.is_changing.wait, 60)
        await save_entry(sql, saved, made_from)
        keys.is_saved.set()
        await using
        assert set(sql.ledger.last_used) == {used.key, saved.key}


async def test_entries_that_nobody_used_go(path: Path) -> None:
    """After the days of retention an unused entry goes; one that was used stays, whatever its age; 0 days are none."""
    clock = Clock()
    old, used = compaction(conversation(2, "old things"))[0], compaction(conversation(2, "used things"))[0]
    async with sql_store(path, clock=clock) as sql:
        await save_entry(sql, old)
        await save_entry(sql, used)
        clock.now += 20 * DAY
        await sql.ledger.find([used.key])
    clock.now += 15 * DAY
    async with store_after_a_day(path, Limits(0), clock) as sql:
        assert set(sql.ledger.last_used) == {old.key, used.key}
    async with store_after_a_day(path, Limits(30), clock) as sql:
        assert list(sql.ledger.last_used) == [used.key]
        assert await sql.ledger.find([old.key]) == []
    assert keys_in(path) == {used.key}


@pytest.mark.slow
async def test_in_memory_the_entries_that_nobody_used_for_longest_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database in memory has a thousand at most, here a hundred, and forgets everything when it is closed."""
    clock = Clock()
    assert rows.MOST_IN_MEMORY == 1000
    monkeypatch.setattr(rows, "MOST_IN_MEMORY", 100)
    async with sql_store(None, LIMITS_IN_MEMORY, clock) as sql:
        for number in range(105):
            clock.now += 1
            await save_entry(sql, entry_of("x", f"k{number}"))
        clock.now += 1
        await sql.ledger.find(["k1"])
        clock.now += LIMITS_IN_MEMORY.again_seconds
        sql.has_grown()
        await finished(sql)
        assert set(sql.ledger.last_used) == {"k1", *(f"k{number}" for number in range(6, 105))}
        assert await sql.ledger.find(["k2"]) == []
        assert len(await sql.ledger.find(["k1", "k104"])) == 2


async def test_a_save_is_finished_wherever_it_is_cancelled(path: Path) -> None:
    """A caller may be cancelled at any step: the entry is found and in the file, or neither; closing waits for it."""
    keys = set()
    async with sql_store(path) as sql:
        for steps in range(8):
            entry, made_from = compaction(conversation(20, f"run {steps}"))
            saving = asyncio.create_task(save_entry(sql, entry, made_from))
            for _ in range(steps):
                await asyncio.sleep(0)
            saving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await saving
            keys.add(entry.key)
        await finished(sql)
        assert keys_in(path) == set(sql.ledger.last_used) < keys
        last, made_from = compaction(conversation(20))
        saving = asyncio.create_task(save_entry(sql, last, made_from))
        await asyncio.sleep(0)
        saving.cancel()
    assert last.key in keys_in(path)
    with pytest.raises(StoreUnavailable, match="closed"):
        await sql.ledger.find([last.key])


async def test_many_requests_at_the_same_time(path: Path) -> None:
    """A hundred saves and finds at once all succeed."""
    samples = [compaction(conversation(10, f"subject {number}")) for number in range(100)]
    async with file_store(path) as store:

        async def save_and_find(number: int) -> None:
            entry, made_from = samples[number]
            await store.ledger.save(entry, made_from)
            assert await store.ledger.find([entry.key]) == [entry]

        await asyncio.gather(*map(save_and_find, range(100)))
        assert len(await store.ledger.keys()) == 100
    assert keys_in(path) == {entry.key for entry, _ in samples}


async def test_what_somebody_else_wrote_is_passed_over(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An entry that cannot be read is not found, and said; the others are."""
    async with sql_store(path) as sql:
        for key in ("good", "bad", "worse", "worst"):
            await save_entry(sql, entry_of("x", key))
    for key, content in {"bad": "not JSON", "worse": "5", "worst": "[[[["}.items():
        query(path, "UPDATE ledger_entries SET messages = ? WHERE key = ?", [content, key])
    async with file_store(path) as store:
        assert await store.ledger.find(["good", "bad", "worse", "worst"]) == [entry_of("x", "good")]
    assert caplog.text.count("A compaction in the store cannot be read") == 3
