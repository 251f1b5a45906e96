"""Three servers, one PostgreSQL, two LM Studios and 60 clients, while servers and LM Studios are killed at random."""

import asyncio
import random
import sys
from pathlib import Path

import pytest
from crowd import Crowd, studios
from crowd_checks import broken
from server_processes import server_processes

SETTLING = 17.0
"""Seconds after which nothing is left of a server that was killed."""


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seconds", [20, 300], ids=["short", "five minutes"])
async def test_nothing_is_lost_when_servers_and_engines_are_killed(tmp_path: Path, seconds: int) -> None:
    """Words, queues, cancels, windows and leases: nothing of it depends on a process that goes on."""
    seed = random.randrange(2**32)
    async with studios(tmp_path, 2) as engines:
        places = {engine.name: engine.url for engine in engines}
        async with server_processes(tmp_path, 3, places) as (servers, address):
            crowd = Crowd(servers, engines, address, 60, seed)
            await crowd.live(seconds)
            await asyncio.sleep(SETTLING)
            wrong = broken(crowd, address)
    went = f"seed {seed}: {dict(crowd.found.went)}, slowest cancels {sorted(crowd.found.cancels)[-5:]}"
    sys.stdout.write("\n".join([went, *wrong, ""]))
    assert wrong == [], went
    assert crowd.found.went["whole answers"] > seconds, went
