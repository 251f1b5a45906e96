"""Compactions outlive their window, their settings and their store: used where they help, and never in the way."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import MODEL, RAW_MODEL
from ledger_files import query, sql_store
from patient_counting import wait_for_counts
from request_checks import assert_fits, is_shortened
from serving import Served
from small_window import ANSWER, ask_whole, history, orders_of, small_window, turns_of
from told_summaries import SignedPlans, signatures_in

from elbowroom.demo import SimulatedLMStudio
from elbowroom.store.place import FILE_NAME

Message = dict[str, Any]
SMALL: Final = 4096
LARGE: Final = 32_768
FULL: Final = 34
"""Exchanges that fill the small window past the trigger."""
IN_TURN: Final = "background = false"
NEXT: Final[list[Message]] = [{"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And tomorrow?"}]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


async def ask(served: Served, messages: list[Message]) -> None:
    """Ask without streaming."""
    status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
    assert status == 200, answer


def last_prompt(studio: SimulatedLMStudio) -> list[Message]:
    """Return the messages of the last request that was a turn; it fits."""
    last = turns_of(studio)[-1]
    assert_fits(last)
    messages: list[Message] = last.body["messages"]
    return messages


def spoken(messages: list[Message]) -> list[Message]:
    """Return the messages without those of the system."""
    return [message for message in messages if message["role"] != "system"]


@pytest.mark.parametrize("exchanges", [12, FULL], ids=["below the trigger", "past the trigger"])
async def test_compacted_by_hand(tmp_path: Path, exchanges: int) -> None:
    """A chat with the history that a person has had compacted gets exactly that, and pays nothing."""
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL, prune=SignedPlans()) as (served, studio):
        body = {"model": RAW_MODEL, "messages": history(exchanges)}
        async with served.http.post(f"{served.url}/v1/conversations/any/compact", json=body) as response:
            compacted = await response.json()
        assert compacted["compacted"] is True
        assert len(orders_of(studio)) == 1
        await ask(served, history(exchanges))
        assert last_prompt(studio) == compacted["messages"]
        await ask(served, [*history(exchanges), *NEXT])
        assert last_prompt(studio) == [*compacted["messages"], *NEXT]
        assert len(orders_of(studio)) == 1


async def test_a_larger_window_and_back(tmp_path: Path) -> None:
    """A much larger window has the words themselves where they fill less than half of it, and goes on with them."""
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL, prune=SignedPlans()) as (served, studio):
        await ask(served, history(FULL))
        compacted = last_prompt(studio)
        studio.reload(MODEL, LARGE)
        await ask(served, history(FULL))
        assert last_prompt(studio) == history(FULL)
        await ask(served, history(260))
        assert last_prompt(studio) == history(260)
        studio.reload(MODEL, SMALL)
        await ask(served, [*history(FULL), *NEXT])
        assert last_prompt(studio) == [*compacted, *NEXT]
        assert len(orders_of(studio)) == 1


@pytest.mark.parametrize("switch", ["auto = false", "enabled = false"])
async def test_switched_off_later(tmp_path: Path, switch: str) -> None:
    """What was compacted before compaction was switched off still stands in its place; nothing new is compacted."""
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL, prune=SignedPlans()) as (served, studio):
        await ask(served, history(FULL))
        compacted = last_prompt(studio)
    async with small_window(tmp_path, compaction=switch, window=SMALL) as (served, studio):
        await ask(served, [*history(FULL), *NEXT])
        assert last_prompt(studio) == [*compacted, *NEXT]
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": history(90)})
        assert status == 400
        assert answer["error"]["code"] == "context_length_exceeded"
        assert not orders_of(studio)


@pytest.mark.parametrize("damage", ["no database", "a folder", "cut off"])
async def test_a_store_that_does_not_work(tmp_path: Path, damage: str) -> None:
    """A chat is answered, and what it pays for is remembered, though perhaps only for as long as the server runs."""
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL) as (served, _):
        await ask(served, history(FULL))
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.unlink()
    if damage == "a folder":
        path.mkdir()
    else:
        path.write_bytes(b"This is no database. " * 999 if damage == "no database" else whole[: len(whole) // 3])
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL) as (served, studio):
        await ask(served, history(FULL))
        assert len(orders_of(studio)) <= 1
        orders = len(orders_of(studio))
        await ask(served, [*history(FULL), *NEXT])
        assert len(orders_of(studio)) == orders
        assert is_shortened(last_prompt(studio), history(FULL))


async def test_a_store_that_breaks_while_it_is_used(tmp_path: Path) -> None:
    """A database that is overwritten under a running server costs at most another compaction, and no chat."""
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL) as (served, studio):
        await ask(served, history(FULL))
        for name in (FILE_NAME, f"{FILE_NAME}-wal", f"{FILE_NAME}-shm"):
            await asyncio.to_thread((tmp_path / name).write_bytes, b"This is no database. " * 2000)
        for turn in range(3):
            await ask(served, [*history(FULL), *NEXT * (turn + 1)])
            assert is_shortened(last_prompt(studio), history(FULL))
        assert len(orders_of(studio)) <= 2


async def test_all_that_was_replaced_can_be_read_back(tmp_path: Path) -> None:
    """After compactions in steps the store has every message that was replaced, word for word and in order."""
    async with small_window(tmp_path, compaction=IN_TURN, window=SMALL, prune=SignedPlans()) as (served, studio):
        for exchanges in (FULL, 54, 74):
            await ask(served, history(exchanges))
        orders = len(orders_of(studio))
        prompt = last_prompt(studio)
    assert orders >= 3
    assert "charlie" in signatures_in(prompt)
    said = spoken(history(74))
    keys = {key for (key,) in query(tmp_path / FILE_NAME, "SELECT key FROM ledger_entries WHERE rung <> 'noted'")}
    known = "SELECT key FROM messages WHERE key IS NOT NULL UNION SELECT key FROM turns"
    assert len(keys) == 3
    assert keys <= {key for (key,) in query(tmp_path / FILE_NAME, known)}
    async with sql_store(tmp_path / FILE_NAME) as sql:
        (conversation,) = await sql.conversations.rows("")
        found = await sql.conversations.read("", conversation.id)
    assert found
    kept = iter([kept.message for kept in found.messages if not kept.turn])
    assert all(message in kept for message in said)  # each of them after the one before
