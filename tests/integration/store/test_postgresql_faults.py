"""A PostgreSQL server that fails in every way: what was acknowledged is there once, and what waits is written later."""

import asyncio
import os
import secrets
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import every_kind_of_row as rows
import pytest
from cutting_relay import CuttingRelay, relayed
from ledger_files import SOON
from postgresql import KEEPING, USER, PostgreSQL, new_place, shared_server, started
from stored_conversations import (
    ME,
    OwnConversations,
    begun,
    heard,
    messages_of,
    turn_begun,
    whole,
    write_behind_conversations,
)

from elbowroom.context.conversation import Change, ReplyBegun, ReplyEnded, ReplyGrew
from elbowroom.settings.model import StoreSettings
from elbowroom.store import ServerPlace, Together, open_store
from elbowroom.store.sql import SqlStore, store
from elbowroom.store.sql.schema import metadata
from elbowroom.store.write_behind import Patience, WriteBehindStore

OF_CONVERSATIONS = ("conversations", "turns", "messages", "message_parts", "step_usage", "compactions", "queue")
AT_ONCE = 8
"""How many changes are noted before they are written."""


@asynccontextmanager
async def own_conversations(place: ServerPlace) -> AsyncIterator[OwnConversations]:
    """Open conversations as a server does that shares a database."""
    kept = OwnConversations(WriteBehindStore(str(place), lambda: SqlStore.open(place, server="server_1"), SOON))
    try:
        yield kept
    finally:
        await kept.aclose()


async def until_settled(kept: OwnConversations) -> None:
    """Wait until all that was noted is in the database."""
    async with asyncio.timeout(60):
        while not await kept.settled():  # noqa: ASYNC110  # which tries again each time
            await asyncio.sleep(0.02)


async def write_all(kept: OwnConversations, changes: list[Change]) -> None:
    """Note changes some at a time, and have each of them written."""
    for start in range(0, len(changes), AT_ONCE):
        kept.note(changes[start : start + AT_ONCE])
        await until_settled(kept)


def rows_in(server: PostgreSQL, place: ServerPlace) -> dict[str, list[Any]]:
    """Return all rows of conversations in order, without the numbers, of which a cut may have used some up."""
    found = {}
    for name in OF_CONVERSATIONS:
        columns = [column.name for column in metadata.tables[name].columns if column.name not in ("number", "server")]
        order = (
            "number"
            if "number" in metadata.tables[name].columns
            else ", ".join(f'"{column.name}"' for column in metadata.tables[name].primary_key)
        )
        listed = ", ".join(f'"{column}"' for column in columns)
        found[name] = server.ask(f"SELECT {listed} FROM {name} ORDER BY {order}", place.address.rpartition("/")[2])
    return found


async def uncut() -> tuple[dict[str, list[Any]], int]:
    """Return the rows that are there when nothing fails, and how many messages it took."""
    server = shared_server()
    async with new_place() as place, relayed(CuttingRelay(server.port)) as relay:
        async with own_conversations(through(relay, place)) as kept:
            await write_all(kept, rows.CHANGES)
        return rows_in(server, place), relay.messages


def through(relay: CuttingRelay, place: ServerPlace) -> ServerPlace:
    """Return the address of a database on the way through a relay."""
    return ServerPlace(place.address.replace(f":{relay.server_port}/", f":{relay.port}/"))


async def cut_at(number: int, when: Any) -> tuple[dict[str, list[Any]], CuttingRelay]:
    """Return the rows that are there after the connection was cut at a message."""
    server = shared_server()
    async with new_place() as place, relayed(CuttingRelay(server.port, number, when)) as relay:
        async with own_conversations(through(relay, place)) as kept:
            await write_all(kept, rows.CHANGES)
        return rows_in(server, place), relay


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_that_is_cut_loses_and_doubles_nothing(when: str) -> None:
    """Cut at some of the messages, before the server has it or before its answer: the rows are those of no cut."""
    expected, messages = await uncut()
    for number in range(messages // 5, messages * 3 // 4, messages // 5):
        found, relay = await cut_at(number, when)
        assert relay.cuts == 1
        assert found == expected, number


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_may_be_cut_at_every_statement(when: str) -> None:
    """The same at every single message, until one run needs no more of them."""
    expected, messages = await uncut()
    number, cuts = 1, 1
    while cuts:
        found, relay = await cut_at(number, when)
        assert found == expected, number
        number, cuts = number + 1, relay.cuts
    assert number > messages // 2


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgreSQL]:
    """A server that the tests of this module may kill."""
    with started(KEEPING) as server:
        yield server


@pytest.fixture
def own_place(own_server: PostgreSQL) -> Iterator[ServerPlace]:
    """A new database on it."""
    name = own_server.new_database()
    yield ServerPlace(own_server.address(name))
    own_server.drop(name)


@pytest.mark.slow
@pytest.mark.fault("PostgreSQL gone", ("streaming",), "each piece is kept once")
async def test_a_server_that_is_killed_while_an_answer_streams_leaves_no_hole(
    own_server: PostgreSQL, own_place: ServerPlace
) -> None:
    """Killed twice: each piece that was acknowledged is there, once and in order, and so is what was said meanwhile."""
    pieces = [f"word {number} " for number in range(60)]
    async with own_conversations(own_place) as kept:
        kept.note([*begun("c"), *turn_begun("t", "c", "c.1")])
        kept.note([ReplyBegun("t", "t.9", 1.0)])
        for number, piece in enumerate(pieces):
            kept.note([ReplyGrew("t.9", "text", piece)])
            if number % 5 == 0:
                await until_settled(kept)
            if number in (20, 40):
                own_server.stop("immediate")
                kept.note([ReplyGrew("t.9", "text", "said while it is down ")])
                assert not await kept.settled()
                assert any("its database server cannot be reached" in told for told in kept._store.news())
                own_server.start()
        kept.note([ReplyEnded("t.9", "complete")])
        await until_settled(kept)
    async with own_conversations(own_place) as kept:
        said = [message["content"] for message in await messages_of(kept, "c") if message["role"] == "assistant"]
    down = "said while it is down "
    assert said[-1] == "".join([*pieces[:21], down, *pieces[21:41], down, *pieces[41:]])


@pytest.mark.slow
async def test_a_disk_that_is_full_is_told_and_waited_for(
    own_server: PostgreSQL, own_place: ServerPlace, caplog: pytest.LogCaptureFixture
) -> None:
    """The log says that there is no space; what waits is written once there is room, and nothing is lost."""
    name = own_place.address.rpartition("/")[2]
    with small_disk(own_server) as folder:
        async with own_conversations(own_place) as kept:
            kept.note(begun("c"))
            await until_settled(kept)
            own_server.ask("ALTER TABLE message_parts SET TABLESPACE small", name)
            filler = folder / "filler"
            free = shutil.disk_usage(folder).free
            filler.write_bytes(bytes(max(0, free - 16_384)))
            texts = [f"{number} {secrets.token_hex(3000)}" for number in range(30)]
            kept.note([heard("c", f"k{number}", "c.1", text) for number, text in enumerate(texts)])
            assert not await kept.settled()
            assert kept._store.is_failing
            assert "No space left on device" in caplog.text
            assert any("the disk of its database server is full" in told for told in kept._store.news())
            assert [message["content"] for message in await messages_of(kept, "c")][1:] == texts
            filler.unlink()
            await until_settled(kept)
            assert [message["content"] for message in await messages_of(kept, "c")][1:] == texts
        own_server.ask("ALTER TABLE message_parts SET TABLESPACE pg_default", name)


@contextmanager
def small_disk(server: PostgreSQL) -> Iterator[Path]:
    """Give a file system of 2 MB with the tablespace `small`; skips where none can be mounted."""
    folder = server.folder / "small"
    folder.mkdir(exist_ok=True)
    mounted = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mounted, check=False, capture_output=True).returncode != 0:
        pytest.skip("no file system can be mounted")
    try:
        shutil.chown(folder, USER, USER)
        (folder / "space").mkdir()
        shutil.chown(folder / "space", USER, USER)
        server.ask(f"CREATE TABLESPACE small LOCATION '{folder}/space'")
        yield folder
        server.ask("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.long
async def test_a_standby_takes_over() -> None:
    """The server is killed and its standby promoted: what was acknowledged is there, and the servers go on together."""
    with started(KEEPING) as primary, started(KEEPING, primary) as standby:
        primary.ask("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.ask("SELECT pg_reload_conf()")
        name = primary.new_database()
        both = f"postgresql://{USER}@127.0.0.1:{primary.port},127.0.0.1:{standby.port}/{name}"
        settings = StoreSettings(url=f"{both}?target_session_attrs=read-write")
        one, other = open_store(settings, {}), open_store(settings, {})
        try:
            assert isinstance(one.servers, Together)
            assert isinstance(other.servers, Together)
            other.servers.offer({"echo": echo})
            for number, change in enumerate(whole("c")):
                one.conversations.note([change])
                if number == 5:
                    assert await one.conversations.settled()
                    await other.ready(30)
                    await asyncio.to_thread(primary.stop, "immediate")
                    await asyncio.to_thread(standby.promote)
            async with asyncio.timeout(60):
                while not await one.conversations.settled():  # noqa: ASYNC110  # which tries again each time
                    await asyncio.sleep(0.1)
                while await one.servers.ask(other.servers.id, "echo", {"word": "heron"}) != {"word": "heron"}:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
                # The connections of the other one were the primary's: it asks once in vain.
                while (told := await other.conversations.read(ME, "c")) is None:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            assert [kept.message for kept in told.messages] == await expected_of(whole("c"))
        finally:
            await one.aclose()
            await other.aclose()


async def echo(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Answer with what was asked."""
    return given


async def expected_of(changes: list[Change]) -> list[Any]:
    """Return the messages that these changes make."""
    async with write_behind_conversations(None) as kept:
        kept.note(changes)
        return await messages_of(kept, "c")


@pytest.mark.long
async def test_a_slow_server_holds_nobody_up(own_server: PostgreSQL, own_place: ServerPlace) -> None:
    """Each answer takes 50 ms: noting never waits, what is said can be read at once, and all is written."""
    async with relayed(CuttingRelay(own_server.port, late=0.05)) as relay:
        async with own_conversations(through(relay, own_place)) as kept:
            texts = [f"word {number}" for number in range(60)]
            loop = asyncio.get_running_loop()
            before = loop.time()
            kept.note(begun("c"))
            for number, text in enumerate(texts):
                kept.note([heard("c", f"k{number}", "c.1", text)])
            assert loop.time() - before < 0.2
            assert [message["content"] for message in await messages_of(kept, "c")][1:] == texts
            await until_settled(kept)
        async with own_conversations(own_place) as kept:
            assert [message["content"] for message in await messages_of(kept, "c")][1:] == texts


@pytest.mark.slow
@pytest.mark.fault("PostgreSQL gone", ("first",), "silent: the end comes all the same")
async def test_a_server_that_no_longer_answers_does_not_keep_the_process(
    own_server: PostgreSQL, own_place: ServerPlace, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection stands and says nothing more: noting waits for nothing, and the end comes within its limits."""
    monkeypatch.setattr(store, "CLOSING_SECONDS", 0.2)
    patience = Patience(opening=30, again=0.05, closing=0.2)
    async with relayed(CuttingRelay(own_server.port)) as relay:
        place = through(relay, own_place)
        kept = OwnConversations(WriteBehindStore(str(place), lambda: SqlStore.open(place, server="server_1"), patience))
        try:
            kept.note(begun("c"))
            await until_settled(kept)
            relay.answers.clear()
            reading = asyncio.create_task(kept.rows(ME))
            kept.note([heard("c", "k", "c.1", "Are you there?")])
            async with asyncio.timeout(10):
                await kept.aclose()
                await asyncio.wait([reading])
            assert "that are lost: 1" in caplog.text
        finally:
            relay.answers.set()
