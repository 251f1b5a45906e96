"""Outputs go when they are too old or too many, but never one that something refers to."""

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from kept_outputs import ME
from ledger_files import (
    counted_statements,
    file_store,
    finished,
    query,
    save_entry,
    sql_of,
    sql_store,
    store_after_a_day,
)
from ledger_samples import compaction, conversation
from standing_clock import DAY, HOUR, Clock

from elbowroom.context.ledger import Entry
from elbowroom.context.outputs.output import ToolOutputRef
from elbowroom.settings.model import StoreSettings
from elbowroom.store import open_store
from elbowroom.store.base import LIMITS_IN_MEMORY, Limits
from elbowroom.store.packed import packed
from elbowroom.store.place import FILE_NAME
from elbowroom.store.sql import SqlStore

NINETY = Limits(retention_days=90)
FORMS = ["[trimmed; ref={}]", 'ref_id="{}"', '{{"ref_id": "{}"}}', "ref: {}.", "ref={}\nnext line", "ref='{}'"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "elbowroom.db"


async def keep(store: SqlStore, text: str) -> ToolOutputRef:
    """Keep a text of ours in the file."""
    output = packed(ME, "read", text)
    await store.tool_outputs.save(output)
    return output.ref


async def left(store: SqlStore, refs: Sequence[ToolOutputRef]) -> list[int]:
    """Return the places of those that are still kept, each with all its chunks; the others have left nothing."""
    path = store._database.path
    assert path
    ids = [ref_id for (ref_id,) in query(path, "SELECT id FROM tool_outputs ORDER BY id")]
    assert query(path, "SELECT DISTINCT id FROM tool_output_chunks ORDER BY id") == [(ref_id,) for ref_id in ids]
    return [number for number, ref in enumerate(refs) if ref.id in ids]


async def test_what_nobody_used_goes(path: Path) -> None:
    """After the days of retention an output goes; one that was found, read, kept again or named since then stays."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}" * 50_000) for number in range(3)]
        clock.now += 60 * DAY
        await store.tool_outputs.find(ME, refs[1].id)
        store.tool_outputs.name(ME, [refs[2].id])
    clock.now += 31 * DAY
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == [1, 2]
    clock.now += 60 * DAY
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == []


async def test_without_retention_age_deletes_nothing(path: Path) -> None:
    """0 days mean for ever."""
    clock = Clock()
    async with sql_store(path, Limits(), clock) as store:
        refs = [await keep(store, "text")]
    clock.now += 36_500 * DAY
    async with sql_store(path, Limits(), clock) as store:
        assert await left(store, refs) == [0]


async def test_the_limits_hold_while_running(path: Path) -> None:
    """A server that runs for months deletes too: after a write, in the background, and compactions as well."""
    clock = Clock()
    async with file_store(path, begin=lambda: SqlStore.open(path, NINETY, clock.watched())) as store:
        old = await store.tool_outputs.keep(ME, "read", "old")
        entry, made_from = compaction(conversation(2))
        await store.ledger.save(entry, made_from)
        await finished(sql_of(store))
        clock.now += 91 * DAY
        new = await store.tool_outputs.keep(ME, "read", "new")
        await finished(sql_of(store))
        assert await left(sql_of(store), [old, new]) == [1]
        assert list(await store.ledger.keys()) == []
        assert await store.ledger.find([entry.key]) == []


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_compaction_refers_to_stays(path: Path, form: str) -> None:
    """As long as an entry has an id in its messages, the output stays, and goes with the last entry that has it."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(2)]
        entry, made_from = compaction(conversation(2))
        content = f"It was long. {form.format(refs[0].id)}"
        call = {"role": "assistant", "tool_calls": [{"function": {"name": "read", "arguments": content}}]}
        await save_entry(store, Entry(entry.key, (call,), 1, 1, 1, "digest", 0.0), made_from)
    for _ in range(2):
        clock.now += 80 * DAY
        async with store_after_a_day(path, NINETY, clock) as store:
            await store.ledger.find([entry.key])
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == [0]
        await save_entry(store, entry, made_from)
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == []


async def test_what_a_compaction_was_made_from_refers_to_stays(path: Path) -> None:
    """An output stays as long as an entry that was made from a message with its id, and goes with it."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(2)]
        messages = [*conversation(1), {"role": "tool", "content": f"[ref={refs[0].id}]"}, *conversation(2, "more")]
        entry, made_from = compaction(messages)
        await save_entry(store, entry, made_from)
        clock.now += 80 * DAY
        await store.ledger.find([entry.key])
    clock.now += 80 * DAY
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == [0]
    clock.now += 80 * DAY
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == []
        assert query(path, "SELECT * FROM tool_output_uses") == []


async def test_what_a_kept_list_names_stays(path: Path) -> None:
    """A compaction that names a list of outputs keeps all that are in it; they go with it, one behind the other."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(3)]
        refs.append(await keep(store, f"read one; ref={refs[0].id}\nread two; ref={refs[1].id}"))
        entry, made_from = compaction(conversation(2))
        note = {"role": "user", "content": f"2 calls; ref={refs[3].id}"}
        await save_entry(store, Entry(entry.key, (note,), 1, 1, 1, "digest", 0.0), made_from)
        clock.now += 80 * DAY
        await store.ledger.find([entry.key])
    clock.now += 80 * DAY
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == [0, 1, 3]
    clock.now += 80 * DAY
    async with store_after_a_day(path, NINETY, clock) as store:
        assert await left(store, refs) == []
        assert query(path, "SELECT * FROM tool_output_uses") == []


async def test_the_oldest_use_goes_when_all_take_too_much(path: Path) -> None:
    """Beyond max_gb those go that nobody used for longest, no more than it takes, and never what is in work."""
    clock, generator = Clock(), random.Random(1)
    async with sql_store(path, Limits(), clock) as store:
        refs = []
        for _ in range(6):
            refs.append(await keep(store, generator.randbytes(100_000).hex()))
            clock.now += 3 * HOUR
        await store.tool_outputs.find(ME, refs[0].id)
    ((total,),) = query(path, "SELECT sum(size) FROM tool_outputs")
    async with sql_store(path, Limits(max_gb=total * 0.6 / 10**9), clock) as store:
        assert await left(store, refs) == [0, 4, 5]
    async with sql_store(path, Limits(max_gb=1e-9), clock) as store:
        assert await left(store, refs) == [0]
    clock.now += 3 * HOUR
    async with sql_store(path, Limits(max_gb=1e-9), clock) as store:
        assert await left(store, refs) == []


async def test_what_is_referred_to_may_take_more(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What stands in a prompt or a compaction stays though it is too much; the log says so once."""
    clock = Clock()
    async with sql_store(path, Limits(90, 1e-9), clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(3)]
        entry, made_from = compaction(conversation(2))
        told = {"role": "user", "content": f"ref={refs[0].id}"}
        await save_entry(store, Entry(entry.key, (told,), 1, 1, 1, "digest", 0.0), made_from)
        store.tool_outputs.name(ME, [refs[1].id])
        for _ in range(3):
            clock.now += DAY
            store.has_grown()
            await finished(store)
        assert await left(store, refs) == [0, 1]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "take more than store.max_gb = 1e-09" in caplog.text


async def test_naming_costs_one_write_an_hour(path: Path) -> None:
    """Saying in every step what stands in the prompt costs no query within the hour; unknown ids write nothing."""
    clock = Clock()
    async with sql_store(path, Limits(), clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(3)]
        ids = [ref.id for ref in refs]
        with counted_statements(store.ledger) as statements:
            store.tool_outputs.name(ME, [*ids, "a" * 12, "\ud800"])
            await finished(store)
            assert [line.split()[0] for line in statements] == ["SELECT", "UPDATE"]
            for _ in range(10):
                store.tool_outputs.name(ME, ids)
            store.tool_outputs.name("somebody else", ids)
            await finished(store)
        assert [line.split()[0] for line in statements] == ["SELECT", "UPDATE", "SELECT"]
        assert query(path, "SELECT DISTINCT last_named FROM tool_outputs") == [(clock.now,)]
        clock.now += HOUR
        store.tool_outputs.name(ME, ids)
        await finished(store)
        assert query(path, "SELECT DISTINCT last_named FROM tool_outputs") == [(clock.now,)]


async def test_last_use_is_written_once_an_hour(path: Path) -> None:
    """Finding an output again and again costs one write an hour, keeping it again none but that."""
    clock = Clock()
    async with sql_store(path, Limits(), clock) as store:
        ref = await keep(store, "text")
        clock.now += HOUR - 1
        with counted_statements(store.ledger) as statements:
            await store.tool_outputs.find(ME, ref.id)
            await finished(store)
            assert [line.split()[0] for line in statements] == ["SELECT"]
        clock.now += 1
        with counted_statements(store.ledger) as statements:
            for _ in range(3):
                await store.tool_outputs.find(ME, ref.id)
                await finished(store)
        assert [line.split()[0] for line in statements].count("UPDATE") == 1
        assert query(path, "SELECT last_used FROM tool_outputs") == [(clock.now,)]


async def test_the_same_text_is_written_once(path: Path) -> None:
    """Keeping what is there already writes nothing."""
    async with file_store(path) as store:
        await store.tool_outputs.keep(ME, "read", "text" * 100_000)
        before = path.with_name("elbowroom.db-wal").read_bytes()
        await store.tool_outputs.keep(ME, "search", "text" * 100_000)
        assert path.with_name("elbowroom.db-wal").read_bytes() == before


@pytest.mark.slow
async def test_the_settings_set_the_limits(tmp_path: Path) -> None:
    """`store.retention_days` and `store.max_gb` are what a server's store keeps to."""
    path, clock = tmp_path / FILE_NAME, Clock()
    clock.now = time.time() - 3 * DAY
    async with sql_store(path, Limits(), clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(2)]
        store.tool_outputs.name(ME, [refs[0].id])
        clock.now += 1.5 * DAY
        store.tool_outputs.name(ME, [(await keep(store, "used since")).id])
    for settings, expected in [
        (StoreSettings(retention_days=3, max_gb=1), 3),
        (StoreSettings(retention_days=3, max_gb=1e-9), 2),
        (StoreSettings(retention_days=1, max_gb=1), 1),
    ]:
        opened = open_store(settings, {"ELBOWROOM_DATA_DIR": str(tmp_path)})
        await opened.ledger.keys()
        deadline = time.monotonic() + 60
        while query(path, "SELECT count(*) FROM tool_outputs") != [(expected,)]:
            assert time.monotonic() < deadline, "they were never deleted"
            await asyncio.sleep(0.02)
        await opened.aclose()


async def test_in_memory_the_oldest_use_goes_whatever_refers_to_it() -> None:
    """A database in memory stays within its bounds, but for outputs that were used within the minute."""
    clock, limits = Clock(), replace(LIMITS_IN_MEMORY, max_gb=500_000 / 10**9)
    async with sql_store(None, limits, clock) as store:
        refs = []
        for number in range(6):
            refs.append(await keep(store, random.Random(number).randbytes(100_000).hex()))
            clock.now += LIMITS_IN_MEMORY.again_seconds
        await save_entry(store, Entry("key", ({"content": f"ref={refs[0].id}"},), 1, 1, 1, "digest", 0.0))
        store.tool_outputs.name(ME, [refs[1].id])
        store.has_grown()
        await finished(store)
        clock.now += 61
        await store.tool_outputs.find(ME, refs[2].id)
        await finished(store)
        await store._apply_limits()
        found = [bool(await store.tool_outputs.find(ME, ref.id)) for ref in refs]
    assert found == [False, True, True, False, True, True]
