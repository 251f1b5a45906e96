"""Conversations go when they are too old or the database holds too much, but never one that is in use."""

import asyncio
import random
import time
from functools import partial
from pathlib import Path

import pytest
from chatting import eventually
from conversation_rows import TABLES, Stored, held, put
from kept_outputs import ME
from ledger_files import file_store, query, sql_store, store_after_a_day
from standing_clock import DAY, HOUR, Clock
from stored_conversations import begun, heard, write_behind_conversations

from elbowroom.context.outputs import ref_to_media
from elbowroom.store.base import Limits
from elbowroom.store.packed import packed_media
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.limits import MESSAGES_A_TRANSACTION, ConversationLimits

MEGABYTE = 1e-3
"""In gigabytes."""


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    """A file that has the tables and nothing in them."""
    path = tmp_path / "elbowroom.db"
    async with sql_store(path):
        pass
    return path


def everywhere(*ids: str) -> dict[str, set[str]]:
    """Return what is held where exactly these conversations are, with all that belongs to them."""
    return {table.name: set(ids) for table in TABLES} if ids else {}


async def test_what_nobody_came_back_to_goes_with_all_that_belongs_to_it(path: Path) -> None:
    """After the days of retention nothing of a conversation is left in any table, and nothing of others is missing."""
    clock = Clock()
    old, new = clock.now - 31 * DAY, clock.now - 28 * DAY
    put(path, Stored("old", old), Stored("huge", old, messages=3 * MESSAGES_A_TRANSACTION), Stored("new", new))
    async with store_after_a_day(path, Limits(retention_days=30), clock):
        assert held(path) == everywhere("new")
    clock.now += DAY
    async with store_after_a_day(path, Limits(retention_days=30), clock):
        assert held(path) == {}


@pytest.mark.parametrize(("calm", "left"), [(3600.0, "abcd"), (0.05, "abc")])
async def test_the_limits_leave_the_first_answers_alone(
    path: Path, monkeypatch: pytest.MonkeyPatch, calm: float, left: str
) -> None:
    """They are applied by themselves a while after the opening, and not at all where the end comes before that."""
    monkeypatch.setattr("elbowroom.store.sql.store.CALM_SECONDS", calm)
    clock = Clock()
    clock.now = time.time()  # by which it is known what is in use
    ages = {"d": 5, "c": 4, "b": 3, "a": 2}
    put(path, *(Stored(name, clock.now - hours * HOUR, 30, 7000) for name, hours in ages.items()))
    begin = partial(SqlStore.open, path, Limits(max_gb=MEGABYTE), clock.watched())
    async with file_store(path, begin=begin) as store:
        assert await store.opening_ended(30.0)
        await eventually(lambda: held(path) == everywhere(*left), "the limits are not applied")
    assert held(path) == everywhere(*left)


async def test_without_days_of_retention_nothing_is_too_old(path: Path) -> None:
    """0 keeps conversations for ever."""
    put(path, Stored("old", 0.0))
    async with sql_store(path, Limits(retention_days=0)):
        assert held(path) == everywhere("old")


async def test_those_used_longest_ago_go_until_the_rest_is_small_enough(path: Path) -> None:
    """Four of 250 kB and the tables do not fit into one megabyte: the oldest goes, and no more than that."""
    clock = Clock()
    ages = {"b": 3, "d": 5, "a": 2, "c": 4}
    put(path, *(Stored(name, clock.now - hours * HOUR, 30, 7000) for name, hours in ages.items()))
    async with sql_store(path, Limits(max_gb=MEGABYTE), clock):
        assert held(path) == everywhere("a", "b", "c")


async def test_one_that_is_in_use_stays_whatever_it_takes(path: Path) -> None:
    """What was used within the last hour stays even where it alone is too much; later it goes as a whole."""
    clock = Clock()
    put(path, Stored("older", clock.now - 2 * HOUR), Stored("used", clock.now - 0.9 * HOUR, 200, 10_000))
    async with sql_store(path, Limits(max_gb=MEGABYTE), clock) as store:
        assert held(path) == everywhere("used")
        clock.now += HOUR
        await store._apply_limits()
        assert held(path) == {}


async def test_outputs_of_tools_push_out_no_conversation_beyond_their_half(path: Path) -> None:
    """Where outputs that are in use take all the room, conversations that take less than half of it stay."""
    clock = Clock()
    async with sql_store(path, Limits(), clock) as store:  # what was used within two hours stays, too
        for number in range(4):
            noise = random.Random(number).randbytes(500_000)
            ref = ref_to_media(ME, "image/png", noise)
            await store.tool_outputs.save(packed_media(ME, "read", "image/png", noise, ref))
    stored = query(path, "SELECT sum(size) FROM tool_outputs")[0][0]
    most = stored / 10**9 / 2
    put(path, Stored("small", clock.now - 3 * HOUR))
    async with sql_store(path, Limits(max_gb=most), clock):
        assert held(path) == everywhere("small")
        assert query(path, "SELECT sum(size) FROM tool_outputs")[0][0] == stored
    put(path, Stored("large", clock.now - 4 * HOUR, 100, int(most * 10**9 / 100)))
    async with sql_store(path, Limits(max_gb=most), clock):
        assert held(path) == everywhere("small")


@pytest.mark.slow
async def test_chats_write_while_old_conversations_go(path: Path) -> None:
    """Whoever wants to write comes in between two batches, and closing does not wait for the rest."""
    clock = Clock()
    put(path, *(Stored(f"old{number}", clock.now - 40 * DAY, 250) for number in range(20)))
    async with sql_store(path, Limits(), clock) as store:
        store._conversation_limits._limits = Limits(retention_days=30)
        applying = asyncio.create_task(store._conversation_limits.apply(clock.now))
        await store._database.write(lambda _: None)
        assert await store._database.write(lambda _: held(path)) != {}
        store._conversation_limits.stop()
        await applying
        assert held(path) != {}
    async with store_after_a_day(path, Limits(retention_days=30), clock):
        assert held(path) == {}


async def test_an_index_pushes_out_no_more_than_its_share(path: Path) -> None:
    """What is in the index for searches goes with its conversation: what is to leave does not count as room taken."""
    clock = Clock()
    put(path, *(Stored(f"c{age}", clock.now - age * HOUR, 30, 7000) for age in range(2, 10)))
    async with sql_store(path, Limits(), clock) as store:
        while await store._index.step():
            pass
    size = path.stat().st_size  # noqa: ASYNC240
    async with sql_store(path, Limits(max_gb=0.8 * size / 1e9), clock):
        kept = held(path)["conversations"]
    assert kept == {f"c{age}" for age in range(2, 2 + len(kept))}
    assert 4 <= len(kept) < 8


async def test_chats_write_while_a_huge_conversation_is_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its messages go some at a time: what is said meanwhile is written before the last of them has gone."""

    async def apply(limits: ConversationLimits, today: float) -> None:
        """Delete nothing; else a part of the messages goes here, when it happens to run meanwhile."""

    monkeypatch.setattr(ConversationLimits, "apply", apply)
    path = tmp_path / "elbowroom.db"
    async with write_behind_conversations(path) as conversations:
        conversations.note(begun("huge"))
        count = 5 * MESSAGES_A_TRANSACTION
        conversations.note([heard("huge", f"huge.{number}", "", "x") for number in range(2, count)])
        assert await conversations.settled()
        sql, left = conversations.sql.conversations, list[int]()
        delete_some = sql.delete_some

        async def delete_and_say(conversation: str) -> bool:
            goes_on = await delete_some(conversation)
            left.append(query(path, "SELECT count(*) FROM messages WHERE conversation = 'huge'")[0][0])
            if len(left) == 1:
                conversations.note(begun("other"))
                assert await conversations.settled()
                assert query(path, "SELECT count(*) FROM messages WHERE conversation = 'other'") == [(1,)]
            return goes_on

        sql.delete_some = delete_and_say  # type: ignore[method-assign]
        assert await conversations.delete(ME, "huge")
        assert left == [count - 1 - MESSAGES_A_TRANSACTION * pieces for pieces in range(1, 5)] + [0]
        assert await conversations.find(ME, "huge") is None
    assert held(path)["conversations"] == {"other"}
