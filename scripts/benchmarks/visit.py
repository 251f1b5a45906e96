"""One visit of a load to a server: it sends, waits, reads the CPU time, and then checks every answer."""

import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from answers import Answer, BrokenAnswer, checked
from client import Connection, Exchange, get, get_json, post
from load import Load
from processes import Program
from servers import Server

SETTLE = 0.5  # what a server still does after the last byte of an answer is its cost too
STAGGER = 0.02  # streams start spread over this, so that their tokens do not arrive in one bunch
PROBE_EVERY = 0.005
USUAL = 20  # questions from which the usual wait for /health is known
PATIENCE = 60.0
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Visit:
    """One server's share of one round. Times are seconds; `cpu` is None for the upstream itself."""

    server: str
    units: int
    wall: float
    cpu: float | None
    first_tokens: tuple[float, ...]
    deltas: int
    broken: tuple[str, ...] = ()
    longest_wait: float | None = None
    usual_wait: float | None = None

    @property
    def cpu_per_unit(self) -> float | None:
        """CPU seconds per frame or request."""
        return None if self.cpu is None else self.cpu / self.units

    @property
    def longest_hold(self) -> float | None:
        """Return by how many seconds the longest wait for /health was longer than that of a server without work."""
        return None if self.longest_wait is None or self.usual_wait is None else self.longest_wait - self.usual_wait

    def first_token(self, percentile: int) -> float | None:
        """Return a percentile (1 to 99) of the time to the first token."""
        return percentile_of(self.first_tokens, percentile)


def percentile_of(values: Sequence[float], percentile: int) -> float | None:
    """Return a percentile (1 to 99) of values; None where there are none."""
    if len(values) < 2:
        return values[0] if values else None
    return statistics.quantiles(values, n=100, method="inclusive")[percentile - 1]


async def visit(load: Load, server: Server, upstream: Program, nonce: str) -> Visit:
    """Put one load on one server."""
    bodies = [
        [load.body(server.model, f"{nonce}-{stream}-{request}") for request in range(load.requests)]
        for stream in range(load.streams)
    ]
    seen = await get_json(upstream.port, "/bench/counts")
    usual = await waits_for_health(server.program.port, USUAL.__le__) if load.probe else []
    async with collector_off():
        cpu, started = server.program.cpu_seconds(), time.perf_counter()
        exchanges, longest_wait = await send_all(load, server.program.port, bodies)
        wall = time.perf_counter() - started
        await asyncio.sleep(SETTLE)
        cpu = server.program.cpu_seconds() - cpu
    seen_after = await get_json(upstream.port, "/bench/counts")
    answers, broken = sort_out(load, exchanges)
    sent = [len(body) for stream in bodies for body in stream]
    broken += missed(sent, seen_after["requests"] - seen["requests"], seen_after["bytes"] - seen["bytes"])
    return Visit(
        server=server.name,
        units=load.units,
        wall=wall,
        cpu=None if server.is_direct else cpu,
        first_tokens=tuple(answer.first_token for answer in answers),
        deltas=sum(answer.deltas for answer in answers),
        broken=tuple(broken),
        longest_wait=longest_wait,
        usual_wait=statistics.median(usual) if usual else None,
    )


@asynccontextmanager
async def collector_off() -> AsyncIterator[None]:
    """Keep the client's own garbage collector from showing up as a server's delay."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def send_all(
    load: Load, port: int, bodies: Sequence[Sequence[bytes]]
) -> tuple[list[Exchange | Exception], float | None]:
    """Send all streams' requests; return what came back, and the longest wait for /health if asked for."""
    over = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        probe = group.create_task(waits_for_health(port, lambda _: over.is_set())) if load.probe else None
        streams = [
            send_in_turn(port, requests, STAGGER * index / load.streams) for index, requests in enumerate(bodies)
        ]
        exchanges = await asyncio.gather(*streams)
        over.set()
    longest_wait = max(probe.result(), default=0.0) if probe else None
    return [exchange for stream in exchanges for exchange in stream], longest_wait


async def send_in_turn(port: int, bodies: Sequence[bytes], delay: float) -> list[Exchange | Exception]:
    """Send one request after another over a kept connection; a failure takes the place of the answer."""
    await asyncio.sleep(delay)
    done: list[Exchange | Exception] = []
    try:
        connection = await Connection.open(port)
        for body in bodies:
            if connection.is_closed:
                connection = await Connection.open(port)
            async with asyncio.timeout(PATIENCE):
                done.append(await connection.send(post(port, CHAT, body)))
        connection.close()
    except (OSError, TimeoutError) as failure:
        done += [failure] * (len(bodies) - len(done))
    return done


async def waits_for_health(port: int, is_over: Callable[[int], bool]) -> list[float]:
    """Ask /health again and again; return the seconds of each answer. `is_over` is told how many there are."""
    connection, waits = await Connection.open(port), list[float]()
    while not is_over(len(waits)):
        if connection.is_closed:
            connection = await Connection.open(port)
        exchange = await connection.send(get(port, "/health"))
        waits.append(time.perf_counter() - exchange.sent_at)
        await asyncio.sleep(PROBE_EVERY)
    connection.close()
    return waits


def sort_out(load: Load, exchanges: Sequence[Exchange | Exception]) -> tuple[list[Answer], list[str]]:
    """Check every answer; return the right ones, and what is wrong with the others."""
    answers, broken = [], []
    for exchange in exchanges:
        if isinstance(exchange, Exception):
            broken.append(repr(exchange))
            continue
        try:
            answers.append(checked(exchange, load.reply))
        except BrokenAnswer as reason:
            broken.append(str(reason))
        except ValueError as reason:
            broken.append(f"neither chunks nor JSON: {reason}")
    return answers, broken


def missed(sent: Sequence[int], requests: int, size: int) -> list[str]:
    """Say so if the upstream did not get every request once and whole; JSON may be encoded more tightly."""
    if requests == len(sent) and size >= 0.95 * sum(sent):
        return []
    return [f"sent {len(sent)} requests of {sum(sent)} bytes, the upstream got {requests} of {size} bytes"]
