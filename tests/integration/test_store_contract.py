"""What all kinds of rows promise, in a file, in memory, or in both."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from ledger_files import sql_rows
from ledger_samples import compaction, conversation, spoken

from elbowroom.context.ledger import Entry
from elbowroom.settings.model import StoreSettings
from elbowroom.store.lasting_rows import LastingLedgerRows
from elbowroom.store.ledger_rows import SqlLedgerRows
from elbowroom.store.memory_rows import MemoryLedgerRows
from elbowroom.store.opening import open_store

Rows = SqlLedgerRows | LastingLedgerRows | MemoryLedgerRows
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


@pytest.fixture(params=["file", "memory", "lasting"])
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rows]:
    """Rows of each kind."""
    if request.param == "file":
        async with sql_rows(tmp_path / "elbowroom.db") as kind:
            yield kind
        return
    settings = StoreSettings(url="sqlite+aiosqlite:///:memory:" if request.param == "memory" else "")
    store = open_store(settings, {"ELBOWROOM_DATA_DIR": str(tmp_path)})
    assert isinstance(store.ledger, MemoryLedgerRows if request.param == "memory" else LastingLedgerRows)
    yield store.ledger
    await store.aclose()


async def test_nothing_is_there_at_first(rows: Rows) -> None:
    """New rows have no keys and find nothing."""
    assert list(await rows.keys()) == []
    assert await rows.find([]) == []
    assert await rows.find(["one", "two"]) == []
    assert await rows.archived("one") == []


async def test_what_was_saved_is_found(rows: Rows) -> None:
    """Entries come back equal, each once, however often and in whatever order they are asked for."""
    one, one_archive = compaction(conversation(3), 4)
    two, two_archive = compaction(conversation(3))
    await rows.save(one, one_archive)
    await rows.save(two, two_archive)
    assert set(await rows.keys()) == {one.key, two.key}
    found = await rows.find([two.key, "other", one.key, one.key])
    assert sorted(found, key=lambda entry: entry.key) == sorted([one, two], key=lambda entry: entry.key)
    assert await rows.find([one.key]) == [one]


async def test_an_entry_takes_the_place_of_an_older_one(rows: Rows) -> None:
    """There is one entry for a key: the last that was saved."""
    entry, archive = compaction(conversation(3))
    later = Entry(entry.key, ({"role": "user", "content": "better"},), 4096, 3000, 500, "digest", entry.created + 1)
    await rows.save(entry, archive)
    await rows.save(later, [])
    assert list(await rows.keys()) == [entry.key]
    assert await rows.find([entry.key]) == [later]


async def test_the_original_messages_of_a_key(rows: Rows) -> None:
    """A key gives back what it covers, as the client sent it and in order, and nothing behind it."""
    entry, archive = compaction(conversation(4), 5)
    await rows.save(entry, archive)
    assert await rows.archived(entry.key) == spoken(conversation(4), 5)


@pytest.mark.parametrize("name", ODD)
async def test_odd_messages_survive(rows: Rows, name: str) -> None:
    """Whatever JSON can hold comes back as it was."""
    messages: list[Any] = [*conversation(1), {"role": "user", "content": ODD[name]}]
    entry, archive = compaction(messages)
    odd = Entry(entry.key, ({"role": "user", "content": ODD[name]},), 1, 1, 1, "digest", 0.0)
    await rows.save(odd, archive)
    assert await rows.find([entry.key]) == [odd]
    assert await rows.archived(entry.key) == spoken(messages)


async def test_a_number_that_is_none_survives(rows: Rows) -> None:
    """NaN, which is equal to nothing, comes back as NaN."""
    entry, _ = compaction(conversation(1))
    await rows.save(Entry(entry.key, ({"n": float("nan")},), 1, 1, 1, "digest", 0.0), [])
    (found,) = await rows.find([entry.key])
    assert found.messages[0]["n"] != found.messages[0]["n"]


async def test_messages_need_not_be_dicts(rows: Rows) -> None:
    """Any mapping is a message."""
    entry, _ = compaction(conversation(1))
    await rows.save(Entry(entry.key, (MappingProxyType({"role": "user"}),), 1, 1, 1, "digest", 0.0), [])
    (found,) = await rows.find([entry.key])
    assert dict(found.messages[0]) == {"role": "user"}


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


@pytest.mark.parametrize(
    "value", [b"bytes", {1, 2}, object(), endless(), deep(), 10**5000], ids=lambda value: type(value).__name__
)
async def test_what_json_cannot_hold_is_refused_without_an_error(
    rows: Rows, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Saving it is not the chat's problem: the log says that it is not kept, and the next one is."""
    entry, archive = compaction(conversation(1))
    await rows.save(Entry("bad", ({"role": "user", "content": value},), 1, 1, 1, "digest", 0.0), archive)
    assert list(await rows.keys()) == []
    assert caplog.text.count("A compaction cannot be kept") == 1
    await rows.save(entry, archive)
    assert await rows.find([entry.key]) == [entry]


async def test_a_key_that_is_no_text_is_refused_without_an_error(rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
    """A lone surrogate in a key cannot be stored; asking for one finds nothing."""
    await rows.save(Entry("\ud800", (), 1, 1, 1, "digest", 0.0), [])
    assert list(await rows.keys()) == []
    assert await rows.find(["\ud800"]) == []
    assert "A compaction cannot be kept" in caplog.text
