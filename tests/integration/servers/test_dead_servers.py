"""What servers do as long as one that has just died still counts as there."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from postgresql import new_place, shared_server
from several_servers import several_servers

from elbowroom.context.conversation import (
    Added,
    Change,
    ConversationBegun,
    Queued,
    QueuedMessage,
    QueueDropped,
    QueueTaken,
    ReplyBegun,
    TurnBegun,
)
from elbowroom.server.state import SHARED
from elbowroom.store import ServerPlace, Together
from elbowroom.store.changes import Released
from elbowroom.store.sql import SqlServers
from elbowroom.store.sql.conversations import SqlConversations
from elbowroom.store.sql.database import Database
from elbowroom.store.sql.statements import interrupting

AGO = "extract(epoch FROM clock_timestamp()) - "
TURN = "INSERT INTO turns (id, conversation, parent, key, agent, status, began, has_more, server) \
VALUES ('turn_1', 'talk', '', '', '\"\"', 'streaming', 0, false, 'one')"


def change(place: ServerPlace, statement: str) -> None:
    """Change rows of a database."""
    shared_server().ask(statement, place.address.rpartition("/")[2])


@pytest.mark.slow
@pytest.mark.parametrize("turn", ["", "turn_1"], ids=["fetched", "taken by a turn"])
async def test_a_message_waits_for_an_earlier_one_that_another_server_has(turn: str) -> None:
    """Nothing is read before what a dead server had, which comes back when it no longer counts as there."""
    async with new_place() as place:
        change(place, f"INSERT INTO servers (id, name, started, renewed) VALUES ('one', '\"one\"', 0, {AGO}0)")
        change(place, TURN)
        for number, (of_turn, server) in enumerate([(turn, "one"), ("", "")]):
            values = f"'{number}', 'talk', '{{\"role\": \"user\"}}', 'steer', 0, '{of_turn}', '{server}'"
            change(place, f"INSERT INTO queue (id, conversation, message, mode, at, turn, server) VALUES ({values})")
        database = await Database.open(place)
        other = SqlServers(database, "other")
        assert await other.claim_queue(["talk"]) == []
        change(place, f"UPDATE servers SET renewed = {AGO}11")
        if turn:
            assert await other.claim_queue(["talk"]) == []
        await other.sweep()
        assert [item.id for item in await other.claim_queue(["talk"])] == ["0", "1"]
        await database.aclose()


@pytest.mark.slow
async def test_what_a_turn_had_taken_comes_back_whenever_its_server_is_found_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where the lease ends in the middle of looking after what others have left: no message goes unread."""

    def slowly(*given: Any) -> Iterator[Any]:
        for number, statement in enumerate(interrupting(*given)):
            if number == 2:
                time.sleep(0.4)
            yield statement

    monkeypatch.setattr("elbowroom.store.sql.sharing.servers.interrupting", slowly)
    async with new_place() as place:
        change(place, TURN.replace("'turn_1'", "'turn_2'").replace("'one'", "'gone'"))
        change(place, TURN)
        values = "'0', 'talk', '{\"role\": \"user\"}', 'steer', 0, 'turn_1', 'one'"
        change(place, f"INSERT INTO queue (id, conversation, message, mode, at, turn, server) VALUES ({values})")
        database = await Database.open(place)
        other = SqlServers(database, "other")
        change(place, f"INSERT INTO servers (id, name, started, renewed) VALUES ('one', '\"one\"', 0, {AGO}9.8)")
        for _ in range(2):
            await other.sweep()
        assert [item.id for item in await other.claim_queue(["talk"])] == ["0"]
        await database.aclose()


async def test_a_message_is_taken_again_whose_server_never_heard_that_it_had_it() -> None:
    """What a server took when the answer to that was lost comes with its next question, before what came later."""
    async with new_place() as place:
        change(place, f"INSERT INTO servers (id, name, started, renewed) VALUES ('one', '\"one\"', 0, {AGO}0)")
        for number, server in enumerate(["one", "one", ""]):
            values = f"'{number}', 'talk', '{{\"role\": \"user\"}}', 'steer', 0, '', '{server}'"
            change(place, f"INSERT INTO queue (id, conversation, message, mode, at, turn, server) VALUES ({values})")
        database = await Database.open(place)
        one, other = SqlServers(database, "one"), SqlServers(database, "other")
        assert await other.claim_queue(["talk"], ["0"]) == []
        assert [item.id for item in await one.claim_queue(["talk"], ["0"])] == ["1", "2"]
        assert await one.claim_queue(["talk"], ["0", "1", "2"]) == []
        await database.aclose()


@pytest.mark.parametrize("written", [0, 1, 2], ids=["nothing", "its turn", "what it took"])
async def test_what_a_server_has_read_and_not_written_another_one_reads_alone(written: int) -> None:
    """A server that was taken for dead in between writes late that it has read it: in the conversation it stands once.

    The other one has taken it meanwhile, and has read it, or is about to.
    """

    def reading(turn: str) -> list[Change]:
        """Return what a server notes whose turn takes the message and whose model begins to answer it."""
        read = Added(turn, f"{turn}.1", item.message, 1.0, item.id)
        begun = TurnBegun(turn, "talk", "", "writer", 1.0)
        return [begun, QueueTaken(turn, (item.id,)), read, QueueDropped((item.id,)), ReplyBegun(turn, f"{turn}.2", 1.0)]

    item = QueuedMessage("0", "talk", {"role": "user", "content": "Only once."}, "steer", 0.0)
    async with new_place() as place:
        database = await Database.open(place)
        servers, writers = SqlServers(database, "other"), SqlConversations(database, "other")
        for server in ("one", "other"):
            change(place, f"INSERT INTO servers (id, name, started, renewed) VALUES ('{server}', '\"\"', 0, {AGO}0)")
        await writers.write([ConversationBegun("talk", "", "", "writer", 0.0), Queued(item)], 1)
        assert await SqlServers(database, "one").claim_queue(["talk"]) == [item]
        late = SqlConversations(database, "one")
        await late.write(reading("turn_1")[:written], 1)
        change(place, f"UPDATE servers SET renewed = {AGO}11 WHERE id = 'one'")
        await servers.sweep()
        assert await servers.claim_queue(["talk"]) == [item]
        await late.write(reading("turn_1")[written:], 2)
        await writers.write([Released((item.id,))], 2)
        await late.write([QueueDropped((item.id,))], 3)
        assert await servers.claim_queue(["talk"]) == [item]  # what was refused takes it from nobody later either
        await writers.write(reading("turn_2"), 3)
        rows = shared_server().ask(
            "SELECT message FROM message_parts WHERE content LIKE '%Only once.%'", place.address.rpartition("/")[2]
        )
        assert rows == [("turn_2.1",)]
        assert await servers.waiting("talk") == []
        await database.aclose()


@pytest.mark.slow
async def test_a_server_that_takes_no_call_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks one that has just died goes on long before the time is over that an answer may take."""
    monkeypatch.setattr("elbowroom.store.sharing.servers.TAKEN_SECONDS", 0.2)
    async with several_servers(tmp_path, 2) as (served, _):
        one, other = (each.app[SHARED].store.servers for each in served)
        assert isinstance(one, Together)
        assert isinstance(other, Together)
        async with asyncio.timeout(30.0):
            while not all([await other.others(), await one.others()]):  # noqa: ASYNC110  # it knows no events
                await asyncio.sleep(0.01)
        assert other._draining is not None
        other._draining.cancel()
        async with asyncio.timeout(20.0):
            assert await one.ask(other.id, "live", {"owner": ""}, seconds=600.0) is None
