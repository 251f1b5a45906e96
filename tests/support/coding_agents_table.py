"""Has every coding agent do its task in every window, with elbowroom and without it, and people chat for hours.

--write         put the tables into docs/agents.md
--only AGENT    run this agent alone; may stand several times
--chats         let people chat, and run no agent
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
from long_chats import TALKS, chat_run
from simulated_time import run_in_simulated_time

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "agents.md"
BEGIN, END = "<!-- {}: begin -->", "<!-- {}: end -->"
WINDOWS: Final = (8192, 16_384, 32_768)
READING_SPEEDS: Final = (300, 1500)  # tokens a second
CHATS_ONLY: Final = ("opencode", "pi")
"""The agents that speak chat completions, the only one of their APIs that the simulated LM Studio has."""
HEAD: Final = (
    *("agent", "calls", "window", "compactions", "over the window", "read besides", "written", "kept", "waiting"),
    "without elbowroom",
)
CHAT_HEAD: Final = ("window", "waiting", "without a bottom", "plans", "while the person read")


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


def chat_rows() -> Iterator[list[str]]:
    """Yield the rows of all chats."""
    for talk in TALKS:
        with TemporaryDirectory() as folder:
            run = run_in_simulated_time(chat_run(Path(folder), talk))
            bottomless = run_in_simulated_time(chat_run(Path(folder), talk, directly=True))
        waiting = f"{run.waiting:,.0f} s ({run.waiting / bottomless.waiting:.1f} times)"
        yield [talk.name, waiting, f"{bottomless.waiting:,.0f} s", f"{run.plans}", f"{run.early}"]


def told(mark: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, is_written: bool) -> None:
    """Print a table, or write it between its marks in the document."""
    text = "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))
    if not is_written:
        sys.stdout.write(text)
        return
    begin, end = BEGIN.format(mark), END.format(mark)
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(begin)
    DOCUMENT.write_text(f"{before}{begin}\n{text}{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    """Measure and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--only", action="append", default=[], metavar="AGENT")
    arguments.add_argument("--chats", action="store_true")
    given = arguments.parse_args()
    logging.disable()
    if not given.only:
        told("chats", CHAT_HEAD, chat_rows(), is_written=given.write)
    if not given.chats:
        installed = installed_agents(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
        told("measured", HEAD, asyncio.run(measured(installed, given.only)), is_written=given.write)


if __name__ == "__main__":
    main()
