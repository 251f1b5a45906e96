"""Three servers, one PostgreSQL and some LM Studios with a crowd of clients, while all of them are killed at random.

`CHAOS_SECONDS=60 CHAOS_SEED=7 scripts/test --long tests/integration/test_crowd_of_servers.py -k chaos` plays a minute.
"""

import asyncio
import os
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psycopg
import pytest
from chaos import CHAOS, KILLS, Hand
from crowd import Crowd, Person
from crowd_checks import broken, queue_not_read, summary
from postgresql import KEEPING, new_place, started
from server_processes import server_processes
from studio_process import MODEL
from studio_processes import studios

from elbowroom.context.conversation import Added, ConversationBegun, TurnBegun
from elbowroom.store.sql.conversations import SqlConversations
from elbowroom.store.sql.database import Database

SETTLING = 17.0
"""Seconds after which nothing is left of a server that was killed."""
AHEAD = 300.0
"""Seconds by which the clock of one server goes ahead of the others'."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("faults", "seconds", "count", "clients"), [(KILLS, 20, 2, 60), (CHAOS, 600, 3, 40)], ids=["kills", "chaos"]
)
async def test_nothing_is_lost_whatever_fails(
    tmp_path: Path, faults: dict[str, int], seconds: float, count: int, clients: int
) -> None:
    """Words, queues, cancels, compactions, windows and leases: nothing of it depends on a process that goes on."""
    seed = int(os.environ.get("CHAOS_SEED") or random.randrange(2**32))
    seconds = float(os.environ.get("CHAOS_SECONDS") or seconds)
    async with AsyncExitStack() as stack:
        database = stack.enter_context(started(KEEPING))
        address = database.address(database.new_database())
        engines = await stack.enter_async_context(studios(tmp_path, count))
        places = {engine.name: engine.url for engine in engines}
        running = server_processes(tmp_path, 3, places, address=address, ahead=AHEAD)
        servers, _ = await stack.enter_async_context(running)
        hand = Hand(servers, engines, faults, random.Random(seed), database)
        crowd = Crowd(servers, engines, address, clients, seed, hand)
        await crowd.live(seconds)
        await asyncio.sleep(SETTLING)
        wrong = await broken(crowd)
    told = summary(crowd, seed)
    sys.stdout.write("\n".join([told, *wrong, ""]))
    assert wrong == [], told
    assert crowd.found.went["whole answers"] > seconds, told


async def test_a_message_that_is_read_twice_is_found() -> None:
    """In two answers of one conversation it is, in two conversations under one name it is not."""
    person = Person("person 1", MODEL, random.Random(1), queued={"person 1 adds 0.": True})
    crowd = cast(Crowd, SimpleNamespace(people=[person]))
    said = {"role": "user", "content": "person 1 adds 0."}
    async with new_place() as place:
        database = await Database.open(place)
        kept = SqlConversations(database)
        with psycopg.connect(place.address, autocommit=True) as rows:
            for turn, talk, found in (("a", "one", 0), ("b", "other", 0), ("c", "one", 1)):
                begun = ConversationBegun(talk, "", "", "", 1.0), TurnBegun(turn, talk, "", "", 1.0)
                await kept.write([*begun, Added(turn, f"{turn}.1", said, 1.0)])
                again = list(queue_not_read(crowd, rows))
                assert [line.partition(":")[0] for line in again] == ["'person 1 adds 0.' is read again"] * found
        await database.aclose()
