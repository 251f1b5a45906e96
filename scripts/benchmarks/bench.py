"""Measures what elbowroom costs, beside the upstream directly and a plain aiohttp relay as the control.

Loads: paced, flood, frame_flood, first_token, next_turn, new_body, many_streams, stall, hold_new, hold_known; and
start, compaction, turns, aged, growth; and, where PostgreSQL is installed, scale. All of them take about a quarter of
an hour with five rounds; `--only` and `--rounds` make it shorter.
"""

import argparse
import asyncio
import json
import random
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import report
from aged import AgedRound, aged_rounds
from compaction import Compactions, compaction_rounds
from figures import Row
from growth import Growth, growths
from load import LOADS
from processes import StartFailed
from report import Measured
from rounds import Run, run
from scale import ScaleRound, postgresql, scale_rounds
from servers import FORGETFUL, NAMES, OTHER, Checkout, Rig, rig, servers_running
from start_up import Start, starts
from turn_cost import Turns, turn_rounds

IDLE = 5.0
START, COMPACTION, TURNS, YEAR, GROWTH = "start", "compaction", "turns", "aged", "growth"
SCALE = "scale"
TOO_SMALL = "; A QUICK RUN, too small and too cold to judge anything by"


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    names = [load.name for load in LOADS] + [START, COMPACTION, TURNS, YEAR, GROWTH, SCALE]
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "--rounds", type=int, default=5, help="interleaved rounds per load (default 5, below 4 says little)"
    )
    parser.add_argument("--only", action="append", choices=names, metavar="LOAD", help="this load only; repeatable")
    parser.add_argument(
        "--servers",
        help=f"which to compare (default {','.join([*NAMES, FORGETFUL])}; with --against {OTHER} for {FORGETFUL})",
    )
    parser.add_argument(
        "--against",
        type=Path,
        metavar="FOLDER",
        help="measure the elbowroom of another checkout in the same rounds, with its own .venv; the table then shows "
        f'it as "{OTHER}", and this one minus that one within the rounds as "difference"',
    )
    parser.add_argument(
        "--command",
        type=shlex.split,
        metavar="COMMAND",
        help="start this instead of elbowroom; {port} and {upstream} are filled in",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two small rounds without warming up, to see that everything works",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed or cannot be judged")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rounds to a file")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of the shuffled order")
    options = parser.parse_args(given)
    known = [*NAMES, FORGETFUL, *([OTHER] if options.against else [])]
    usual = [*NAMES, OTHER if options.against else FORGETFUL]
    options.servers = options.servers.split(",") if options.servers else usual
    if unknown := set(options.servers) - set(known):
        parser.error(f"--servers knows {', '.join(known)}, not {', '.join(sorted(unknown))}")
    if options.against and not Path(Checkout(options.against).python).exists():
        parser.error(f"{options.against} has no .venv with an interpreter; run its scripts/run once")
    return options


async def measure_starts(options: argparse.Namespace, rig: Rig, rng: random.Random) -> list[Start]:
    """Start the chosen servers again and again; and scripts/run, unless a command stands in for elbowroom."""
    if options.only and START not in options.only:
        return []
    say("start ...")
    idle, count = (0.2, 1) if options.quick else (IDLE, 5)
    done = await starts([name for name in options.servers if name not in ("direct", FORGETFUL)], rig, idle, count, rng)
    if "elbowroom" in options.servers and not options.command:
        done += await starts(["scripts/run"], rig, 0.0, count, rng)
    return done


async def measure_compactions(
    options: argparse.Namespace, rig: Rig, rng: random.Random
) -> dict[str, list[Compactions]]:
    """Compact a long history, with each checkout."""
    if options.only and COMPACTION not in options.only:
        return {}
    say(f"{COMPACTION} ...")
    return await compaction_rounds(rig.checkouts, options.rounds, 2 if options.quick else 10, rng)


async def measure_turns(options: argparse.Namespace, rig: Rig, rng: random.Random) -> list[list[Turns]]:
    """Go on with short and long chats that need nothing."""
    if options.only and TURNS not in options.only:
        return []
    say(f"{TURNS} ...")
    with servers_running(options.servers, rig) as servers:
        if not options.quick:
            await turn_rounds(servers, rig.upstream, 1, 1, rng)
        return await turn_rounds(servers, rig.upstream, options.rounds, 1 if options.quick else 6, rng)


async def measure_aged(options: argparse.Namespace, rig: Rig, rng: random.Random) -> list[AgedRound]:
    """Ask servers whose store is a year old, and others whose store is empty."""
    if options.only and YEAR not in options.only:
        return []
    say(f"{YEAR}; the store is made first ...")
    return await aged_rounds(options.servers, rig, options.rounds, rng, quick=options.quick)


async def measure_growth(options: argparse.Namespace, rig: Rig, rng: random.Random) -> list[Growth]:
    """See how memory grows with requests."""
    if options.only and GROWTH not in options.only:
        return []
    say(f"{GROWTH} ...")
    return await growths(options.servers, rig, rng, quick=options.quick)


async def measure_scale(options: argparse.Namespace, rig: Rig, rng: random.Random) -> list[ScaleRound]:
    """Let several servers share a PostgreSQL database."""
    if (options.only and SCALE not in options.only) or "elbowroom" not in options.servers or options.command:
        return []
    if postgresql() is None:
        say(f"{SCALE} is left out: PostgreSQL is not installed")
        return []
    say(f"{SCALE} ...")
    return await scale_rounds(rig, options.rounds, rng, quick=options.quick)


async def measure_loads(options: argparse.Namespace, rig: Rig, rng: random.Random) -> dict[str, Run]:
    """Run the chosen loads, one after another, over all chosen servers."""
    runs: dict[str, Run] = {}
    chosen = [load for load in LOADS if not options.only or load.name in options.only]
    with servers_running(options.servers if chosen else [], rig) as servers:
        for load in chosen:
            say(f"{load.name} ...")
            size, warm_up = (load.quick(), None) if options.quick else (load, load.quick())
            runs[load.name] = await run(size, warm_up, servers, rig.upstream, options.rounds, rng)
    return runs


def say(text: str) -> None:
    """Tell the person who waits what is going on."""
    sys.stderr.write(f"{text}\n")


async def measure(options: argparse.Namespace) -> list[Row]:
    """Measure, print the report, write the raw rounds; return the rows."""
    rng = random.Random(options.seed)
    before = report.load_average()
    with rig(options.command, options.against) as ready:
        started = await measure_starts(options, ready, rng)
        runs = await measure_loads(options, ready, rng)
        turns = await measure_turns(options, ready, rng)
        aged = await measure_aged(options, ready, rng)
        grown = await measure_growth(options, ready, rng)
        compacted = await measure_compactions(options, ready, rng)
        scaled = await measure_scale(options, ready, rng)
        measured = Measured(runs, started, turns, aged, grown, compacted, scaled)
        where = report.environment(ready.cores)
    where |= {
        "rounds": f"{options.rounds}, shuffled with seed {options.seed}{TOO_SMALL if options.quick else ''}",
        "load average": report.load_averages(before, report.load_average()),
    }
    if options.against:
        where[OTHER] = str(options.against.resolve())
    rows = measured.rows()
    sys.stdout.write(report.text(where, rows, measured))
    if options.json:
        options.json.write_text(json.dumps(report.raw(where, rows, measured), indent=1))
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
    return int(options.check and any(row.is_missed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
