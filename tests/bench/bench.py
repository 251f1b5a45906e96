"""Measures what elbowroom costs, beside the upstream directly and a plain aiohttp relay as the control.

Loads: paced, flood, bunched_flood, first_token, next_turn, new_body, many_streams, stall; and start.
"""

import argparse
import asyncio
import json
import random
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import report
from figures import Row, rows_of
from load import LOADS, Load
from processes import Command, Cores, Program, StartFailed, pin
from rounds import Run, run
from servers import ELBOWROOM, NAMES, SCRIPTS_RUN, command_of, servers_running, upstream_running
from start_up import Start, starts

IDLE = 5.0
START = "start"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    names = [load.name for load in LOADS] + [START]
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="interleaved rounds per load (default 5, below 4 says little)"
    )
    parser.add_argument(
        "--only", action="append", choices=names, metavar="LOAD", help="this load only; repeatable"
    )
    parser.add_argument(
        "--servers", default=",".join(NAMES), help="which to compare (default direct,control,elbowroom)"
    )
    parser.add_argument(
        "--command",
        type=shlex.split,
        metavar="COMMAND",
        help="start this instead of elbowroom; {port} and {upstream} are filled in",
    )
    parser.add_argument("--quick", action="store_true", help="two small rounds, to see that everything works")
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if a target is missed or could not be judged"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds to a file")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the shuffled order")
    options = parser.parse_args(given)
    options.servers = options.servers.split(",")
    if unknown := set(options.servers) - set(NAMES):
        parser.error(f"--servers knows {', '.join(NAMES)}, not {', '.join(sorted(unknown))}")
    return options


async def measure_loads(
    options: argparse.Namespace, upstream: Program, cores: Cores, folder: Path, rng: random.Random
) -> dict[str, Run]:
    """Run the chosen loads, one after another, over all chosen servers."""
    chosen = [load for load in LOADS if not options.only or load.name in options.only]
    runs: dict[str, Run] = {}
    if not chosen:
        return runs
    command = options.command or ELBOWROOM
    with servers_running(options.servers, upstream, cores, folder, command) as servers:
        for load in chosen:
            say(f"{load.name} ...")
            size: Load = load.quick() if options.quick else load
            runs[load.name] = await run(size, servers, upstream, options.rounds, rng)
    return runs


async def measure_starts(
    options: argparse.Namespace, upstream: Program, cores: Cores, folder: Path, rng: random.Random
) -> list[Start]:
    """Start the chosen servers again and again; scripts/run too, unless a command stands in for elbowroom."""
    if options.only and START not in options.only:
        return []
    say("start ...")
    commands: dict[str, Command] = {}
    for name in options.servers:
        if name != "direct":
            commands[name] = command_of(name, upstream.port, folder, options.command or ELBOWROOM)
    if "elbowroom" in commands and not options.command:
        commands["scripts/run"] = command_of("elbowroom", upstream.port, folder, SCRIPTS_RUN)
    idle, count = (0.2, 1) if options.quick else (IDLE, 3)
    return await starts(commands, upstream, cores, folder, idle, count, rng)


def say(text: str) -> None:
    """Tell the person who waits what is going on."""
    sys.stderr.write(f"{text}\n")


async def measure(options: argparse.Namespace) -> list[Row]:
    """Measure, print the report, write the raw rounds; return the rows."""
    cores = Cores.of_this_machine()
    pin(cores.client)
    rng = random.Random(options.seed)
    where = {**report.environment(cores), "rounds": str(options.rounds), "seed": str(options.seed)}
    before = report.load_average()
    with tempfile.TemporaryDirectory(prefix="elbowroom-bench-") as name:
        folder = Path(name)
        with upstream_running(cores, folder) as upstream:
            starts = await measure_starts(options, upstream, cores, folder, rng)
            runs = await measure_loads(options, upstream, cores, folder, rng)
    where["load average"] = f"{before} before, {report.load_average()} after"
    rows = rows_of(runs, starts)
    sys.stdout.write(report.text(where, rows, runs, starts))
    if options.json:
        options.json.write_text(json.dumps(report.raw(where, rows, runs, starts), indent=1))
    return rows


def main(given: Sequence[str]) -> int:
    """Run the bench; return 1 if it is to check and a target was missed, 2 if a server did not start."""
    options = arguments(given)
    if options.quick:
        options.rounds = min(options.rounds, 2)
    try:
        rows = asyncio.run(measure(options))
    except StartFailed as reason:
        say(str(reason))
        return 2
    return int(options.check and any(row.verdict not in ("pass", "-") for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
