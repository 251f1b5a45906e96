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
from coding_agents import AGENTS, Agent, installed_agents
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
    *("agent", "window", "calls", "elbowroom", "compactions", "of them by the agent", "prompts over the window"),
    *("read again", "summaries read", "written", "kept word for word", "waiting", "task"),
)


def row(name: str, window: int, run: Run, *, directly: bool) -> list[str]:
    """Return a row of the table."""
    is_done = not run.task.wrong_files() and run.outcome.code == 0 and not run.outcome.errors
    spent = run.spent
    figures = (run.compactions + run.own_compactions, run.own_compactions, run.over_the_window)
    costs = (spent.again, spent.summaries, spent.written, run.kept)
    waiting = " / ".join(f"{spent.seconds(speed):,.0f}" for speed in READING_SPEEDS)
    return [
        *(name, f"{window:,}", f"{len(run.task.steps)}", "without" if directly else "with"),
        *(f"{figure:,}" for figure in (*figures, *costs)),
        *(f"{waiting} s", "done" if is_done else "**not done**"),
    ]


async def measured(installed: Path, only: Collection[str]) -> list[list[str]]:
    """Return the rows of all agents that are there, or of `only` these."""
    rows = []
    for agent in AGENTS.values():
        if (agent.name == "Claude Code" and shutil.which("claude") is None) or (only and agent.name not in only):
            continue
        for is_long, window in product((False, True), WINDOWS):
            for directly in (False, True)[: 1 + (agent.name in CHATS_ONLY)]:
                rows.append(await measured_row(agent, installed, window, directly=directly, is_long=is_long))
                sys.stderr.write(f"{rows[-1]}\n")
    return rows


async def measured_row(agent: Agent, installed: Path, window: int, *, directly: bool, is_long: bool) -> list[str]:
    """Return the row of one run."""
    with TemporaryDirectory() as folder:
        run = await coding_run(agent, installed, Path(folder), window, directly=directly, is_long=is_long)
        return row(agent.name, window, run, directly=directly)


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
