"""Has every coding agent do its task in every window, with elbowroom and without it: the table in docs/agents.md.

--write     put the table into the document
"""

import argparse
import asyncio
import logging
import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import platformdirs
from coding_agents import AGENTS, Agent, installed_agents
from coding_runs import Run, coding_run

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
WINDOWS: Final = (8192, 16_384, 32_768)
READING_SPEED: Final = 1500  # tokens a second
CHATS_ONLY: Final = ("opencode", "pi")
"""The agents that speak chat completions, the only one of their APIs that the simulated LM Studio has."""
HEAD: Final = (
    *("agent", "window", "elbowroom", "rounds", "compactions", "of them by the agent"),
    *("prompts over the window", "tokens read again", "seconds lost", "task"),
)


def row(name: str, window: int, run: Run, *, directly: bool) -> list[str]:
    """Return a row of the table."""
    is_done = not run.task.wrong_files() and run.outcome.code == 0 and not run.outcome.errors
    again = run.read_again
    figures = (run.rounds, run.compactions + run.own_compactions, run.own_compactions, run.over_the_window, again)
    return [
        *(name, f"{window:,}", "without" if directly else "with", *(f"{figure:,}" for figure in figures)),
        *(f"{again / READING_SPEED:.0f}", "done" if is_done else "**not done**"),
    ]


async def measured(installed: Path) -> list[list[str]]:
    """Return the rows of all agents that are there."""
    rows = []
    for agent in AGENTS.values():
        if agent.name == "Claude Code" and shutil.which("claude") is None:
            continue
        for window in WINDOWS:
            for directly in (False, True)[: 1 + (agent.name in CHATS_ONLY)]:
                rows.append(await measured_row(agent, installed, window, directly=directly))
                sys.stderr.write(f"{rows[-1]}\n")
    return rows


async def measured_row(agent: Agent, installed: Path, window: int, *, directly: bool) -> list[str]:
    """Return the row of one run."""
    with TemporaryDirectory() as folder:
        run = await coding_run(agent, installed, Path(folder), window, directly=directly)
        return row(agent.name, window, run, directly=directly)


def main() -> None:
    """Measure and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    logging.disable()
    installed = installed_agents(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    rows = [list(HEAD), ["---"] * len(HEAD), *asyncio.run(measured(installed))]
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in rows)
    if given.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
