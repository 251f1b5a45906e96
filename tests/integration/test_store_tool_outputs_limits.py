"""Outputs go when they are too old or too many, but never one that something refers to."""

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from kept_outputs import ME, file_store
from ledger_files import counted_statements, query, sql_store
from ledger_samples import compaction, conversation
from standing_clock import DAY, HOUR, Clock

from elbowroom.context.ledger import Entry
from elbowroom.context.outputs.output import ToolOutputRef
from elbowroom.settings.model import StoreSettings
from elbowroom.store.lasting_store import LastingStore
from elbowroom.store.limits import Limits
from elbowroom.store.opening import FILE_NAME, open_store
from elbowroom.store.sql_store import SqlStore
from elbowroom.store.tool_output_chunks import packed
from elbowroom.store.tool_outputs_lasting import LastingToolOutputs

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
    ids = [ref_id for (ref_id,) in query(path, "SELECT id FROM tool_outputs ORDER BY id")]
    assert query(path, "SELECT DISTINCT id FROM tool_output_chunks ORDER BY id") == [(ref_id,) for ref_id in ids]
    return [number for number, ref in enumerate(refs) if ref.id in ids]


async def test_what_nobody_used_goes_at_the_next_start(path: Path) -> None:
    """After the days of retention an output goes; one that was found, read, kept again or named since then stays."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}" * 50_000) for number in range(3)]
        clock.now += 60 * DAY
        await store.tool_outputs.find(ME, refs[1].id)
        store.tool_outputs.name(ME, [refs[2].id])
    clock.now += 31 * DAY
    async with sql_store(path, NINETY, clock) as store:
        assert await left(store, refs) == [1, 2]
    clock.now += 60 * DAY
    async with sql_store(path, NINETY, clock) as store:
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
    lasting = LastingStore(str(path), lambda: SqlStore.open(path, NINETY, clock))
    outputs = LastingToolOutputs(lasting)
    old = await outputs.keep(ME, "read", "old")
    sql = await lasting.opened()
    assert sql is not None
    entry, archive = compaction(conversation(2))
    await sql.ledger.save(entry, archive)
    clock.now += 91 * DAY
    new = await outputs.keep(ME, "read", "new")
    await sql._tasks.finished()
    assert await left(sql, [old, new]) == [1]
    assert list(await sql.ledger.keys()) == []
    assert await sql.ledger.find([entry.key]) == []
    assert query(path, "SELECT count(*) FROM archived_messages") == [(0,)]
    await lasting.aclose()


@pytest.mark.parametrize("form", FORMS)
async def test_what_a_compaction_refers_to_stays(path: Path, form: str) -> None:
    """As long as an entry has an id in its messages, the output stays, and goes with the last entry that has it."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(2)]
        entry, archive = compaction(conversation(2))
        content = f"It was long. {form.format(refs[0].id)}"
        call = {"role": "assistant", "tool_calls": [{"function": {"name": "read", "arguments": content}}]}
        await store.ledger.save(Entry(entry.key, (call,), 1, 1, 1, "digest", 0.0), archive)
    for _ in range(2):
        clock.now += 80 * DAY
        async with sql_store(path, NINETY, clock) as store:
            await store.ledger.find([entry.key])
    async with sql_store(path, NINETY, clock) as store:
        assert await left(store, refs) == [0]
        await store.ledger.save(entry, archive)
    async with sql_store(path, NINETY, clock) as store:
        assert await left(store, refs) == []


async def test_what_an_archived_message_refers_to_stays(path: Path) -> None:
    """An output stays as long as a message that a kept entry was made from has its id, and goes with it."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(2)]
        messages = [*conversation(1), {"role": "tool", "content": f"[ref={refs[0].id}]"}, *conversation(2, "more")]
        entry, archive = compaction(messages)
        await store.ledger.save(entry, archive)
        assert query(path, "SELECT place, id FROM tool_output_uses") == [("archived_messages", refs[0].id)]
        clock.now += 80 * DAY
        await store.ledger.find([entry.key])
    clock.now += 80 * DAY
    async with sql_store(path, NINETY, clock) as store:
        assert await left(store, refs) == [0]
    clock.now += 80 * DAY
    async with sql_store(path, NINETY, clock) as store:
        assert await left(store, refs) == []
        assert query(path, "SELECT * FROM tool_output_uses") == []


async def test_what_a_kept_list_names_stays(path: Path) -> None:
    """A compaction that names a list of outputs keeps all that are in it; they go with it, one behind the other."""
    clock = Clock()
    async with sql_store(path, NINETY, clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(3)]
        refs.append(await keep(store, f"read one; ref={refs[0].id}\nread two; ref={refs[1].id}"))
        entry, archive = compaction(conversation(2))
        note = {"role": "user", "content": f"2 calls; ref={refs[3].id}"}
        await store.ledger.save(Entry(entry.key, (note,), 1, 1, 1, "digest", 0.0), archive)
        clock.now += 80 * DAY
        await store.ledger.find([entry.key])
    clock.now += 80 * DAY
    async with sql_store(path, NINETY, clock) as store:
        assert await left(store, refs) == [0, 1, 3]
    clock.now += 80 * DAY
    async with sql_store(path, NINETY, clock) as store:
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
        entry, archive = compaction(conversation(2))
        told = {"role": "user", "content": f"ref={refs[0].id}"}
        await store.ledger.save(Entry(entry.key, (told,), 1, 1, 1, "digest", 0.0), archive)
        store.tool_outputs.name(ME, [refs[1].id])
        for _ in range(3):
            clock.now += DAY
            store.has_grown()
            await store._tasks.finished()
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
            await store._tasks.finished()
            assert [line.split()[0] for line in statements] == ["SELECT", "UPDATE"]
            for _ in range(10):
                store.tool_outputs.name(ME, ids)
            store.tool_outputs.name("somebody else", ids)
            await store._tasks.finished()
        assert [line.split()[0] for line in statements] == ["SELECT", "UPDATE", "SELECT"]
        assert query(path, "SELECT DISTINCT last_named FROM tool_outputs") == [(clock.now,)]
        clock.now += HOUR
        store.tool_outputs.name(ME, ids)
        await store._tasks.finished()
        assert query(path, "SELECT DISTINCT last_named FROM tool_outputs") == [(clock.now,)]


async def test_last_use_is_written_once_an_hour(path: Path) -> None:
    """Finding an output again and again costs one write an hour, keeping it again none but that."""
    clock = Clock()
    async with sql_store(path, Limits(), clock) as store:
        ref = await keep(store, "text")
        clock.now += HOUR - 1
        with counted_statements(store.ledger) as statements:
            await store.tool_outputs.find(ME, ref.id)
            await store._tasks.finished()
            assert [line.split()[0] for line in statements] == ["SELECT"]
        clock.now += 1
        with counted_statements(store.ledger) as statements:
            for _ in range(3):
                await store.tool_outputs.find(ME, ref.id)
                await store._tasks.finished()
        assert [line.split()[0] for line in statements].count("UPDATE") == 1
        assert query(path, "SELECT last_used FROM tool_outputs") == [(clock.now,)]


async def test_the_same_text_is_written_once(path: Path) -> None:
    """Keeping what is there already writes nothing."""
    async with file_store(path) as store:
        await store.tool_outputs.keep(ME, "read", "text" * 100_000)
        before = path.with_name("elbowroom.db-wal").read_bytes()
        await store.tool_outputs.keep(ME, "search", "text" * 100_000)
        assert path.with_name("elbowroom.db-wal").read_bytes() == before


async def test_the_settings_set_the_limits(tmp_path: Path) -> None:
    """`store.retention_days` and `store.max_gb` are what a server's store keeps to."""
    path, clock = tmp_path / FILE_NAME, Clock()
    clock.now = time.time() - 2 * DAY
    async with sql_store(path, Limits(), clock) as store:
        refs = [await keep(store, f"text {number}") for number in range(2)]
        store.tool_outputs.name(ME, [refs[0].id])
    for settings, expected in [
        (StoreSettings(retention_days=3, max_gb=1), 2),
        (StoreSettings(retention_days=3, max_gb=1e-9), 1),
        (StoreSettings(retention_days=1, max_gb=1), 0),
    ]:
        opened = open_store(settings, {"ELBOWROOM_DATA_DIR": str(tmp_path)})
        await opened.ledger.keys()
        deadline = time.monotonic() + 60
        while query(path, "SELECT count(*) FROM tool_outputs") != [(expected,)]:
            assert time.monotonic() < deadline, "they were never deleted"
            await asyncio.sleep(0.02)
        await opened.aclose()
