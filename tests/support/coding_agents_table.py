"""Has every coding agent do its task in every window, with elbowroom and without it: the table in docs/agents.md.

--write         put the table into the document
--only AGENT    run this agent alone; may stand several times
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import shutil
import sys
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import platformdirs
from coding_agents import AGENTS, installed_agents
from coding_runs import Run, coding_run

if TYPE_CHECKING:
    from collections.abc import Collection

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
WINDOWS: Final = (8192, 16_384, 32_768)
READING_SPEEDS: Final = (300, 1500)  # tokens a second
CHATS_ONLY: Final = ("opencode", "pi")
"""The agents that speak chat completions, the only one of their APIs that the simulated LM Studio has."""
HEAD: Final = (
    *("agent", "calls", "window", "compactions", "over the window", "read besides", "written", "kept", "waiting"),
    "without elbowroom",
)


def is_done(run: Run) -> bool:
    """Tell whether a task was done, and the agent has ended well."""
    return not run.task.wrong_files() and run.outcome.code == 0 and not run.outcome.errors


def waiting(run: Run) -> str:
    """Return how long all waited for compactions, at each of the speeds; that a task was not done goes before that."""
    seconds = " / ".join(f"{run.spent.seconds(speed):,.0f}" for speed in READING_SPEEDS)
    return f"{seconds} s" if is_done(run) else "**not done**"


def row(name: str, window: int, run: Run, alone: Run | None) -> list[str]:
    """Return a row of the table, of a run with elbowroom and one without it."""
    own, over, spent = run.own_compactions, run.over_the_window, run.spent
    compactions = f"{run.compactions + own}" + (f" ({own} its own)" if own else "")
    figures = (over, spent.again + spent.summaries, spent.written, run.kept)
    without = "" if alone is None else waiting(alone)
    if alone is not None and alone.over_the_window and is_done(alone):
        without += f", {alone.over_the_window} over the window"
    costs = (f"{figure:,}" for figure in figures)
    return [name, f"{len(run.task.steps)}", f"{window:,}", compactions, *costs, waiting(run), without]


async def measured(installed: Path, only: Collection[str]) -> list[list[str]]:
    """Return the rows of all agents that are there, or of `only` these."""
    rows = []
    for agent in AGENTS.values():
        if (agent.name == "Claude Code" and shutil.which("claude") is None) or (only and agent.name not in only):
            continue
        for is_long, window in product((False, True), WINDOWS):
            with TemporaryDirectory() as folder:
                managed = await coding_run(agent, installed, Path(folder) / "with", window, is_long=is_long)
                alone = None
                if agent.name in CHATS_ONLY:
                    place = Path(folder) / "without"
                    alone = await coding_run(agent, installed, place, window, directly=True, is_long=is_long)
                rows.append(row(agent.name, window, managed, alone))
            sys.stderr.write(f"{rows[-1]}\n")
    return rows


def main() -> None:
    """Measure and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--only", action="append", default=[], metavar="AGENT")
    given = arguments.parse_args()
    logging.disable()
    installed = installed_agents(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    rows = [list(HEAD), ["---"] * len(HEAD), *asyncio.run(measured(installed, given.only))]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    if given.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
