"""Limits where the clock of the machine is set: nothing goes on the day of a jump, nor what was said just before."""

import logging
from pathlib import Path

import pytest
from conversation_rows import Stored, held, put
from kept_outputs import ME
from ledger_files import query, save_entry, sql_store, store_after_a_day
from ledger_samples import compaction, conversation
from standing_clock import DAY, HOUR, Clock

from elbowroom.store.base import Limits
from elbowroom.store.packed import packed

THIRTY = Limits(retention_days=30)
TIGHT = Limits(retention_days=30, max_gb=1e-6)
"""Less than empty tables take: all goes that may go."""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A file that has the tables and nothing in them."""
    path = tmp_path / "elbowroom.db"
    async with sql_store(path):
        pass
    return path


def kept(path: Path) -> set[str]:
    """Return the conversations in the file."""
    return held(path).get("conversations", set())


@pytest.mark.fault("clock set", "first", "nothing is deleted")
@pytest.mark.parametrize("limits", [THIRTY, TIGHT])
async def test_a_start_with_the_clock_far_ahead_deletes_nothing(path: Path, limits: Limits) -> None:
    """The clock is 100 days ahead for one start: conversations, compactions and results of tools are all there."""
    clock = Clock()
    put(path, *(Stored(f"c{days}", clock.now - days * DAY) for days in range(20, -1, -1)))
    async with sql_store(path, Limits(), clock) as store:
        await save_entry(store, compaction(conversation(2))[0])
        await store.tool_outputs.save(packed(ME, "read", "text"))
    clock.set_by(100 * DAY)
    for _ in range(2):
        async with sql_store(path, limits, clock) as store:
            await store._apply_limits()
            clock.now += HOUR
            await store._apply_limits()
            assert len(kept(path)) == 21
            assert query(path, "SELECT count(*) FROM ledger_entries") == [(1,)]
            assert query(path, "SELECT count(*) FROM tool_outputs") == [(1,)]
            put(path, Stored(f"new at {clock.now}", clock.now))
            await store._apply_limits()
            assert len(kept(path)) > 21
            query(path, "DELETE FROM conversations WHERE id LIKE 'new%'")
    clock.set_by(-100 * DAY)
    async with store_after_a_day(path, THIRTY, clock):
        assert len(kept(path)) == 21


@pytest.mark.parametrize("limits", [THIRTY, TIGHT])
async def test_what_was_said_while_the_clock_was_far_behind_stays(path: Path, limits: Limits) -> None:
    """A conversation that was held 200 days back stays when the clock is right again, that day and the next."""
    clock = Clock()
    put(path, Stored("before", clock.now - DAY / 2))
    clock.set_by(-200 * DAY)
    put(path, Stored("behind", clock.now))
    clock.set_by(200 * DAY)
    for _ in range(2):
        async with sql_store(path, limits, clock) as store:
            clock.now += 2 * HOUR
            await store._apply_limits()
            put(path, Stored(f"after {clock.now}", clock.now))
            await store._apply_limits()
            assert kept(path) >= {"before", "behind"}
    async with store_after_a_day(path, THIRTY, clock):
        assert kept(path) >= {"before", "behind"}
    clock.now += 31 * DAY
    async with store_after_a_day(path, THIRTY, clock):
        assert kept(path) == set()


async def test_nothing_goes_while_the_clock_is_behind(path: Path) -> None:
    """What is said while the clock is far behind looks older than all else; it does not go for being too much."""
    clock = Clock()
    put(path, Stored("before", clock.now - HOUR))
    clock.set_by(-200 * DAY)
    async with sql_store(path, TIGHT, clock) as store:
        put(path, Stored("behind", clock.now))
        clock.now += 3 * HOUR
        await store._apply_limits()
        assert kept(path) == {"before", "behind"}
    async with sql_store(path, TIGHT, clock) as store:
        await store._apply_limits()
        assert kept(path) == {"before", "behind"}


@pytest.mark.fault("clock set", "first", "nothing is deleted for a day, told once")
@pytest.mark.parametrize("days", [100, -100])
async def test_a_jump_while_running_deletes_nothing_for_a_day(
    path: Path, days: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock is set while the server runs: all stays for a day of running, which the log says once."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    async with sql_store(path, TIGHT, clock) as store:
        put(path, Stored("old", clock.now - 29 * DAY), Stored("used", clock.now - HOUR / 2))
        clock.now += DAY
        clock.set_by(days * DAY)
        put(path, Stored("new", clock.now))
        for _ in range(23):
            await store._apply_limits()
            assert kept(path) == {"old", "used", "new"}
            clock.now += HOUR
        assert [line for line in caplog.messages if "Nothing is deleted" in line] == [
            "Nothing is deleted from the store for a day: the clock was set, or nobody was here for long."
        ]
        clock.now += HOUR
        await store._apply_limits()
        assert len(kept(path)) < 3


async def test_what_was_used_within_an_hour_of_running_stays(path: Path) -> None:
    """A jump too small to be called one makes nothing that was used just now older than an hour of running."""
    clock = Clock()
    async with sql_store(path, TIGHT, clock) as store:
        clock.now += 2 * DAY
        put(path, Stored("used", clock.now))
        for _ in range(2):
            clock.now += HOUR / 4
            clock.set_by(0.9 * HOUR)
            await store._apply_limits()
            assert kept(path) == {"used"}
        clock.now += 0.6 * HOUR
        await store._apply_limits()
        assert kept(path) == set()


@pytest.mark.slow
async def test_those_who_come_once_a_week_lose_what_is_old(path: Path) -> None:
    """Pauses are no jumps: an hour of use a week is enough for the days of retention to be kept, within a week."""
    clock = Clock()
    for week in range(12):
        async with sql_store(path, THIRTY, clock) as store:
            put(path, Stored(f"week {week}", clock.now))
            clock.now += HOUR
            await store._apply_limits()
        clock.now += 7 * DAY
    assert kept(path) == {f"week {week}" for week in range(6, 12)}


async def test_the_log_says_why_more_than_a_tenth_goes(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of ten goes silently; two of ten go with one line that says why."""
    caplog.set_level(logging.INFO)
    clock = Clock()
    put(path, *(Stored(f"c{number}", clock.now - (35 if number < 3 else 1) * DAY) for number in range(13)))
    query(path, "UPDATE conversations SET updated = updated + 86400 * 7 WHERE id IN ('c1', 'c2')")
    async with store_after_a_day(path, THIRTY, clock) as store:
        assert len(kept(path)) == 12
        assert "deleted now" not in caplog.text
        clock.now += 3 * DAY
        await store._apply_limits()
        assert len(kept(path)) == 10
        (line,) = [line for line in caplog.messages if "deleted now" in line]
    assert line == (
        "More than a tenth of 12 conversations is deleted now: nobody came back to them for store.retention_days = 30, "
        "or they were used longest ago and all takes more than store.max_gb = inf."
    )
