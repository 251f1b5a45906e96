#!/usr/bin/env python3
"""Measures tool history with and without pruning, over recorded conversations with real tool servers.

folder      the recorded conversations; those beside the repository are found by themselves
--write     put the tables into docs/tools-tiers.md
"""

import argparse
import json
import os
import re
import sys
from ast import literal_eval
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Final

from compacting import qwen

from elbowroom.context.budget import Budget
from elbowroom.context.outputs.output import ref_to
from elbowroom.context.outputs.stubs import ref_of
from elbowroom.context.outputs.tiers import TierLimits, pruned
from elbowroom.context.templates.repair import repair
from elbowroom.context.transcript import SYSTEM_ROLES, Message, calls_of, text_of
from elbowroom.settings.model import ToolOutputSettings

REPOSITORY: Final = Path(__file__).parents[2]
BESIDE: Final = REPOSITORY.parent / "shared" / "data"
RECORDED: Final = Path(os.environ.get("ELBOWROOM_TEST_DATA", BESIDE)) / "transcripts"
ABSENT: Final = "the recorded conversations are not part of the repository"
DOCUMENT: Final = REPOSITORY / "docs" / "tools-tiers.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
WINDOWS: Final = (8192, 16384)
MOST_TURNS: Final = 400
LEAST_VIEW: Final = 3
FRAME: Final = 8  # tokens that a chat template needs around a message
PRINTED: Final = re.compile(r"text=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"), annotations")


@cache
def tokens(text: str) -> int:
    """Return the tokens of a text, by the vocabulary of Qwen 2.5."""
    return qwen().count_text(text)


@dataclass(frozen=True, slots=True)
class Growth:
    """One conversation in one window: tokens of tool history, whole and pruned, and what was kept.

    `errors` are those that the pruned history held word for word on every step, of `all_errors` that had come.
    """

    name: str
    window: int
    turns: int
    mean_whole: float
    mean_pruned: float
    end_whole: int
    end_pruned: int
    errors: int
    all_errors: int

    @property
    def mean_share(self) -> float:
        """Return what is left by pruning, as a share of the mean over all turns."""
        return self.mean_pruned / self.mean_whole

    @property
    def end_share(self) -> float:
        """Return what is left by pruning at the end."""
        return self.end_pruned / self.end_whole


@dataclass(frozen=True, slots=True)
class Lasting:
    """Conversations one after another in one window: turns of the model before the first compaction by a model.

    `changes` is in how many of the turns with pruning the prompt's beginning was another than the turn before.
    """

    name: str
    window: int
    turns_whole: int
    turns_pruned: int
    changes: int


def recorded(folder: Path) -> dict[str, list[Message]]:
    """Return the conversations with tool servers by a short name."""
    return {
        f"conversation {path.stem.split('_')[1]}": repair(json.loads(path.read_text(encoding="utf-8"))["messages"])
        for path in sorted(folder.glob("livemcp_*.json"))
    }


def growth(name: str, messages: Sequence[Message], window: int) -> Growth:
    """Return how tool history grows over one whole conversation."""
    whole, shorter = [], []
    expected = 0
    lost: set[int] = set()
    views = Views(window, messages)
    steps = zip(views.steps(messages, pruning=False), views.steps(messages, pruning=True), strict=True)
    for (unpruned, _), (history, _) in steps:
        whole.append(tool_tokens(unpruned))
        shorter.append(tool_tokens(history))
        expected = sum(bool(own_words_of_error(message)) for message in unpruned)
        lost |= lost_errors(unpruned, history)
    sizes = (fmean(whole), fmean(shorter), whole[-1], shorter[-1])
    return Growth(name, window, len(whole), *sizes, expected - len(lost), expected)


def lost_errors(whole: Sequence[Message], shorter: Sequence[Message]) -> set[int]:
    """Return the places of errors whose own words do not stand in the shorter history as they were."""
    return {
        at
        for at, (before, after) in enumerate(zip(whole, shorter, strict=True))
        if before != after and own_words_of_error(before) not in text_of(after)
    }


def lasting(name: str, messages: Sequence[Message], window: int) -> Lasting:
    """Return how long a window lasts."""
    views = Views(window, messages)
    whole = sum(1 for _ in views.steps(messages, pruning=False, until_full=True))
    steps = list(islice(views.steps(messages, pruning=True, until_full=True), MOST_TURNS))
    return Lasting(name, window, whole, len(steps), sum(has_changed for _, has_changed in steps))


@dataclass(frozen=True)
class Views:
    """The turns of a model in a window, with results as they come in: whole where they fit, or as views."""

    window: int
    messages: Sequence[Message]

    def steps(
        self, messages: Sequence[Message], *, pruning: bool, until_full: bool = False
    ) -> Iterator[tuple[list[Message], bool]]:
        """Yield the history before each turn of the model, and whether its beginning was changed for it."""
        limits = self._limits
        history: list[Message] = []
        refs: dict[str, str] = {}
        for message in messages:
            if message.get("role") == "assistant":
                shorter = self._shorter(history, limits, refs) if pruning else None
                history = shorter or history
                if until_full and self._is_full(history):
                    return
                yield list(history), shorter is not None
            history.append(viewed(message, self._free(history) if pruning else self._room, refs))

    @property
    def _limits(self) -> TierLimits:
        return TierLimits.of(ToolOutputSettings(), self.window, self._fixed)

    @property
    def _fixed(self) -> int:
        pinned = [message for message in self.messages if message.get("role") in SYSTEM_ROLES]
        asked = next(message for message in self.messages if message.get("role") == "user")
        return Budget(self.window).occupied(prompt_tokens([*pinned, asked]))

    @property
    def _room(self) -> int:
        return Budget(self.window).trigger - self._fixed

    def _free(self, history: Sequence[Message]) -> int:
        """Return how many tokens one more result may take: what is free, or a part of what a compaction frees."""
        budget = Budget(self.window)
        return max(budget.trigger - budget.occupied(prompt_tokens(history)), self._room // LEAST_VIEW)

    def _is_full(self, history: Sequence[Message]) -> bool:
        budget = Budget(self.window)
        return budget.occupied(prompt_tokens(history)) >= budget.trigger

    def _shorter(self, history: list[Message], limits: TierLimits, refs: dict[str, str]) -> list[Message] | None:
        def ref_of_result(message: Message) -> str | None:
            return refs.get(text_of(message)) or ref_of(text_of(message))

        shorter = pruned(history, limits, {}, ref_of_result, tokens)
        if not self._is_full(shorter or history):
            return shorter
        return pruned(shorter or history, limits, {}, ref_of_result, tokens, must_shrink=True) or shorter


def viewed(message: Message, most: int, refs: dict[str, str]) -> Message:
    """Return a result as its beginning and end where it has more tokens; any other message is itself."""
    text = text_of(message)
    if message.get("role") != "tool":
        return message
    view = view_of(text, most)
    refs[view] = ref_to("", text).id
    return {**message, "content": view}


@cache
def view_of(text: str, most: int) -> str:
    """Return a text, or its beginning and end within so many tokens."""
    view, shown = text, len(text)
    while tokens(view) > most:
        shown = shown * 7 // 8
        note = f"[{len(text) - shown:,} characters are left out here; ref={ref_to('', text).id}]"
        view = f"{text[: shown // 2]}\n{note}\n{text[len(text) - shown // 2 :]}"
    return view


def tool_tokens(messages: Sequence[Message]) -> int:
    """Return the tokens of results and of calls with their arguments."""
    results = sum(tokens(text_of(message)) for message in messages if message.get("role") == "tool")
    return results + sum(tokens(json.dumps(call["function"])) for message in messages for call in calls_of(message))


def prompt_tokens(messages: Sequence[Message]) -> int:
    """Return the tokens of a prompt."""
    said = sum(tokens(text_of(message)) + FRAME for message in messages if message.get("role") != "tool")
    results = [message for message in messages if message.get("role") == "tool"]
    return said + FRAME * len(results) + tool_tokens(messages)


def own_words_of_error(message: Message) -> str:
    """Return what an error in these recordings says, nothing of any other message."""
    return own_words_in(text_of(message)) if message.get("role") == "tool" else ""


@cache
def own_words_in(text: str) -> str:
    """Return what an error says, read by the form that these recordings have, and by nothing of what is measured."""
    if text == "Tool call timed out.":
        return text
    printed = PRINTED.search(text)
    said = str(literal_eval(printed[1])) if printed else ""
    if not said.startswith("{"):
        return ""
    answer = json.loads(said)
    own = str(answer["content"][0]["text"]) if answer.get("content") else ""
    return own if answer.get("isError") or re.search(r'"(error"|status": "error|result": "error)', own) else ""


def chains(conversations: dict[str, list[Message]]) -> Iterator[tuple[str, list[Message]]]:
    """Yield a long conversation beginning with each: all of them in turn, again and again, each a turn of the user."""
    names = list(conversations)
    for start in range(len(names)):
        chained = list(conversations[names[start]])
        for at in range(start + 1, start + 4 * len(names)):
            following = conversations[names[at % len(names)]]
            chained += [message for message in following if message.get("role") not in SYSTEM_ROLES]
        yield f"{names[start]} and others", repair(chained)


def measured(folder: Path) -> tuple[list[Growth], list[Lasting]]:
    """Return all figures."""
    conversations = recorded(folder)
    grown = [growth(name, each, window) for window in WINDOWS for name, each in conversations.items()]
    lasted = [lasting(name, each, window) for window in WINDOWS for name, each in chains(conversations)]
    return grown, lasted


def total(grown: Sequence[Growth], window: int) -> Growth:
    """Return the figures of all conversations in a window as one: the means over all turns, the ends together."""
    rows = [each for each in grown if each.window == window]
    turns = sum(each.turns for each in rows)
    return Growth(
        "all",
        window,
        turns,
        sum(each.mean_whole * each.turns for each in rows) / turns,
        sum(each.mean_pruned * each.turns for each in rows) / turns,
        sum(each.end_whole for each in rows),
        sum(each.end_pruned for each in rows),
        sum(each.errors for each in rows),
        sum(each.all_errors for each in rows),
    )


def total_lasting(lasted: Sequence[Lasting], window: int) -> Lasting:
    """Return the turns of all conversations in a window together."""
    rows = [each for each in lasted if each.window == window]
    turns = sum(each.turns_whole for each in rows), sum(each.turns_pruned for each in rows)
    return Lasting("all", window, *turns, sum(each.changes for each in rows))


def tables(grown: Sequence[Growth], lasted: Sequence[Lasting]) -> Iterator[str]:
    """Yield the lines of both tables."""
    yield "| window | conversation | turns | tool history, mean: whole | pruned | left | at the end: whole "
    yield "| pruned | left | errors word for word |\n|--:|---|--:|--:|--:|--:|--:|--:|--:|--:|\n"
    for each in [*grown, *(total(grown, window) for window in WINDOWS)]:
        mean = f"{each.mean_whole:,.0f} | {each.mean_pruned:,.0f} | {each.mean_share:.0%}"
        end = f"{each.end_whole:,} | {each.end_pruned:,} | {each.end_share:.0%}"
        kept = f"{each.errors} of {each.all_errors}"
        yield f"| {each.window} | {each.name} | {each.turns} | {mean} | {end} | {kept} |\n"
    yield "\n| window | begins with | turns before a model has to compact: whole | pruned | times as many "
    yield "| turns that changed the prompt's beginning |\n|--:|---|--:|--:|--:|--:|\n"
    for row in [*lasted, *(total_lasting(lasted, window) for window in WINDOWS)]:
        more = f"{row.turns_whole} | {row.turns_pruned} | {row.turns_pruned / row.turns_whole:.1f}"
        yield f"| {row.window} | {row.name} | {more} | {row.changes} ({row.changes / row.turns_pruned:.0%}) |\n"


def main() -> None:
    """Measure and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("folder", type=Path, nargs="?", default=RECORDED)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    if not recorded(given.folder):
        sys.stdout.write(f"Nothing is measured: there is no livemcp_*.json in {given.folder}; {ABSENT}.\n")
        return
    text = "".join(tables(*measured(given.folder)))
    if given.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
