"""Three servers, one PostgreSQL and some LM Studios with a crowd of clients, while all of them are killed at random.

`CHAOS_SECONDS=60 CHAOS_SEED=7 scripts/test --long tests/integration/test_crowd_of_servers.py -k chaos` plays a minute.
"""

import asyncio
import os
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from chaos import CHAOS, KILLS, Hand
from crowd import Crowd
from crowd_checks import broken, summary
from postgresql import KEEPING, started
from server_processes import server_processes
from studio_processes import studios

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
