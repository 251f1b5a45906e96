"""On a PostgreSQL server: tables made once and brought up to date, one secret for all, and searches as in a file."""

import asyncio
import logging
import os
import random
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from ledger_files import sql_store
from postgresql import new_place, shared_server
from sqlalchemy import Connection, select
from stored_conversations import ME, OwnConversations, begun, user, whole, write_behind_conversations

from elbowroom.context.conversation import ConversationBegun, Heard, ReplyBegun, ReplyGrew, TurnBegun
from elbowroom.settings.model import StoreSettings
from elbowroom.store import ServerPlace, open_store
from elbowroom.store.base import SCHEMA_VERSION, StoreUnavailable
from elbowroom.store.changes import Deleted
from elbowroom.store.inspection import inspect_server
from elbowroom.store.sql import SqlStore
from elbowroom.store.sql.dialect import execute_all
from elbowroom.store.sql.schema import message_parts
from elbowroom.store.sql.writing import Plan

PASSWORD = "open:sesame/@ 1"
OLDER = (
    "DROP TABLE servers, server_calls, server_batches, agent_list, admission",
    "DROP TABLE queue_receipts, read_prompts, tokens, acts",
    "ALTER TABLE turns DROP COLUMN server",
    "ALTER TABLE queue DROP COLUMN server",
    "ALTER TABLE conversations DROP COLUMN renamed, DROP COLUMN fill_turn",
    "UPDATE schema_version SET version = 8",
    "UPDATE alembic_version SET version_num = '8'",
)
"""Takes back what the versions after 8 have added."""
SAID = (
    "Straße, naïve, İstanbul",
    "日本語を話す",
    "two 😀 herons",
    "a\0b and half \ud83d a pair",
    "100%_'\\ \"!",
    "ẞΣς",
)
SEARCHES = (
    *("s", "S", "日", "😀", "%", "_", "'", "\\", '"', "\0", "\ud83d"),
    *("ve", "VE", "日本", "İs", "😀 ", "_'", "\0b", "σς"),
    *("naï", "NAÏ", "本語を", "STRASSE", "straße", "herons", "gannet", "two 😀", "%_'\\", "a\0b", "ßσσ", "f \ud83d a"),
)


@asynccontextmanager
async def empty_place() -> AsyncIterator[ServerPlace]:
    """Give a database without tables."""
    server = shared_server()
    name = server.new_database()
    try:
        yield ServerPlace(server.address(name))
    finally:
        server.drop(name)


def name_of(place: ServerPlace) -> str:
    """Return the name of a database."""
    return place.address.rpartition("/")[2]


async def test_servers_that_start_at_once_make_the_tables_once() -> None:
    """Four open an empty database at the same moment; each then finds what another has said."""
    async with empty_place() as place, AsyncExitStack() as stack:
        assert inspect_server(place).state == "absent"
        for opened in await asyncio.gather(*(SqlStore.open(place) for _ in range(4))):
            stack.push_async_callback(opened.aclose)
        versions = shared_server().ask("SELECT version FROM schema_version", name_of(place))
        assert versions == [(SCHEMA_VERSION,)]
        assert inspect_server(place).state == "sound"


@pytest.mark.slow
async def test_an_older_database_is_brought_up_to_date() -> None:
    """Two servers of this version open tables of version 8: one adds what is missing, and what was said is there."""
    async with new_place() as place:
        async with write_behind_conversations(place) as kept:
            kept.note(whole("c"))
            assert await kept.settled()
        for statement in OLDER:
            shared_server().ask(statement, name_of(place))
        both = await asyncio.gather(SqlStore.open(place), SqlStore.open(place))
        for opened in both:
            await opened.aclose()
        assert shared_server().ask("SELECT version FROM schema_version", name_of(place)) == [(SCHEMA_VERSION,)]
        async with write_behind_conversations(place) as kept:
            assert [row.id for row in await kept.rows(ME, search="note")] == ["c"]


async def test_a_newer_database_is_left_alone() -> None:
    """It is refused with both versions, and only its version is read."""
    async with new_place() as place:
        shared_server().ask("UPDATE schema_version SET version = 99", name_of(place))
        with pytest.raises(StoreUnavailable, match=r"newer elbowroom \(tables of version 99"):
            await SqlStore.open(place)
        assert inspect_server(place).state == "newer"


async def test_the_secret_is_the_same_for_all_and_stays(tmp_path: Path) -> None:
    """Two servers that ask at once, and one that comes later, know each other's compaction items; no file has it."""
    async with new_place() as place:
        settings, environ = StoreSettings(url=place.address), {"ELBOWROOM_DATA_DIR": str(tmp_path / "data")}
        stores = [open_store(settings, environ) for _ in range(3)]
        first = await asyncio.gather(stores[0].secret(), stores[1].secret())
        assert len({*first, await stores[2].secret()}) == 1
        assert len(first[0]) == 32
        for store in stores:
            await store.aclose()
        assert not (tmp_path / "data").exists()


@pytest.mark.slow
async def test_searches_find_the_same_as_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words of any length, script and case, marks, a NUL and halves of pairs; read, half indexed and indexed."""
    monkeypatch.setattr("elbowroom.store.sql.store.SqlStore._index_soon", lambda *_: None)
    monkeypatch.setattr("elbowroom.store.sql.search.letters.MESSAGES_A_STEP", 3)
    dice = random.Random(1)
    talks = [*SAID, *("".join(dice.choices("".join(SAID), k=12)) for _ in range(20))]
    searches = [*SEARCHES, *("".join(dice.choices("".join(SAID), k=dice.randrange(1, 5))) for _ in range(20))]
    async with new_place() as place, AsyncExitStack() as stack:
        in_file, on_server = [
            await stack.enter_async_context(write_behind_conversations(each))
            for each in (tmp_path / "elbowroom.db", place)
        ]
        for kept in (in_file, on_server):
            for number, said in enumerate(talks):
                name, at = f"c{number}", float(number)
                kept.note([ConversationBegun(name, ME, "", "reader", at), Heard(name, f"{name}.1", "", user(said), at)])
            assert await kept.settled()
        expected = [await found(in_file, search) for search in searches]
        assert sum(map(bool, expected)) > len(SEARCHES) / 2
        for steps in (0, 2, 1000):
            for _ in range(steps):
                if not await on_server.sql._index.step():
                    break
            assert [await found(on_server, search) for search in searches] == expected
        unread = shared_server().ask("SELECT count(*) FROM messages WHERE letters IS NULL", name_of(place))
        assert unread == [(0,)]


async def found(kept: OwnConversations, search: str) -> list[str]:
    """Return the ids of the conversations that hold a text."""
    return sorted(row.id for row in await kept.rows(ME, search=search, limit=200))


async def test_a_refused_password_is_told_and_shown_nowhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store says that its server refuses it, by a variable or a file; the same store works with the right one."""
    server, user_name = shared_server(), f"keeper_{os.getpid()}"
    rules = Path(server.data) / "pg_hba.conf"
    written = rules.read_text()
    async with new_place() as trusted:
        server.ask(f"CREATE ROLE {user_name} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
        rules.write_text(f"host all {user_name} 127.0.0.1/32 scram-sha-256\n{written}")
        server.ask("SELECT pg_reload_conf()")
        try:
            caplog.set_level(logging.DEBUG)
            secret = tmp_path / "password"
            url = server.address(name_of(trusted), f"{user_name}:file:{secret}")
            settings, environ = StoreSettings(url=url), {"ELBOWROOM_DATA_DIR": str(tmp_path)}
            for given, why in (("", "cannot be read"), (f"{PASSWORD}2", "refuses the user's name or password")):
                if given:
                    secret.write_text(given)
                store = open_store(settings, environ)
                await store.memories.save("me", "agent", "kept", 0.0)
                [news] = store.news()
                assert why in news
                assert PASSWORD not in news + caplog.text
                await store.aclose()
            secret.write_text(PASSWORD)
            store = open_store(settings, environ)
            await store.memories.save("me", "agent", "kept", 0.0)
            assert store.news() == []
            await store.aclose()
            assert PASSWORD not in caplog.text
        finally:
            rules.write_text(written)
            server.ask("SELECT pg_reload_conf()")
    server.ask(f"DROP ROLE {user_name}")


async def test_deleted_messages_take_their_letters_along() -> None:
    """No letter of a deleted conversation is in the database any more."""
    async with new_place() as place, sql_store(place) as store, write_behind_conversations(place) as kept:
        kept.note(begun("c", "heron"))
        assert await kept.settled()
        while await store._index.step():
            pass
        letters = "SELECT count(*) FROM messages WHERE letters @@ '''ron'''::tsquery"
        assert shared_server().ask(letters, name_of(place)) == [(1,)]
        assert await kept.delete(ME, "c")
        assert shared_server().ask("SELECT count(*) FROM messages", name_of(place)) == [(0,)]


async def test_what_is_said_while_another_server_deletes_it_is_gone() -> None:
    """Words that come while their conversation is being deleted wait for that, and leave nothing behind."""
    said = ReplyGrew("turn.1", "text", "word ")
    deleted, over = threading.Event(), threading.Event()

    def delete(connection: Connection) -> None:
        execute_all(connection, Plan("two").add([Deleted("one")]).groups)
        deleted.set()
        over.wait(30)

    async with new_place() as place:
        one, two = [await SqlStore.open(place, server=server) for server in ("one", "two")]
        turn, reply = TurnBegun("turn", "one", "", "writer", 1.0), ReplyBegun("turn", "turn.1", 1.0)
        await one.conversations.write([*begun("one"), turn, reply, said], 1)
        deleting = asyncio.create_task(two._database.write(delete))
        assert await asyncio.to_thread(deleted.wait, 30)
        saying = asyncio.create_task(one.conversations.write([said], 2))
        await asyncio.wait([saying], timeout=0.2)
        assert not saying.done()
        over.set()
        await asyncio.gather(deleting, saying)
        assert await one._database.read(lambda connection: connection.execute(select(message_parts)).all()) == []
        await one.aclose()
        await two.aclose()
