"""Which conversation a history belongs to: how the database finds it, and how the index is filled from it."""

import asyncio
import time
from pathlib import Path

import pytest
from ledger_files import file_store, finished, sql_of
from sqlalchemy.dialects import sqlite
from stored_conversations import ME, begun, heard, pragma, turn, whole, write_behind_conversations

from elbowroom.context.conversation import NONE_KNOWN, Known
from elbowroom.store.base import Limits, StoreUnavailable, encoded, owner_key
from elbowroom.store.index import IndexedConversation
from elbowroom.store.index.conversation_index import Record
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.finding import LONGEST_KNOWN
from elbowroom.store.write_behind import Patience

TABLES = ("messages", "turns", "conversations")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file that is not there yet."""
    return tmp_path / "elbowroom.db"


async def complete(store: object) -> None:
    """Wait until the index of a store's conversations has all."""
    async with asyncio.timeout(20):
        while not store.index.is_complete:  # type: ignore[attr-defined]  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def test_every_table_is_asked_by_an_index(path: Path) -> None:
    """The plan of the statement walks through no table, and not through all conversations of an owner."""
    async with write_behind_conversations(path) as conversations:
        conversations.note([change for number in range(50) for change in whole(f"c{number}")])
        assert await conversations.settled()
        compiled = LONGEST_KNOWN.compile(
            dialect=sqlite.dialect(paramstyle="named"), compile_kwargs={"render_postcompile": True}
        )
        given = compiled.construct_params({"keys": encoded(["a"]), "owner": owner_key(ME), "common": 0, "length": 1})

        def plan(connection: object) -> list[str]:
            rows = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", given)  # type: ignore[attr-defined]
            return [row.detail for row in rows]

        told = await conversations.sql._database.read(plan)
        assert not [line for line in told if line.startswith("SCAN") and line.split()[1] in TABLES]
        for index in ("messages_by_key", "turns_by_key", "turns_by_parent"):
            assert index in " ".join(told)
        assert "conversations_by_owner" not in " ".join(told)


async def test_common_keys_find_nothing(path: Path) -> None:
    """What many conversations begin with tells none of them apart, however many answers they have."""
    async with write_behind_conversations(path) as conversations:
        conversations.note(
            [change for name in ("a", "b") for change in [*whole(name), heard(name, "hello", "seed", "Hello")]]
        )
        keys = ["hello", "a.2"]
        assert await conversations.look_up(ME, "", ["a.2", "hello", "new"], common=2) is None
        assert await conversations.look_up(ME, "", keys, common=1) == Known("a", frozenset(keys))
        assert conversations.remembered(ME, "", keys, 1) == Known("a", frozenset(keys))


async def test_the_index_is_filled_after_a_start(path: Path) -> None:
    """What an earlier process has kept is known from memory soon after the start, and so is what is not there."""
    async with write_behind_conversations(path) as conversations:
        conversations.note([change for number in range(60) for change in whole(f"c{number}")])
        assert await conversations.settled()
    async with write_behind_conversations(path) as conversations:
        assert conversations.remembered(ME, "", ["c7.1", "c7.2", "new"], 1) is None
        await conversations.queue()
        await complete(conversations)
        assert conversations.remembered(ME, "", ["c7.1", "c7.2", "new"], 1) == Known("c7", frozenset({"c7.1", "c7.2"}))
        assert conversations.remembered(ME, "", ["x.1", "x.2", "new"], 1) == NONE_KNOWN
        assert conversations.remembered("another", "", ["c7.1", "c7.2", "new"], 1) == NONE_KNOWN
        assert conversations.index.conversations == 60


async def test_what_is_not_written_is_not_taken_for_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all is forgotten while the index is filled, it goes on only once what was said meanwhile is in the file."""
    async with write_behind_conversations(path) as conversations:
        conversations.note([*whole("c"), *begun("d")])
        await conversations.queue()
        await complete(conversations)
        read = conversations.sql.conversations.indexed

        async def forgotten_meanwhile(after: tuple[float, str] | None) -> list[IndexedConversation]:
            monkeypatch.undo()
            found = await read(after)
            await conversations.refuse_writes()
            conversations.note([*turn("u", "d", "d.1", "d.2"), *whole("e")])
            conversations.index.clear()
            return found

        monkeypatch.setattr(conversations.sql.conversations, "indexed", forgotten_meanwhile)
        conversations.index.clear()
        conversations._fill_soon()
        assert conversations._filling is not None
        await conversations._filling
        for name in ("d", "e"):
            assert conversations.remembered(ME, "", [f"{name}.1", f"{name}.2", "new"], 1) is None
        await conversations.take_writes()
        assert await conversations.settled()
        conversations._fill_soon()
        await complete(conversations)
        for name in ("d", "e"):
            keys = [f"{name}.1", f"{name}.2", "new"]
            assert conversations.remembered(ME, "", keys, 1) == Known(name, frozenset(keys[:2]))


async def test_of_a_damaged_file_nothing_is_taken_in_later(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all is forgotten while a page is taken in, the rest of the page is not taken in any more."""
    async with write_behind_conversations(path) as conversations:
        conversations.note([*whole("c"), *whole("d")])
        await conversations.queue()
        await complete(conversations)
        index = conversations.index
        index.clear()
        take = index.have_taken

        def forgotten(record: Record) -> None:
            monkeypatch.undo()
            take(record)
            index.clear()
            index.take_no_more(has_all=True)

        monkeypatch.setattr(index, "have_taken", forgotten)
        conversations._fill_soon()
        assert conversations._filling is not None
        await conversations._filling
        assert index.conversations == 0


async def test_a_deleted_turn_is_forgotten(path: Path) -> None:
    """The answer of a deleted turn is no key of its conversation any more: who sends it again has it kept again."""
    async with write_behind_conversations(path) as conversations:
        conversations.note([*whole("c"), heard("c", "c.3", "c.2", "And?"), *turn("u", "c", "c.3", "c.4")])
        await conversations.queue()
        await complete(conversations)
        keys = ["c.1", "c.2", "c.3", "c.4", "new"]
        assert conversations.remembered(ME, "", keys, 1) == Known("c", frozenset(keys[:4]))
        assert await conversations.delete_turn(ME, "u")
        await complete(conversations)
        assert await conversations.look_up(ME, "", keys, 1) == Known("c", frozenset(keys[:3]))
        assert conversations.remembered(ME, "", keys, 1) == Known("c", frozenset(keys[:3]))


async def test_what_the_limits_delete_is_forgotten_first(path: Path) -> None:
    """A conversation that goes because of the limits is not found from then on; one in use does not go."""
    async with file_store(path) as store:
        conversations = store.conversations
        conversations.note([*whole("old"), *whole("used")])
        assert await conversations.settled()
        await complete(conversations)
        conversations.index._records["used"].used = conversations.index._clock()
        sql = sql_of(store)
        sql._conversation_limits._limits = Limits(retention_days=1)
        await sql._conversation_limits.apply(time.time())
        await finished(sql)
        assert conversations.remembered(ME, "", ["old.1", "old.2", "new"], 1) == NONE_KNOWN
        assert await conversations.find(ME, "old") is None
        assert await conversations.find(ME, "used") is not None


async def test_what_could_not_be_deleted_is_found_again(path: Path) -> None:
    """Where the limits cannot delete a conversation, its next turn belongs to it, and not to a new one."""
    keys = ["old.1", "old.2", "new"]
    async with file_store(path) as store:
        conversations = store.conversations
        conversations.note(whole("old"))
        assert await conversations.settled()
        await complete(conversations)
        sql = sql_of(store)
        sql._conversation_limits._limits = Limits(retention_days=1)
        await pragma(sql, "query_only = 1")
        with pytest.raises(StoreUnavailable):
            await sql._conversation_limits.apply(time.time())
        await pragma(sql, "query_only = 0")
        await complete(conversations)
        assert conversations.remembered(ME, "", keys, 1) == Known("old", frozenset(keys[:2]))
        assert (await conversations.look_up(ME, "", keys, 1)) == Known("old", frozenset(keys[:2]))


async def test_a_damaged_file_is_forgotten(path: Path) -> None:
    """What stood in a file that is set aside is known no more, and what was said since is."""
    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("c"))
        await conversations.queue()
        await complete(conversations)
        sql = conversations.sql
        conversations._store.failed(sql, StoreUnavailable("its pages are broken"))
        assert conversations._store._closing is not None
        await conversations._store._closing
        await asyncio.to_thread(path.write_bytes, b"no database")
        conversations._store._next_try = 0.0
        conversations.note(begun("d"))
        await conversations.queue()
        async with asyncio.timeout(20):
            while conversations._store.current in (None, sql):  # noqa: ASYNC110  # a busy machine opens the next one late
                await asyncio.sleep(0.005)
        await complete(conversations)
        assert conversations.remembered(ME, "", ["c.1", "c.2", "new"], 1) == NONE_KNOWN
        assert conversations.index.conversations == 1


async def test_a_store_that_opens_late(path: Path) -> None:
    """Until then only what was said since the start is known; afterwards all of it is."""
    may_open = asyncio.Event()

    async def open_late() -> SqlStore:
        await may_open.wait()
        return await SqlStore.open(path)

    async with write_behind_conversations(path) as conversations:
        conversations.note(whole("before"))
    async with file_store(path, Patience(opening=0.01, again=0.05, closing=30), open_late) as store:
        store.conversations.note(whole("meanwhile"))
        new = ["meanwhile.1", "meanwhile.2", "new"]
        assert store.conversations.remembered(ME, "", new, 1) == Known("meanwhile", frozenset(new[:2]))
        old = ["before.1", "before.2", "new"]
        assert store.conversations.remembered(ME, "", old, 1) is None
        store.open_soon()
        may_open.set()
        await complete(store.conversations)
        assert store.conversations.remembered(ME, "", old, 1) == Known("before", frozenset(old[:2]))
        assert store.conversations.remembered(ME, "", new, 1) == Known("meanwhile", frozenset(new[:2]))
