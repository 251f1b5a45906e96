"""Measures what a turn costs a server and its PostgreSQL database, and works out what so many users need.

It plays conversations as chat programs have them, with a simulated engine, over a database with safe settings: rows and
bytes by table, log (WAL), commits, CPU of the server and of the database, memory. The rest is multiplication, by the
habits that the options name.
"""

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from load import Load
from processes import StartFailed
from scale import cpu_of, database_server, postgresql, sharing
from servers import HOME, Server, rig
from upstream import Reply
from visit import PATIENCE, SETTLE, send_in_turn, sort_out

REPLY: Final = Reply(tokens=250, rate=25)
SECONDS: Final = REPLY.tokens / REPLY.rate
"""What an answer takes, which is written to the database all the while."""
QUESTION: Final = 1_000
"""Characters, of people's language: what is in the index for searches depends on it."""
CONVERSATIONS, TURNS = 40, 5
"""All conversations go on at once."""
DOCUMENTS: Final = HOME / "docs"
HOUR: Final = 3600.0
FULL: Final = 0.6
"""A core is planned to be used so far at most, so that nobody waits for it."""
SIZES: Final = "SELECT relname, pg_table_size(oid), pg_indexes_size(oid) FROM pg_class WHERE relkind = 'r' AND \
relnamespace = current_schema()::regnamespace"
COMMITS: Final = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"
WRITTEN: Final = "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"
CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND \
pid <> pg_backend_pid()"
ENDED: Final = "SELECT count(*) FROM turns WHERE status = 'complete'"
INDEXED: Final = "SELECT count(*) FROM messages WHERE letters IS NOT NULL"
MIB, GIB = 2.0**20, 2.0**30


@dataclass(frozen=True, slots=True)
class Taken:
    """What a database has taken so far: rows, bytes and bytes of indexes by table; log, commits, CPU seconds."""

    rows: Mapping[str, int]
    bytes: Mapping[str, int]
    indexes: Mapping[str, int]
    log: float
    commits: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Costs:
    """What one turn costs, and what a server takes that has nothing to do (MiB, connections)."""

    rows: Mapping[str, float]
    bytes: Mapping[str, float]
    indexes: Mapping[str, float]
    log: float
    commits: float
    database_cpu: float
    server_cpu: float
    memory: float
    connections: int

    @property
    def kept(self) -> float:
        """Return the bytes that a turn leaves in the database."""
        return sum(self.bytes.values()) + sum(self.indexes.values())


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/cost_of_users", description=__doc__)
    parser.add_argument("--users", type=int, default=10_000, help="how many (default 10000)")
    parser.add_argument("--turns", type=float, default=20, help="questions of a user on a day (default 20)")
    parser.add_argument("--days", type=float, default=90, help="store.retention_days (default 90)")
    parser.add_argument("--busiest", type=float, default=0.15, help="share of a day in its busiest hour (default 0.15)")
    parser.add_argument("--parallel", type=int, default=8, help="answers that an LM Studio gives at once (default 8)")
    parser.add_argument("--quick", action="store_true", help="a few turns, too few to judge anything by")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    return parser.parse_args(given)


def bodies(model: str, name: str, turns: int) -> Iterator[bytes]:
    """Yield the requests of a conversation, each with all that was said before."""
    said: list[dict[str, str]] = []
    texts, rng = "".join(path.read_text("utf-8") for path in sorted(DOCUMENTS.rglob("*.md"))), random.Random(name)
    for turn in range(turns):
        place = rng.randrange(len(texts) - QUESTION)
        text = f"Question {turn} of {name}. {texts[place : place + QUESTION]} {REPLY.order()}"
        said.append({"role": "user", "content": text})
        yield json.dumps({"model": model, "messages": said, "stream": True}, separators=(",", ":")).encode()
        said.append({"role": "assistant", "content": REPLY.text()})


def taken(database: Any, name: str) -> Taken:
    """Read what the database has taken, once its tables have been written anew, without what is dead in them."""
    database.ask("VACUUM FULL ANALYZE", name)
    sizes = database.ask(SIZES, name)
    rows = {table: database.ask(f'SELECT count(*) FROM "{table}"', name)[0][0] for table, _, _ in sizes}
    return Taken(
        rows,
        {table: own for table, own, _ in sizes},
        {table: indexes for table, _, indexes in sizes},
        float(database.ask(WRITTEN, name)[0][0]),
        float(database.ask(COMMITS, name)[0][0]),
        cpu_of(database),
    )


async def measured(*, quick: bool) -> Costs:
    """Play the conversations. Raises StartFailed where answers were wrong."""
    count, turns = (4, 1) if quick else (CONVERSATIONS, TURNS)
    with rig(None, None) as ready, database_server() as database:
        name = database.new_database()
        async with sharing(ready, database.address(name), ["users"]) as (server,):
            model = Server("elbowroom", server).model
            await _play([list(bodies(model, "warm", 1))], server.port)
            await _written(database, name, 1, ENDED)
            memory, connections = server.rss(), database.ask(CONNECTIONS, name)[0][0]
            before, cpu = taken(database, name), server.cpu_seconds()
            commits, log, used = before.commits, before.log, cpu_of(database)
            await _play([list(bodies(model, f"chat {number}", turns)) for number in range(count)], server.port)
            await _written(database, name, 1 + count * turns, ENDED)
            if not quick:
                await _written(database, name, 2 * (1 + count * turns), INDEXED)
            cpu, used = server.cpu_seconds() - cpu, cpu_of(database) - used
            log = float(database.ask(WRITTEN, name)[0][0]) - log
            after = taken(database, name)
    played = count * turns

    def each(of: Mapping[str, int], earlier: Mapping[str, int]) -> dict[str, float]:
        found = {table: (value - earlier.get(table, 0)) / played for table, value in of.items()}
        return {table: value for table, value in found.items() if value > 0}

    return Costs(
        each(after.rows, before.rows),
        each(after.bytes, before.bytes),
        each(after.indexes, before.indexes),
        log / played,
        (after.commits - commits) / played,
        used / played,
        cpu / played,
        memory,
        connections,
    )


async def _written(database: Any, name: str, rows: int, counting: str) -> None:
    """Wait until the database has counted so many rows."""
    async with asyncio.timeout(PATIENCE):
        while database.ask(counting, name)[0][0] < rows:  # noqa: ASYNC110  # only asking tells
            await asyncio.sleep(SETTLE)
    await asyncio.sleep(SETTLE)


async def _play(chats: Sequence[Sequence[bytes]], port: int) -> None:
    """Play conversations side by side, and check every answer."""
    exchanges = await asyncio.gather(*(send_in_turn(port, chat, 0.0) for chat in chats))
    load = Load("users", "request", len(chats), len(chats[0]), REPLY)
    _, broken = sort_out(load, [exchange for chat in exchanges for exchange in chat])
    if broken:
        raise StartFailed(f"wrong answers: {broken[:3]}")


def tables(costs: Costs) -> list[list[str]]:
    """Return the rows of the table about what a turn leaves where."""
    lines = [["table", "rows a turn", "bytes a turn", "of its indexes"], ["---", "--:", "--:", "--:"]]
    for name in sorted(costs.bytes, key=lambda table: -costs.bytes[table]):
        numbers = (costs.rows.get(name, 0.0), costs.bytes[name], costs.indexes.get(name, 0.0))
        lines.append([f"`{name}`", f"{numbers[0]:.2f}", f"{numbers[1]:,.0f}", f"{numbers[2]:,.0f}"])
    return lines


def plan(costs: Costs, options: argparse.Namespace) -> list[list[str]]:
    """Return the rows of the table about what the users need."""
    daily = options.users * options.turns
    rate = daily * options.busiest / HOUR
    answers = rate * SECONDS
    servers = max(2, -(-rate * costs.server_cpu // FULL))
    rows = [
        ("turns on a day", f"{daily:,.0f}"),
        ("turns per second in the busiest hour", f"{rate:.1f}"),
        ("answers at once", f"{answers:.0f}"),
        ("LM Studios", f"{-(-answers // options.parallel):.0f}"),
        ("cores of servers", f"{rate * costs.server_cpu:.2f}"),
        ("servers, each with a core that is used to 60 %, two at least", f"{servers:.0f}"),
        ("memory of servers (MiB)", f"{servers * costs.memory:,.0f}"),
        ("connections to the database", f"{servers * costs.connections:.0f}"),
        ("cores of the database", f"{rate * costs.database_cpu:.2f}"),
        ("commits per second", f"{rate * costs.commits:.0f}"),
        ("log (WAL) per second (MiB)", f"{rate * costs.log / MIB:.2f}"),
        ("growth on a day (GiB)", f"{daily * costs.kept / GIB:.2f}"),
        (f"size after {options.days:g} days (GiB)", f"{daily * options.days * costs.kept / GIB:,.0f}"),
        ("of a user (MiB)", f"{options.turns * options.days * costs.kept / MIB:.1f}"),
    ]
    return [["what", "for so many"], ["---", "--:"], *([name, value] for name, value in rows)]


def text(costs: Costs, options: argparse.Namespace) -> str:
    """Return both tables as Markdown, with what they were made from."""

    def drawn(lines: Sequence[Sequence[str]]) -> str:
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    return (
        f"A turn: {costs.server_cpu * 1000:.1f} ms of CPU of a server, {costs.database_cpu * 1000:.2f} ms of the "
        f"database, {costs.commits:.1f} commits, {costs.log / 1024:.1f} KiB of log (WAL), "
        f"{costs.kept / 1024:.1f} KiB that stay.\n\n"
        f"{drawn(tables(costs))}\n\n{options.users:,} users, {options.turns:g} turns a day each, "
        f"{options.busiest:.0%} of them in the busiest hour, answers of {SECONDS:g} seconds:\n\n"
        f"{drawn(plan(costs, options))}\n"
    )


def main(given: Sequence[str]) -> int:
    """Measure and print; return 2 where PostgreSQL is missing or answers were wrong."""
    options = arguments(given)
    if postgresql() is None:
        sys.stderr.write("PostgreSQL is not installed.\n")
        return 2
    try:
        costs = asyncio.run(measured(quick=options.quick))
    except StartFailed as reason:
        sys.stderr.write(f"{reason}\n")
        return 2
    if options.json:
        sys.stdout.write(json.dumps({name: getattr(costs, name) for name in Costs.__slots__}, indent=1) + "\n")
    else:
        sys.stdout.write(text(costs, options))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
