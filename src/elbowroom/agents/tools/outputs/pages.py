r"""Pages of a tool's output, with numbered lines, from which the output can be put together again byte for byte.

A page is a list of lines that end with "\n". One that begins with "[" is a note, every other one is a row: blanks, the
number of a line, ":" and a column where the row does not begin with the line, "| ", and characters of the output as
they are. Lines of the output end at "\n" alone, so that a row may hold any other character. The rows of one line follow
each other; after the last of them comes the line's "\n", unless a note says that the line goes on, or that the output
ends without a line break.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Final, Literal

from elbowroom.context.outputs import READ_TOOL, Block, ToolOutputRef, ToolOutputs, largest_fit, utf8

Rest = Literal["break", "end", "more", "cut"]
MOST_ROWS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """Characters of one line, the first of them at `column`. `rest` says what follows them.

    `break`: the line's end. `end`: the output's end without a line break. `more`: the next row goes on with the line.
    `cut`: the line goes on, but the next row belongs to the next line.
    """

    line: int
    column: int
    text: str
    rest: Rest

    @property
    def after(self) -> tuple[int, int]:
        """Return the line and column of the next character to read."""
        return (self.line, self.end) if self.rest in ("more", "end") else (self.line + 1, 1)

    @property
    def end(self) -> int:
        """Return the column after the last character."""
        return self.column + len(self.text)

    def shown(self, sign: str = "|") -> str:
        """Return the row as it stands in a page, with a note after it where the line is cut."""
        column = f":{self.column}" if self.column > 1 else ""
        note = f"[line {self.line} goes on at column={self.end}]\n" if self.rest == "cut" else ""
        return f"{self.line:>5}{column}{sign} {self.text}\n{note}"


@dataclass(frozen=True, slots=True)
class Span:
    """The lines to read, from a place on. With `whole_line` the first line is read beyond `width` characters."""

    line: int
    column: int
    lines: int
    width: int
    whole_line: bool


class RowCutter:
    """Makes rows of the blocks of an output. Feed it the blocks in their order, then `finish`."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._last = span.line + span.lines - 1
        self._place = span.line, span.column
        self._text = ""
        self._skips = False
        self._began = False

    @property
    def is_done(self) -> bool:
        """Tell whether all lines of the span are read."""
        return self._place[0] + self._skips > self._last

    @property
    def next_line(self) -> int | None:
        """Return the line to read next where the rest of this one is cut; None while this one is read on."""
        return self._place[0] + 1 if self._skips else None

    def feed(self, block: Block) -> Iterator[Row]:
        """Yield the rows that this block completes."""
        if not self._began or self._skips:
            self._began, self._skips = True, False
            self._place = block.line, block.column
        at = 0
        while at < len(block.text) and not self.is_done:
            line_break = block.text.find("\n", at)
            if self._skips:
                if line_break < 0:
                    return
                at = self._next(line_break)
                continue
            stop = len(block.text) if line_break < 0 else line_break
            taken = min(self._span.width - len(self._text), stop - at)
            self._text += block.text[at : at + taken]
            at += taken
            if at < stop:
                yield self._full_row()
            elif line_break >= 0:
                yield Row(*self._place, self._text, "break")
                at = self._next(line_break)

    def finish(self) -> Iterator[Row]:
        """Yield the last row of an output that ends without a line break."""
        if self._text and not self.is_done:
            yield Row(*self._place, self._text, "end")

    def _next(self, line_break: int) -> int:
        self._place, self._text, self._skips = (self._place[0] + 1, 1), "", False
        return line_break + 1

    def _full_row(self) -> Row:
        line, column = self._place
        self._skips = not (self._span.whole_line and line == self._span.line)
        row = Row(line, column, self._text, "cut" if self._skips else "more")
        self._place, self._text = (line, row.end), ""
        return row


async def read_rows(outputs: ToolOutputs, owner: str, ref: ToolOutputRef, span: Span, max_bytes: int) -> list[Row]:
    """Return the rows of a span, up to the first that goes beyond `max_bytes`. One block at a time is in memory."""
    rows: list[Row] = []
    cutter = RowCutter(span)
    size = 0
    place: tuple[int, int] | None = (span.line, span.column)
    while place:
        async with reading(outputs, owner, ref.id, place) as blocks:
            place = None
            async for block in blocks:
                for row in cutter.feed(block):
                    rows.append(row)
                    size += len(utf8(row.shown()))
                    if size > max_bytes or len(rows) >= MOST_ROWS:
                        return rows
                if cutter.is_done:
                    return rows
                if cutter.next_line:  # the rest of a long line need not be read
                    place = cutter.next_line, 1
                    break
    return [*rows, *cutter.finish()]


@asynccontextmanager
async def reading(
    outputs: ToolOutputs, owner: str, ref_id: str, place: tuple[int, int]
) -> AsyncIterator[AsyncIterator[Block]]:
    """Open an output at a place, and close it however the reading ends."""
    blocks = outputs.blocks(owner, ref_id, *place)
    try:
        yield blocks
    finally:
        if close := getattr(blocks, "aclose", None):
            await close()


def page(
    rows: Sequence[Row], ref: ToolOutputRef, span: Span, max_bytes: int, tokens: int, size_of: Callable[[str], int]
) -> str:
    """Return as many rows as fit, with a note how to read on; "" where not even one character fits."""
    text = shown_within(lambda count: _as_page(rows[:count], ref, span), len(rows), max_bytes, tokens, size_of)
    if text or not rows:
        return text
    first = rows[0]
    most = len(first.text) - 1
    return shown_within(lambda length: _as_page([_part(first, length)], ref, span), most, max_bytes, tokens, size_of)


def shown_within(
    compose: Callable[[int], str], most: int, max_bytes: int, tokens: int, size_of: Callable[[str], int]
) -> str:
    """Return `compose(number)` with the largest number up to `most` that keeps the limits, "" where none does.

    Where `most` is 0 that is the number; a text with nothing in it, where there is something, is no answer.
    """

    def share_at(number: int) -> float:
        text = compose(number)
        in_bytes = len(utf8(text)) / max_bytes
        return in_bytes if in_bytes > 1 else max(in_bytes, size_of(text) / max(tokens, 0.1))

    if most <= 0:
        return compose(0) if most == 0 and share_at(0) <= 1 else ""
    number = largest_fit(most, share_at)
    return compose(number) if number else ""


def _part(row: Row, length: int) -> Row:
    return replace(row, text=row.text[:length], rest="more")


def _as_page(rows: Sequence[Row], ref: ToolOutputRef, span: Span) -> str:
    return "".join(_parts_of_page(rows, ref, span))


def _parts_of_page(rows: Sequence[Row], ref: ToolOutputRef, span: Span) -> Iterator[str]:
    if not rows:
        yield _nothing_there(ref, span)
        return
    if rows[0].line > span.line:
        yield f"[line {span.line} ends before column {span.column}]\n"
    yield from (row.shown() for row in rows)
    first, last = rows[0], rows[-1]
    lines = (
        f"Lines {first.line}-{last.line} of {ref.lines}"
        if first.line < last.line
        else f"Line {last.line} of {ref.lines}"
    )
    line, column = last.after
    if last.rest == "end" and last.line >= ref.lines:
        yield f"[{lines}: the end, without a line break]"
    elif line > ref.lines:
        yield f"[{lines}: the end]"
    else:
        place = f"offset={line}" + (f", column={column}" if column > 1 else "")
        yield f'[{lines}. To read on: {READ_TOOL}(ref_id="{ref.id}", {place})]'


def _nothing_there(ref: ToolOutputRef, span: Span) -> str:
    if not ref.lines:
        return "[The output is empty.]"
    if span.line > ref.lines:
        return f"[There is no line {span.line}: the output has {ref.lines}.]"
    if span.line == ref.lines and span.column > 1:
        return f"[Line {span.line} ends before column {span.column}, and is the last one.]"
    return f"[Line {span.line} could not be read: what was kept is damaged. Call the tool itself again.]"
