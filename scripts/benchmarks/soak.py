"""Leaves elbowroom under a mixed load for a while: memory, descriptors, tasks, lag of writing, lost words.

Two servers run side by side, each with a simulated LM Studio that fails now and then: one is never killed, so that its
memory tells something, and the other is killed again and again and has to have every word that its clients received.
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import report
import soak_report
from processes import Cores, StartFailed
from servers import HOME
from soak_picture import picture
from soak_server import MAY_TAKE, Soaked

MINUTES = 10.0
RATE = 2.0
KILL_ROUNDS = 8
CHATS = 20


def arguments(given: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"how long (default {MINUTES:g})")
    parser.add_argument("--hours", type=float, help="how long, in hours")
    parser.add_argument(
        "--rate",
        type=float,
        default=RATE,
        help=f"visits a second, of both servers together (default {RATE:g}, about half a core)",
    )
    parser.add_argument("--kill-every", type=float, default=45.0, metavar="SECONDS", help="on average (default 45)")
    parser.add_argument(
        "--kill-rounds",
        type=int,
        default=KILL_ROUNDS,
        metavar="N",
        help=f"kills of twenty chats after that, half on new stores and half beside spinners (default {KILL_ROUNDS})",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write the picture here (SVG)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was measured to a file")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32), help="of what people do, and of faults")
    options = parser.parse_args(given)
    options.seconds = options.hours * 3600 if options.hours else options.minutes * 60
    return options


async def soak(options: argparse.Namespace, folder: Path) -> tuple[Soaked, Soaked]:
    """Run both servers at the same time."""
    steady, killed = (
        Soaked(label, folder / label, random.Random(f"{options.seed} {label}"), options.rate / 2)
        for label in ("steady", "killed")
    )
    await asyncio.gather(steady.run(options.seconds, None), killed.run(options.seconds, options.kill_every))
    return steady, killed


async def kill(options: argparse.Namespace, folder: Path) -> dict[str, list[Any]]:
    """Kill servers again and again under each of four conditions; return the rounds of each."""
    sys.path.append(str(HOME / "tests" / "support"))
    rounds = importlib.import_module("kill_rounds")
    found = {}
    for is_fresh in (True, False):
        for is_busy in (True, False):
            name = f"{'new stores' if is_fresh else 'one store'}, {'beside spinners' if is_busy else 'alone'}"
            place = folder / name
            place.mkdir()
            with rounds.busy(os.cpu_count() or 1) if is_busy else contextlib.nullcontext():
                found[name] = await rounds.kill_rounds(
                    place,
                    options.kill_rounds // 4,
                    chats=CHATS,
                    may_take=MAY_TAKE,
                    seed=options.seed,
                    is_fresh=is_fresh,
                )
    return found


def main(given: Sequence[str]) -> int:
    """Run the soak; return 1 if it is to check and a target was missed, 2 if a server did not start."""
    options = arguments(given)
    before = report.load_average()
    sys.stderr.write(f"This takes {options.seconds / 60:g} minutes ...\n")
    with tempfile.TemporaryDirectory(prefix="elbowroom-soak-") as name:
        try:
            steady, killed = asyncio.run(soak(options, Path(name)))
            rounds = asyncio.run(kill(options, Path(name)))
        except StartFailed as reason:
            sys.stderr.write(f"{reason}\n")
            return 2
    where = report.environment(Cores(None, None)) | {
        "length": f"{options.seconds / 60:g} minutes, {options.rate:g} visits a second, seed {options.seed}",
        "load average": report.load_averages(before, report.load_average()),
    }
    rows = [*soak_report.rows(steady, killed), *soak_report.kills(rounds)]
    sys.stdout.write(soak_report.text(where, rows, steady, killed))
    if options.picture:
        options.picture.write_text(picture(steady.found, killed.found), encoding="utf-8")
    if options.json:
        options.json.write_text(json.dumps(soak_report.raw(where, rows, steady, killed), indent=1), encoding="utf-8")
    return int(options.check and any(row.is_missed for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
