"""Searches a tool's output for a pattern block by block, so that a search can stop between two blocks."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from elbowroom.agents.tools.outputs.pages import reading
from elbowroom.context.outputs import Block, ToolOutputRef, ToolOutputs, utf8
from elbowroom.errors import RequestError

if TYPE_CHECKING:
    import re2

LONGEST_PATTERN: Final = 1000
LARGEST_PROGRAM: Final = 10_000
"""How many instructions a pattern may become: each of them may have to be tried at each byte."""
MEMORY: Final = 8 * 2**20
MEMORY_TO_TRY: Final = 2**20
"""With so much a pattern that is far too large is refused before much time goes into it."""

TOO_LARGE: Final = (
    "The pattern is too large. Use smaller numbers of repetitions, or * and + instead of numbers, and fewer classes "
    "such as \\pL."
)

_LAZY: Final = re.compile(r"[*+?}]\?")


class LinearPattern:
    """A regular expression whose search takes time that grows with the text alone. Raises RequestError if it is none.

    Text and places are in bytes of UTF-8, with lone surrogates as three bytes each. `^` and `$` are the ends of a line,
    and no match goes beyond a line. Other threads run while it searches.
    """

    def __init__(self, pattern: str, *, ignore_case: bool = False) -> None:
        import re2

        if not pattern:
            raise RequestError("The pattern is empty. Give text or a regular expression to search for.")
        if len(pattern) > LONGEST_PATTERN:
            raise RequestError(
                f"The pattern has {len(pattern)} characters, more than the {LONGEST_PATTERN} that are taken. "
                "Search for a part of it."
            )
        # Where a match begins does not depend on greed. A match that ends early is found early.
        flags = "(?m)" if _LAZY.search(pattern) else "(?mU)"
        try:
            content = (flags + pattern).encode("utf-8", "surrogatepass")
            is_too_large = re2.compile(content, _options(ignore_case, MEMORY_TO_TRY)).programsize > LARGEST_PROGRAM
            self._compiled = re2.compile(content, _options(ignore_case, MEMORY))
        except re2.error as error:
            raise RequestError(_refusal(error)) from error
        finally:
            re2.purge()  # it would keep the last 128 patterns with all the memory they took
        if is_too_large:
            raise RequestError(TOO_LARGE)

    def search(self, text: bytes, begin: int, end: int) -> tuple[int, int] | None:
        """Return where the first match in `text[begin:end]` begins and ends; anchors see the text around it."""
        match = self._compiled.search(text, begin, end)
        return match.span() if match else None


def _options(ignore_case: bool, memory: int) -> "re2.Options":
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_nl = True
    options.never_capture = True
    options.case_sensitive = not ignore_case
    options.max_mem = memory
    return options


def _refusal(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    words = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    if "too large" in words:
        return TOO_LARGE
    return (
        f"The pattern cannot be searched for: {words}. The syntax is RE2's: look-ahead, look-behind, back references "
        "and possessive or atomic groups do not exist in it. Search for a simpler pattern and look through what it "
        "finds; put a backslash before a special character that is meant as it stands."
    )


LONGEST_MATCH: Final = 65_536
"""Of a line that is longer than WINDOW, matches of up to so many bytes are sure to be found."""
WINDOW: Final = 2 * LONGEST_MATCH
EXCERPT_BEFORE: Final = 100
EXCERPT: Final = 400
WIDEST: Final = 10_000
SECONDS: Final = 20.0
SECONDS_TO_COUNT: Final = 3.0
"""For how long a search goes on once it has as many hits as are wanted."""
LOOK_BEHIND: Final = 4 * EXCERPT_BEFORE
"""How many bytes before the place of the search are kept, for the beginning of an excerpt."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A line in which the pattern matches, or the part of a long line around the beginning of a match.

    `column` is where the text begins, `at` where the match begins: a search can go on there.
    """

    line: int
    column: int
    text: str
    at: int
    is_part: bool


class Search:
    """Finds hits in blocks that are fed in their order; the first block begins at or before `place`.

    A line of at most `width` characters is one hit however often it matches; in a longer line the search goes on after
    the excerpt of each hit. The first `limit` hits are kept, all are counted, and `next` is the place of the first hit
    that is not kept. A carriage return at the end of a line is no part of it.
    """

    def __init__(self, pattern: LinearPattern, width: int, limit: int, place: tuple[int, int] = (1, 1)) -> None:
        self.hits: list[Hit] = []
        self.count = 0
        self.next: tuple[int, int] | None = None
        self.has_windows = False
        self._pattern = pattern
        self._width = min(width, WIDEST)
        self._limit = limit
        self._start: tuple[int, int] | None = place
        self._data = b""  # what is not searched yet, and what stands before it
        self._at = 0
        self._place, self._placed = place, 0  # of the byte at `_placed`, which follows `_at`
        self._skip = 0
        self._held = ""

    @property
    def place(self) -> tuple[int, int]:
        """Return the place up to which everything is searched."""
        return self._place

    def feed(self, block: Block) -> None:
        """Take a further block, and search the lines that it completes."""
        self._add(block)
        complete = self._data.rfind(b"\n", self._at)
        if complete >= 0:
            self._search(complete, complete + 1)
            self._advance(complete + 1)
        if len(self._data) - self._at > WINDOW:
            self.has_windows = True
            end = _boundary(self._data, len(self._data) - 1)
            before = _boundary(self._data, end - LONGEST_MATCH)
            self._search(end, before)
            self._advance(before)
        self._forget()

    def finish(self) -> None:
        """Search the rest, as the text ends here."""
        self._data += utf8(self._held)
        if self._at < len(self._data):
            self._search(len(self._data), len(self._data) + 1)
            self._advance(len(self._data))

    def _add(self, block: Block) -> None:
        text = self._held + block.text
        if self._start:
            self._begin(block)
        if self._skip:
            line_break = text.find("\n", 0, self._skip)
            skipped = text[: line_break + 1 or self._skip]
            self._data += utf8(skipped)
            self._skip = 0 if line_break >= 0 else self._skip - len(skipped)
            self._advance(len(self._data))
            text = text[len(skipped) :]
        self._held = "\r" if text.endswith("\r") else ""
        self._data += utf8(text.removesuffix("\r").replace("\r\n", "\n"))

    def _begin(self, block: Block) -> None:
        line, column = self._start or (1, 1)
        self._start = None
        self._place = block.line, block.column
        self._skip = max(0, column - block.column) if block.line == line else 0
        if block.line > 1 and block.column == 1:  # the text does not begin here
            self._data, self._at, self._placed = b"\n", 1, 1

    def _search(self, end: int, before: int) -> None:
        """Take the hits up to `end`; matches that begin at `before` or later are left for the next block."""
        while self._at <= end:
            match = self._pattern.search(self._data, self._at, end)
            if match is None or match[0] >= before:
                return
            if not self._only_counts(match[0]):
                self._take(_boundary(self._data, match[0]), match[1])

    def _only_counts(self, begin: int) -> bool:
        """Count the hit in a short line without an excerpt, once no more are kept: most of a long search is that."""
        line_begin = self._data.rfind(b"\n", 0, begin) + 1
        line_end = self._data.find(b"\n", begin)
        if not self.next or not line_begin or not 0 <= line_end - line_begin <= self._width:
            return False
        self.count += 1
        self._at = line_end + 1
        return True

    def _take(self, begin: int, end: int) -> None:
        """Keep or count the hit of a match, and go on after it."""
        self._advance(begin)
        line_begin = self._data.rfind(b"\n", 0, begin) + 1
        line_end = self._data.find(b"\n", begin)
        line_end = len(self._data) if line_end < 0 else line_end
        is_part = self._is_long(line_begin, begin, line_end)
        if is_part:
            hit, shown_to = self._excerpt(line_begin, begin, line_end)
        else:
            hit, shown_to = Hit(self._place[0], 1, _text(self._data[line_begin:line_end]), 1, is_part=False), line_end
        self.count += 1
        if len(self.hits) < self._limit:
            self.hits.append(hit)
        elif self.next is None:
            self.next = hit.line, hit.at
        behind = max(shown_to, _boundary(self._data, end))
        self._advance(line_end + 1 if behind >= line_end else behind)

    def _is_long(self, line_begin: int, begin: int, line_end: int) -> bool:
        """Tell whether a line is too long to be shown whole, or only a part of it is in memory."""
        if line_end - line_begin > 4 * self._width:
            return True
        in_front = len(_text(self._data[line_begin:begin]))
        whole = in_front == self._place[1] - 1
        return not whole or in_front + len(_text(self._data[begin:line_end])) > self._width

    def _excerpt(self, line_begin: int, begin: int, line_end: int) -> tuple[Hit, int]:
        most = min(EXCERPT, self._width)
        most_before = min(EXCERPT_BEFORE, most // 4)
        before = _text(self._data[_boundary(self._data, max(line_begin, begin - 4 * most_before)) : begin])
        before = before[-most_before:]
        stop = _boundary(self._data, min(line_end, begin + 4 * (most - most_before)))
        after = _text(self._data[begin:stop])[: most - most_before]
        line, column = self._place
        return Hit(line, column - len(before), before + after, column, is_part=True), begin + len(utf8(after))

    def _advance(self, to: int) -> None:
        """Go on to a later byte, and work out its line and column."""
        self._at = max(self._at, to)
        line, column = self._place
        line_breaks = self._data.count(b"\n", self._placed, self._at)
        begin = self._data.rfind(b"\n", self._placed, self._at) + 1 if line_breaks else self._placed
        column = (1 if line_breaks else column) + len(_text(self._data[begin : self._at]))
        self._place, self._placed = (line + line_breaks, column), self._at

    def _forget(self) -> None:
        """Drop the bytes that no excerpt can reach any more."""
        begin = _boundary(self._data, max(0, self._at - LOOK_BEHIND))
        self._data = self._data[begin:]
        self._at -= begin
        self._placed = self._at


async def run_search(
    search: Search,
    outputs: ToolOutputs,
    owner: str,
    ref: ToolOutputRef,
    place: tuple[int, int],
    clock: Callable[[], float],
) -> bool:
    """Search an output from a place on; tell whether the time was enough for all of it.

    Blocks are searched in a thread, one at a time; after a cancellation no further one is.
    """
    began = clock()
    line, column = place
    async with reading(outputs, owner, ref.id, (line, max(1, column - EXCERPT_BEFORE))) as blocks:
        async for block in blocks:
            await asyncio.to_thread(search.feed, block)
            if clock() - began > (SECONDS_TO_COUNT if search.next else SECONDS):
                return False
    await asyncio.to_thread(search.finish)
    return True


def _boundary(data: bytes, index: int) -> int:
    """Return the index at which the character of the byte at `index` begins."""
    while 0 < index < len(data) and data[index] & 0xC0 == 0x80:
        index -= 1
    return index


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
