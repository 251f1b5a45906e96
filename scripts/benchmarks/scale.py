"""Servers that share a PostgreSQL database: what one, two and four can do, and what sharing costs a turn.

The servers, the database, the client and the upstream share the cores of this machine, so turns per second say little
where it has fewer than the servers need. What one server takes of a core for a turn is its own: the turns that so many
servers can answer with a core each are worked out from it, in the same round for one, two and four. Each server is
asked by as many clients, however many servers there are.
"""

import asyncio
import contextlib
import importlib
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

import psutil
from load import LOADS, Load
from processes import Command, Program
from servers import HOME, Rig, Server
from upstream import Reply
from visit import SETTLE, Visit, collector_off, send_in_turn, sort_out, visit

SIZES: Final = (1, 2, 4)
TURNS: Final = Load("scale", "request", streams=8, requests=25, reply=Reply(tokens=60, burst=4))
FIRST: Final = replace(next(load for load in LOADS if load.name == "first_token"), requests=20)
ALTERNATIONS: Final = 8
SQLITE, POSTGRESQL = "elbowroom with SQLite", "elbowroom with PostgreSQL"
UNSHARED: Final = "elbowroom with a window of its own"
"""Uses PostgreSQL, and holds what it needs of the windows of models without asking other servers."""


@dataclass(frozen=True, slots=True)
class Share:
    """The turns of so many servers: CPU seconds of all servers and of the database for one turn, and turns a second."""

    servers: int
    cpu: float
    database: float
    rate: float
    broken: tuple[str, ...] = ()

    @property
    def capacity(self) -> float:
        """Return how many turns a second the servers can answer with a core each."""
        return self.servers / self.cpu


@dataclass(frozen=True, slots=True)
class ScaleRound:
    """What one round has measured: the servers together, and single turns with each database and without leases."""

    shares: tuple[Share, ...]
    first: dict[str, tuple[Visit, ...]]


def postgresql() -> Any:
    """Return what runs a PostgreSQL server of this machine for a while; None where none is installed."""
    sys.path.append(str(HOME / "tests" / "support"))
    found = importlib.import_module("postgresql")
    return found if any(found.VERSIONS.glob("*/bin/initdb")) else None


@contextlib.contextmanager
def database_server(settings: Sequence[str] = ()) -> Iterator[Any]:
    """Run a PostgreSQL server with safe settings for as long as the block lasts."""
    with postgresql().started(tuple(settings)) as server:
        yield server


def cpu_of(database: Any) -> float:
    """Return the CPU seconds of a database server and all its processes, ended ones included."""
    with open(f"{database.data}/postmaster.pid") as file:
        process = psutil.Process(int(file.readline()))
    own = [process, *process.children(recursive=True)]
    times = [each.cpu_times() for each in own]
    return sum(each.user + each.system for each in times) + times[0].children_user + times[0].children_system


@asynccontextmanager
async def sharing(rig: Rig, address: str, names: Sequence[str]) -> AsyncIterator[list[Program]]:
    """Run servers of these names on one database, wherever the system puts them; an empty address is SQLite."""
    with contextlib.ExitStack() as stack:
        programs = []
        for name in names:
            own = rig.command(name)
            command = Command(_arguments(own, name), {**own.environment, "ELBOWROOM_STORE__URL": address})
            log = rig.folder / f"{name}.log"
            programs.append(stack.enter_context(command.running(None, rig.cores, log)))
        for program in programs:
            await asyncio.to_thread(program.wait_until_healthy)
        yield programs


def _arguments(command: Command, name: str) -> tuple[str, ...]:
    """Return what starts a server of this name."""
    if name != UNSHARED:
        return command.arguments
    program = str(HOME / "scripts" / "benchmarks" / "unshared.py")
    return tuple(program if part == "-m" else part for part in command.arguments if part != "elbowroom")


async def share(load: Load, programs: Sequence[Program], database: Any, nonce: str) -> Share:
    """Put the load on each server at the same time."""
    model = Server("elbowroom", programs[0]).model
    bodies = [
        [load.body(model, f"{nonce}-{stream}-{request}") for request in range(load.requests)]
        for stream in range(load.streams * len(programs))
    ]
    turns = len(bodies) * load.requests
    async with collector_off():
        before, stored = [program.cpu_seconds() for program in programs], cpu_of(database)
        began = time.perf_counter()
        asked = [
            send_in_turn(programs[stream % len(programs)].port, requests, 0.0) for stream, requests in enumerate(bodies)
        ]
        exchanges = [exchange for stream in await asyncio.gather(*asked) for exchange in stream]
        took = time.perf_counter() - began
        await asyncio.sleep(SETTLE)
        cpu = sum(program.cpu_seconds() for program in programs) - sum(before)
        stored = cpu_of(database) - stored
    _, broken = sort_out(load, exchanges)
    return Share(len(programs), cpu / turns, stored / turns, turns / took, tuple(broken))


async def scale_rounds(rig: Rig, count: int, rng: random.Random, *, quick: bool) -> list[ScaleRound]:
    """Measure all sizes and both databases once a round, in an order that chance decides."""
    load, first = (TURNS.quick(), FIRST.quick()) if quick else (TURNS, FIRST)
    with database_server() as database:
        places = [f"{database.address(database.new_database())}" for _ in (*SIZES, POSTGRESQL, UNSHARED)]
        async with contextlib.AsyncExitStack() as stack:
            groups = [
                await stack.enter_async_context(sharing(rig, place, [f"{size}-{n}" for n in range(size)]))
                for place, size in zip(places, SIZES, strict=False)
            ]
            alone = [
                Server(name, (await stack.enter_async_context(sharing(rig, place, [name])))[0])
                for name, place in ((SQLITE, ""), (POSTGRESQL, places[-2]), (UNSHARED, places[-1]))
            ]
            for group in groups:  # what is loaded with the first request is no cost of a turn
                await share(replace(load, requests=max(2, load.requests // 5)), group, database, "warm")
            return [await _round(load, first, groups, alone, database, rig, number, rng) for number in range(count)]


async def _round(
    load: Load,
    first: Load,
    groups: Sequence[Sequence[Program]],
    alone: Sequence[Server],
    database: Any,
    rig: Rig,
    number: int,
    rng: random.Random,
) -> ScaleRound:
    shares = [await share(load, group, database, f"scale {number}") for group in rng.sample(groups, k=len(groups))]
    words: dict[str, tuple[Visit, ...]] = {server.name: () for server in alone}
    for again in range(ALTERNATIONS):
        for server in rng.sample(alone, k=len(alone)):
            words[server.name] += (await visit(first, server, rig.upstream, f"first {number} {again}"),)
    return ScaleRound(tuple(sorted(shares, key=lambda seen: seen.servers)), words)
