"""What the model is told of a search: the lines that match, with lines around them, and how to go on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.agents.output_reading import Row, Span, read_rows, shown_within
from elbowroom.agents.output_search import LONGEST_MATCH, Hit, Search
from elbowroom.context.tool_output import ToolOutputRef, ToolOutputs
from elbowroom.context.tool_view import READ_TOOL

CONTEXT_BYTES: Final = 51_200
"""How much of the lines around hits is read, for each run of lines."""


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of a search that began at `place`; `around` has `lines` lines before and behind each hit."""

    ref: ToolOutputRef
    place: tuple[int, int]
    search: Search
    lines: int
    around: dict[int, Row]
    is_complete: bool


async def read_context(
    hits: Sequence[Hit], outputs: ToolOutputs, owner: str, ref: ToolOutputRef, lines: int, width: int
) -> dict[int, Row]:
    """Return the lines that stand at most so many lines before and behind hits, cut at `width`."""
    rows: dict[int, Row] = {}
    if not lines:
        return rows
    for first, last in _ranges([hit.line for hit in hits], lines, ref.lines):
        span = Span(first, 1, last - first + 1, width, whole_line=False)
        rows.update((row.line, row) for row in await read_rows(outputs, owner, ref, span, CONTEXT_BYTES))
    return rows


def _ranges(numbers: Sequence[int], lines: int, last: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of lines around numbers that go up; those that touch are one."""
    begin = end = 0
    for number in numbers:
        if end and number - lines > end + 1:
            yield begin, end
            begin = 0
        begin = begin or max(1, number - lines)
        end = min(last, number + lines)
    if end:
        yield begin, end


def grep_page(found: Found, max_bytes: int, tokens: int, size_of: Callable[[str], int]) -> str:
    """Return as many hits as fit, with a note how to go on.

    Of the first one at least a beginning is shown, without lines around it; "" where not even that fits.
    """
    hits = found.search.hits
    text = shown_within(lambda count: _text_of(found, hits[:count]), len(hits), max_bytes, tokens, size_of)
    if text or not hits:
        return text
    alone, first = replace(found, lines=0), hits[0]

    def beginning(length: int) -> str:
        cut = length < len(first.text)
        return _text_of(alone, [replace(first, text=first.text[:length], is_part=first.is_part or cut)])

    return shown_within(beginning, len(first.text), max_bytes, tokens, size_of) if first.text else ""


def _text_of(found: Found, hits: Sequence[Hit]) -> str:
    return "".join(_parts(found, hits))


def _parts(found: Found, hits: Sequence[Hit]) -> Iterator[str]:
    own = {hit.line for hit in hits}
    shown_to = 0
    for index, hit in enumerate(hits):
        before = _near(found, range(hit.line - 1, max(shown_to, hit.line - 1 - found.lines), -1), own)
        if shown_to and found.lines and hit.line - len(before) > shown_to + 1:
            yield "--\n"
        yield from (row.shown("-") for row in reversed(before))
        yield Row(hit.line, hit.column, hit.text, "more").shown()
        shown_to = hit.line
        if index + 1 == len(hits) or hits[index + 1].line > hit.line:
            behind = _near(found, range(hit.line + 1, hit.line + 1 + found.lines), own)
            yield from (row.shown("-") for row in behind)
            shown_to += len(behind)
    yield from _notes(found, hits)


def _near(found: Found, numbers: range, own: set[int]) -> list[Row]:
    """Return the rows of these lines, up to the first that is a hit's own or is not there."""
    rows: list[Row] = []
    for number in numbers:
        if number in own or number not in found.around:
            break
        rows.append(found.around[number])
    return rows


def _notes(found: Found, hits: Sequence[Hit]) -> Iterator[str]:
    search, ref = found.search, found.ref
    if part := next((hit for hit in hits if hit.is_part), None):
        yield (
            "[Of a long line only the part around a match is shown. To read on in one: "
            f'{READ_TOOL}(ref_id="{ref.id}", offset={part.line}, column={part.column})]\n'
        )
    if search.has_windows:
        yield f"[In the longest lines, matches of more than {LONGEST_MATCH} bytes may not be found.]\n"
    yield f"[{_outcome(found, hits)}]"


def _outcome(found: Found, hits: Sequence[Hit]) -> str:
    search, ref = found.search, found.ref
    places = f"{search.count} {'match' if search.count == 1 else 'matches'}"
    since = f" from line {found.place[0]} on" if found.place != (1, 1) else ""
    if not found.is_complete:
        places += f" up to line {search.place[0]} of {ref.lines}, where the time for a search was up"
    on = _goes_on(found, len(hits))
    if on is None:
        return f"{places}{since}; the output has {ref.lines} {'line' if ref.lines == 1 else 'lines'}"
    line, column = on
    place = f"offset_line={line}" + (f", column={column}" if column > 1 else "")
    return f"{places}{since}; {len(hits)} shown. To go on: the same call with {place}"


def _goes_on(found: Found, shown: int) -> tuple[int, int] | None:
    """Return the place of the first hit that is not shown, or where the search has to be gone on with."""
    search = found.search
    if shown < len(search.hits):
        hit = search.hits[shown]
        return hit.line, hit.at if hit.is_part else 1
    if search.next:
        return search.next
    return None if found.is_complete else search.place
