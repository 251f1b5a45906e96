#!/usr/bin/env python3
"""Measures what compactions keep of conversations, by code alone and without any model: README.md beside this.

--write       put the tables into the document
--only        only these parts: own, informal, recorded, short
--windows     only these windows
--counts      looks after so many compactions
--pruners     only these pruning agents
--languages   only these languages
--every       only one in so many conversations

--yardsticks  other people's instead of ours: canaries, benchmark, or both
--seeds       the seeds of the canaries' sessions
--agents      the pruning agents for them: garbage, empty, faithful, ...
--locomo      a file with LoCoMo's chats, which are played as well
"""

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Final

import yardsticks
from controls import last_messages, without_the_middle
from informal import Informal, all_informal
from play import COUNTS, Looked, play, stage
from pruners import AGENTS
from recordings import Recorded, all_recorded
from sizes import size_of, tokens_of_tools
from tables import CUT, LAST, PLAINS, Figures, Row, by, by_window, informal, kept, recorded, short, write

from elbowroom.quality.conversations import Written, all_written
from elbowroom.quality.grading import Grade, grade

WINDOWS: Final = (4096, 8192, 32_768)
LARGE, PART_OF_LARGE = 32_768, 3
"""In so large a window one conversation in so many is played: each takes as long as three in a smaller one."""
INFORMAL_WINDOW: Final = 8192
PARTS: Final = ("own", "informal", "recorded", "short")
SHORT_WINDOW: Final = 4096
SHORT: Final = (Written("plan", "German", 1), Written("code", "English", 1), Written("research", "Japanese", 1))
SHORT_COUNTS: Final = COUNTS[:2]
"""The short form, which a test runs: few conversations, one window, no more than three compactions."""
Job = tuple[int, str, Sequence[Written | Informal | Recorded], Sequence[int]]


def short_jobs() -> list[Job]:
    """Return the measurements of the short form."""
    return [(SHORT_WINDOW, pruner, SHORT, SHORT_COUNTS) for pruner in AGENTS]


def parts_of(chosen: Sequence[Written], window: int) -> list[Sequence[Written]]:
    """Return the conversations that are played in a window, in two parts."""
    played = chosen[::PART_OF_LARGE] if window >= LARGE else chosen
    return [played[::2], played[1::2]]


def measure(job: Job) -> Figures:
    """Do one measurement in a process of its own."""
    logging.getLogger("elbowroom").addHandler(logging.NullHandler())
    logging.getLogger("elbowroom").propagate = False
    return asyncio.run(measured(job))


async def measured(job: Job) -> Figures:
    """Return the grades of conversations in a window with a pruning agent, and of the controls beside the first one."""
    window, pruner, chosen, counts = job
    figures: Figures = {}
    async with stage(window) as on:
        for conversation in chosen:
            wanted = iter(counts)
            async for looked in play(on, conversation, pruner, counts):
                row = Row(window, pruner, next(wanted), conversation.kind, conversation.language)
                for way, each in graded(looked, window, pruner):
                    figures.setdefault(row._replace(way=way), Grade()).add(each)
    return figures


def graded(looked: Looked, window: int, pruner: str) -> Iterator[tuple[str, Grade]]:
    """Yield the grade of what elbowroom sent, and with the first pruning agent those of the controls."""
    whole = tokens_of_tools() + sum(map(size_of, looked.history))
    mine = grade(looked.prompt, looked.history, looked.known, looked.texts, looked.invented)
    mine.tokens, mine.whole, mine.reread = looked.size, whole, looked.reread
    yield pruner, mine
    without = {PLAINS[pruner]: looked.summarised}
    if pruner == AGENTS[0]:
        most = looked.size - tokens_of_tools()
        without[LAST] = last_messages(looked.history, most)
        without[CUT] = without_the_middle(looked.history, most)
    for way, prompt in without.items():
        other = grade(prompt, looked.history, looked.known, (), looked.invented_without)
        other.whole, other.tokens = whole, tokens_of_tools() + sum(map(size_of, prompt))
        yield way, other


def all_measured(jobs: Sequence[Job]) -> Figures:
    """Return the figures of all measurements, which two processes share."""
    figures: Figures = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for found in pool.map(measure, jobs):
            for row, each in found.items():
                figures.setdefault(row, Grade()).add(each)
    return figures


def main() -> None:
    """Measure and print, or write into the document."""
    given = asked()
    if given.yardsticks is not None or given.locomo:
        parts = given.yardsticks or (() if given.yardsticks is None else yardsticks.PARTS)
        done(yardsticks.tables(parts, given.agents, given.seeds, given.locomo), write_them=given.write)
        return
    ways = [(window, pruner) for window in sorted(given.windows, reverse=True) for pruner in given.pruners]
    sections: dict[str, str] = {}
    if "own" in given.only:
        chosen = [each for each in all_written() if not given.languages or each.language in given.languages]
        jobs = [(*way, part, given.counts) for way in ways for part in parts_of(chosen[:: given.every], way[0])]
        figures = all_measured(jobs)
        if 8192 in given.windows and 10 in given.counts:
            sections["kept"] = "".join(kept(figures))
        sections["windows"] = "".join(by_window(figures))
        sections["kinds"] = "".join(by("kind", figures))
        sections["languages"] = "".join(by("language", figures))
    if "informal" in given.only:
        other = all_informal(given.languages)[:: given.every]
        informal_jobs: list[Job] = [
            (window, pruner, part, given.counts[-1:])
            for window, pruner in ways
            if window == INFORMAL_WINDOW or given.windows != WINDOWS
            for part in (other[::2], other[1::2])
        ]
        sections["informal"] = "".join(informal(all_measured(informal_jobs)))
    if "recorded" in given.only and (real := all_recorded()[:: given.every]):
        figures = all_measured([(*way, real[::2], given.counts) for way in ways])
        sections["recorded"] = "".join(recorded(figures))
    if "short" in given.only:
        sections["short"] = "".join(short(all_measured(short_jobs())))
    done(sections, write_them=given.write)


def asked() -> argparse.Namespace:
    """Return what the command line asks for."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    arguments.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    arguments.add_argument("--counts", type=int, nargs="+", default=COUNTS)
    arguments.add_argument("--pruners", nargs="+", choices=AGENTS, default=AGENTS)
    arguments.add_argument("--languages", nargs="+", default=())
    arguments.add_argument("--every", type=int, default=1)
    arguments.add_argument("--yardsticks", nargs="*", choices=yardsticks.PARTS)
    arguments.add_argument("--seeds", type=int, nargs="+", default=yardsticks.SEEDS)
    arguments.add_argument("--agents", nargs="+", default=yardsticks.AGENTS)
    arguments.add_argument("--locomo", type=Path)
    return arguments.parse_args()


def done(sections: Mapping[str, str], *, write_them: bool) -> None:
    """Write the tables into the document, or print them."""
    if write_them:
        write(sections)
    else:
        sys.stdout.write("\n".join(sections.values()))


if __name__ == "__main__":
    main()
