"""How much of a note a model gets at once, and what it costs to read all of it: the table in docs/tools.md.

scripts/measured_views              prints it
scripts/measured_views --write      puts it into the document
"""

import argparse
import asyncio
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from chatting import AGENT, stream_bytes
from request_checks import assert_fits
from scripted_pruner import text_of as content_of
from small_window import Body, small_window, turns_of
from vaults import changes_of

from elbowroom.agents.tools.vault import vault_tools
from elbowroom.demo import Script, ToolCall

REPOSITORY: Final = Path(__file__).parents[2]
DOCUMENT: Final = REPOSITORY / "docs" / "tools.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
WINDOWS: Final = (4096, 8192, 16384, 32768, 131072)
SIZES: Final = (2_000, 6_000, 12_000, 50_000)
ROW: Final = re.compile(r"(?m)^ *([0-9]+)  \S")
READ_ON: Final = re.compile(r"call again with offset=([0-9]+)")
MOST_CALLS: Final = 60
ANSWER: Final = "Read."


def note_of(size: int) -> str:
    """Return a note of about so many bytes, in rows of about a hundred."""
    rows = (
        f"On crossing {n} the captain of boat {n * 7919 % 10_007} noted a calm sea and a full deck, then tea.\n"
        for n in range(1, 9999)
    )
    text = ""
    for row in rows:
        if len(text) + len(row) > size:
            break
        text += row
    return text


@dataclass(slots=True)
class Reader:
    """A model that reads a note to its end by the offsets it is told; `shown` has the numbers of each page's rows."""

    shown: list[list[int]] = field(default_factory=list)
    calls: int = 0

    def says(self, body: Body) -> Script | str:
        """Read the next page, or answer at the end."""
        offset = 1
        if self.calls:
            page = content_of(body["messages"][-1])
            self.shown.append([int(number) for number in ROW.findall(page)])
            on = READ_ON.findall(page)
            if not on or self.calls >= MOST_CALLS:
                return ANSWER
            assert len(on) == 1, page
            offset = int(on[0])
        self.calls += 1
        return Script(ToolCall("vault_read", {"path": "Log.md", "offset": offset}))


@dataclass(frozen=True, slots=True)
class Reading:
    """What one note took in one window: rows on each page, calls, and the tokens of all prompts together."""

    window: int
    size: int
    rows: int
    pages: Sequence[Sequence[int]]
    prompt_tokens: int

    @property
    def first(self) -> int:
        """Return how many rows the first page has."""
        return len(self.pages[0])

    @property
    def read(self) -> set[int]:
        """Return the rows that stood on any page."""
        return {number for page in self.pages for number in page}


async def reading(folder: Path, window: int, size: int) -> Reading:
    """Let a model read a note."""
    note, reader = note_of(size), Reader()
    tools = vault_tools(["vault.read"], changes_of(folder, {"Log.md": note}), may_write=False)
    agent = f"{AGENT}max_turns = 100\n"
    async with small_window(folder, reader.says, window=window, agents=agent, toolbox=lambda target: tools) as (
        served,
        studio,
    ):
        asked = {"model": "writer", "messages": [{"role": "user", "content": "Read the log."}], "stream": True}
        await stream_bytes(served, asked)
        for chat in studio.chats:
            assert_fits(chat)
        spent = sum(chat.counted_tokens or 0 for chat in turns_of(studio))
    return Reading(window, size, note.count("\n"), reader.shown, spent)


async def measured(folder: Path) -> list[Reading]:
    """Return all figures."""
    return [await reading(folder / f"{window}-{size}", window, size) for window in WINDOWS for size in SIZES]


def table(readings: Sequence[Reading]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| window | note | rows | rows shown at once | calls to read all | prompt tokens of these |\n"
    yield "|--:|--:|--:|--:|--:|--:|\n"
    for each in readings:
        yield f"| {each.window:,} | {each.size:,} bytes | {each.rows} | {each.first} "
        yield f"| {len(each.pages)} | {each.prompt_tokens:,} |\n"


def main() -> None:
    """Measure and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    is_written = arguments.parse_args().write
    with tempfile.TemporaryDirectory() as folder:
        text = "".join(table(asyncio.run(measured(Path(folder)))))
    if is_written:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
