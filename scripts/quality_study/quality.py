#!/usr/bin/env python3
"""Measures what compactions keep of conversations, by code alone and without any model: docs/quality.md.

--write     put the tables into the document
--windows   only these windows
--pruners   only these pruning agents
--every     only each so-manieth conversation
"""

import argparse
import asyncio
import logging
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Final, NamedTuple

from controls import cut_through_the_middle, last_messages
from conversations import Written, all_written
from grading import Grade, grade
from play import COUNTS, Looked, play, size_of, stage, tokens_of_tools
from pruners import AGENTS

WINDOWS: Final = (4096, 8192, 32_768)
LAST, CUT = "last messages only", "LM Studio's cut"


class Row(NamedTuple):
    """What a figure is about; `way` is a pruning agent or a control."""

    window: int
    way: str
    compactions: int
    kind: str
    language: str


Figures = dict[Row, Grade]


def measure(window: int, pruner: str, chosen: Sequence[Written]) -> Figures:
    """Return the grades of conversations in a window with a pruning agent, and of the controls beside the first."""
    logging.getLogger("elbowroom").addHandler(logging.NullHandler())
    return asyncio.run(_measured(window, pruner, chosen))


async def _measured(window: int, pruner: str, chosen: Sequence[Written]) -> Figures:
    figures: Figures = {}
    async with stage(window) as on:
        for written in chosen:
            counts = iter(COUNTS)
            async for looked in play(on, written, pruner):
                row = Row(window, pruner, next(counts), written.kind, written.language)
                for way, each in _graded(looked, window, pruner):
                    figures.setdefault(row._replace(way=way), Grade()).add(each)
    return figures


def _graded(looked: Looked, window: int, pruner: str) -> Iterator[tuple[str, Grade]]:
    whole = tokens_of_tools() + sum(map(size_of, looked.history))
    mine = grade(looked.prompt, looked.history, looked.known, looked.texts, looked.invented)
    mine.tokens, mine.whole, mine.reread = looked.size, whole, looked.reread
    yield pruner, mine
    if pruner == AGENTS[0]:
        controls = {
            LAST: last_messages(looked.history, looked.size),
            CUT: cut_through_the_middle(looked.history, window),
        }
        for way, prompt in controls.items():
            other = grade(prompt, looked.history, looked.known, (), ())
            other.whole, other.tokens = whole, tokens_of_tools() + sum(map(size_of, prompt))
            yield way, other


def all_figures(windows: Sequence[int], pruners: Sequence[str], chosen: Sequence[Written]) -> Figures:
    """Return the figures of all, measured in as many processes as there are processors, two at most."""
    jobs = [(window, pruner, chosen[half::2]) for window in sorted(windows, reverse=True) for pruner in pruners for half in (0, 1)]
    figures: Figures = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for found in pool.map(measure, *zip(*jobs, strict=True)):
            for row, each in found.items():
                figures.setdefault(row, Grade()).add(each)
    return figures


def summed(figures: Mapping[Row, Grade], **blank: str) -> Figures:
    """Return the figures with some columns summed up."""
    sums: Figures = {}
    for row, each in figures.items():
        sums.setdefault(row._replace(**blank), Grade()).add(each)
    return sums


COLUMNS: Final = (
    ("identifiers", "identifiers"), ("names and words", "words"), ("changed: newest", "newest"), ("constraints", "constraints"), ("to-dos", "todos"),
    ("files and state", "artifacts"), ("every identifier", "everything"),
)


def table(figures: Mapping[Row, Grade], first: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table with these columns of a row in front."""
    names = [*first, *(name for name, _ in COLUMNS), "only old value", "invented: agent", "by code", "unpaired", "size", "of all", "read again"]
    yield f"| {' | '.join(names)} |\n|{'---|' * len(first)}{'--:|' * (len(names) - len(first))}\n"
    order = {way: at for at, way in enumerate((*AGENTS, LAST, CUT))}
    for row in sorted(figures, key=lambda row: (row.window, row.compactions, row.kind, row.language, order[row.way])):
        each = figures[row]
        cells = [str(getattr(row, name)) for name in first]
        cells += [percent(each, key) for _, key in COLUMNS]
        cells += [str(each.stale), str(each.made_up), str(each.by_code), str(each.unpaired)]
        cells += [f"{each.tokens // each.prompts:,}", f"{100 * each.tokens / each.whole:.0f} %", f"{each.reread // each.prompts:,}"]
        yield f"| {' | '.join(cells)} |\n"


def percent(grade: Grade, key: str) -> str:
    """Return a share in the prompt, and where more can be read by reference, the share with that."""
    tally = grade.tallies[key]
    if not tally.total:
        return "–"
    inside, reachable = f"{tally.share:.0f}", f"{tally.reachable:.0f}"
    return inside if inside == reachable else f"{inside} ({reachable})"


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    arguments.add_argument("--windows", type=int, nargs="*", default=WINDOWS)
    arguments.add_argument("--pruners", nargs="*", default=AGENTS)
    arguments.add_argument("--every", type=int, default=1)
    given = arguments.parse_args()
    figures = all_figures(given.windows, given.pruners, all_written()[:: given.every])
    sys.stdout.write("".join(table(summed(figures, kind="", language=""), ("window", "compactions", "way"))))
    sys.stdout.write("\n" + "".join(table(summed(figures, language=""), ("window", "compactions", "kind", "way"))))
    sys.stdout.write("\n" + "".join(table(summed(figures, kind=""), ("window", "compactions", "language", "way"))))


if __name__ == "__main__":
    main()
