"""The view that a model gets of a tool's output: all of a small one, else parts of it and how to read on.

What tells of a failure is shown first, wherever it stands, then beginning and end.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from elbowroom.context.outputs.failures import Part
from elbowroom.context.outputs.output import ToolOutputRef, largest_fit, utf8

TAIL_SHARE: Final = 3  # one part in so many is the end: commands name their error last
FAILED_SHARE: Final = 2  # what failed takes at most one part in so many of a view
LEAST_CUT: Final = 80  # a line cut to less than this would be little more than its mark
CHARACTERS_PER_TOKEN: Final = 8  # more than text has, white space aside, so that a view has no more

READ_TOOL: Final = "tool_output_cache"
SEARCH_TOOL: Final = "tool_output_cache_grep"
NOTE: Final = re.compile(
    r"^\[(?:Lines (?P<first>[0-9]{1,12})-(?P<last>[0-9]{1,12}) of (?P<total>[0-9]{1,12}) are left out here; "
    r"the whole output has|Long lines are cut where marked; the whole output has (?P<lines>[0-9]{1,12}) lines and) "
    r"(?P<bytes>[0-9]{1,15}) bytes\. To read on: "
    + READ_TOOL
    + r'\(ref_id="(?P<ref>[a-z0-9]{12})", offset=[0-9]+(?:, column=[0-9]+)?\)'
    r"\. To search: " + SEARCH_TOOL + r'\(ref_id="(?P=ref)", pattern="…"\)\]$',
    re.MULTILINE,
)
GAP: Final = re.compile(
    r"^\[Lines (?P<first>[0-9]{1,12})-(?P<last>[0-9]{1,12}) are left out here, too\.\]$", re.MULTILINE
)


Telling = Callable[[], Sequence[Part]]
"""Finds the parts of an output that have to be seen, those between beginning and end too."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of an output a model sees: characters of one line, bytes of UTF-8 in all, tokens in all.

    A line that is cut is not shorter than its mark, and a view not smaller than its note: at most 250 bytes.
    """

    max_line_length: int
    max_bytes: int
    max_tokens: int


@dataclass(frozen=True, slots=True)
class View:
    """The text that a model sees. `is_whole` says that it is the tool's own text, with no reference in it."""

    text: str
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Line:
    """One line without its break: `text[start:end]`, the line `number` of the text."""

    number: int
    start: int
    end: int


def view_of(
    text: str, ref: ToolOutputRef, limits: Limits, size_of: Callable[[str], int], telling: Telling = tuple
) -> View:
    """Return the view of a text: the very text where it keeps all limits.

    Otherwise whole lines of its beginning and its end, and between them, within half of the room, the parts that
    `telling` finds, which is asked only then. The first note says what is left out and how to read it, further ones
    only what. Lines that are too long are changed, each by one mark. `size_of` counts tokens, and is given little more
    than the view.
    """
    if _fits(text, ref, limits, size_of):
        return View(text, is_whole=True)
    room = min(len(text), limits.max_bytes, limits.max_tokens * CHARACTERS_PER_TOKEN)
    lines = _Shown.of(text, ref, limits.max_line_length, room, telling())
    shown = largest_fit(lines.size, lambda room: _share(lines.view(room), limits, size_of), LEAST_CUT)
    view = lines.view(shown)
    return View(view if ref_in_view(view) == ref.id else lines.view(0), is_whole=False)


def _fits(text: str, ref: ToolOutputRef, limits: Limits, size_of: Callable[[str], int]) -> bool:
    if ref.bytes > limits.max_bytes:
        return False
    # A note never has to be cut, so that the view of a view is that view.
    if any(len(line) > limits.max_line_length and not NOTE.fullmatch(line) for line in text.split("\n")):
        return False
    sample = max(1024, limits.max_tokens * 8)
    while sample < len(text):  # a long text is measured by its beginning first
        if size_of(text[:sample]) > limits.max_tokens:
            return False
        sample *= 2
    return size_of(text) <= limits.max_tokens


def _share(view: str, limits: Limits, size_of: Callable[[str], int]) -> float:
    """Return how far a view uses up the limit that it is nearest to, 1.0 where it just keeps it."""
    size = len(view) if view.isascii() else len(utf8(view))
    in_bytes = size / max(1, limits.max_bytes)
    return in_bytes if in_bytes > 2 else max(in_bytes, size_of(view) / max(1, limits.max_tokens), 0.01)


@dataclass(frozen=True, slots=True)
class _End:
    """Lines as they are shown, each with its break, and the first cut: its line and the column where that goes on."""

    shown: str
    lines: int
    cut: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Shown:
    """The lines of a text that a view may show, found once and shown as far as there is room.

    `first` are those at its beginning, `last` those at its end, from the last one back; `telling` are stretches of
    lines in between, those that tell most first, each with the line first that does.
    """

    text: str
    ref: ToolOutputRef
    longest: int
    room: int
    first: tuple[_Line, ...]
    last: tuple[_Line, ...]
    telling: tuple[tuple[_Line, ...], ...]

    @classmethod
    def of(cls, text: str, ref: ToolOutputRef, longest: int, room: int, telling: Sequence[Part]) -> "_Shown":
        first = tuple(_within(_lines(text), longest, room))
        last = tuple(_within(_lines_backwards(text, ref.lines), longest, room // (TAIL_SHARE + 1)))
        wanted = sorted(telling, key=lambda part: -part.weight)
        parts = _parts(text, wanted) if wanted else ()
        return cls(text, ref, longest, room, first, last[: ref.lines - 1], tuple(parts))

    @property
    def size(self) -> int:
        """Return the room that all lines that can be shown take."""
        taken = sum(min(line.end - line.start, self.longest) + 1 for line in (*self.first, *self.last))
        return self.room if self.telling else min(self.room, taken * (TAIL_SHARE + 1) if self.last else taken)

    def view(self, room: int) -> str:
        """Return the view that shows at most `room` characters of the text beside its notes."""
        total = self.ref.lines
        chosen, left = self._chosen(room)
        tail = self._tail(left // (TAIL_SHARE + 1))
        head = self._head(left - len(tail.shown), total - tail.lines)
        first, last = head.lines + 1, total - tail.lines
        if first <= last:
            middle = self._middle([line for line in chosen if first <= line.number <= last], first, last)
            return f"{head.shown}{middle}" + (f"\n{tail.shown}" if tail.lines else "")
        number, column = head.cut or tail.cut or (1, 1)
        what = f"Long lines are cut where marked; the whole output has {total} lines and"
        shown = head.shown + tail.shown
        broken = "" if shown.endswith("\n") else "\n"
        return f"{shown}{broken}{_note(self.ref, what, f'offset={number}, column={column}')}"

    def _chosen(self, room: int) -> tuple[list[_Line], int]:
        """Return the telling lines that a view of this size shows, in order, and the room that they leave."""
        left, chosen = room, list[_Line]()
        for line in chain.from_iterable(self.telling):
            taken = min(line.end - line.start, self.longest) + 1
            if left - taken < room - room // FAILED_SHARE:
                break
            chosen.append(line)
            left -= taken
        return sorted(chosen, key=lambda line: line.number), left

    def _middle(self, shown: Sequence[_Line], first: int, last: int) -> str:
        """Return the lines between beginning and end that are shown, with a note wherever others are left out."""
        written: list[str] = []
        at, is_noted = first, False
        for line in (*shown, None):
            end = last if line is None else line.number - 1
            if at <= end and not is_noted:
                what = f"Lines {at}-{end} of {self.ref.lines} are left out here; the whole output has"
                written.append(_note(self.ref, what, f"offset={at}"))
                is_noted = True
            elif at <= end:
                written.append(f"[Lines {at}-{end} are left out here, too.]")
            if line is not None:
                written.append(_cut(self.text, line, self.longest)[0])
                at = line.number + 1
        return "\n".join(written)

    def _head(self, room: int, most: int) -> _End:
        shown, cut = self._shown(self.first[:most], room)
        return _End("".join(f"{line}\n" for line in shown), len(shown), cut[0] if cut else None)

    def _tail(self, room: int) -> _End:
        """Return the lines at the end, which end as the text does."""
        shown, cut = self._shown(self.last, room)
        ending = "\n" if shown and self.text.endswith("\n") else ""
        return _End("\n".join(reversed(shown)) + ending, len(shown), cut[-1] if cut else None)

    def _shown(self, lines: tuple[_Line, ...], room: int) -> tuple[list[str], list[tuple[int, int]]]:
        """Return as many lines as there is room for, and where those that are cut go on."""
        shown, cut, left = [], [], room
        for line in lines:
            kept, column = _cut(self.text, line, self.longest)
            if len(kept) + 1 > left:
                if left <= max(LEAST_CUT, room // 2):
                    break
                kept, column = _cut(self.text, line, left - 1)  # else one long line would leave most of it empty
            if column:
                cut.append((line.number, column))
            shown.append(kept)
            left -= len(kept) + 1
        return shown, cut


def _within(lines: Iterator[_Line], longest: int, room: int) -> Iterator[_Line]:
    """Yield lines until together they take the room, the line that exceeds it included."""
    while room > 0 and (line := next(lines, None)):
        yield line
        room -= min(line.end - line.start, longest) + 1


def _lines(text: str) -> Iterator[_Line]:
    start, number = 0, 1
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield _Line(number, start, end)
        start, number = end + 1, number + 1


def _lines_backwards(text: str, number: int) -> Iterator[_Line]:
    end = len(text) - text.endswith("\n")
    while end >= 0 and number:
        start = text.rfind("\n", 0, end) + 1
        yield _Line(number, start, end)
        end, number = start - 1, number - 1


def _parts(text: str, telling: Sequence[Part]) -> Iterator[tuple[_Line, ...]]:
    """Yield the lines of these parts of a text, those next to the line first that says most."""
    lines = tuple(_lines(text))
    for part in telling:
        inside = lines[part.first : part.last + 1]
        core = part.core + 1
        yield tuple(sorted(inside, key=lambda line: (abs(line.number - core), line.number < core)))


def _cut(text: str, line: _Line, most: int) -> tuple[str, int | None]:
    """Return a line within `most` characters, and the column at which the left-out part begins."""
    length = line.end - line.start
    if length <= most:
        return text[line.start : line.end], None
    mark = _mark(line, length, length)
    shown = max(0, most - len(mark))
    begin, end = shown - shown // TAIL_SHARE, shown // TAIL_SHARE
    mark = _mark(line, length - begin - end, begin + 1)
    return f"{text[line.start : line.start + begin]}{mark}{text[line.end - end : line.end]}", begin + 1


def _mark(line: _Line, left_out: int, column: int) -> str:
    return f"[…{left_out} characters left out: offset={line.number}, column={column}…]"


def _note(ref: ToolOutputRef, what: str, place: str) -> str:
    return (
        f'[{what} {ref.bytes} bytes. To read on: {READ_TOOL}(ref_id="{ref.id}", {place}). '
        f'To search: {SEARCH_TOOL}(ref_id="{ref.id}", pattern="…")]'
    )


def ref_in_view(text: str) -> str | None:
    """Return the id that the note of a view names, None where the text is no view.

    A note counts only in its exact form and with as many lines around it as it says. A text that holds two different
    notes is not believed; whether an output is kept under the id is for the store to say.
    """
    note = _note_in(text)
    return note["ref"] if note is not None else None


def bytes_of_whole(text: str) -> int | None:
    """Return the size in bytes of the output whose view a text is, None where the text is no view."""
    note = _note_in(text)
    return int(note["bytes"]) if note is not None else None


def _note_in(text: str) -> re.Match[str] | None:
    """Return the note that has as many lines around it as it says, None where others like it name another output."""
    if f"To read on: {READ_TOOL}(" not in text:  # a quick test for huge texts
        return None
    lines = text.count("\n") + (not text.endswith("\n") if text else 0)
    gaps = {gap.start(): int(gap["last"]) - int(gap["first"]) for gap in GAP.finditer(text)}
    below = lines + sum(gaps.values())  # as if what a short note stands for were there
    before = seen = 0
    found = []
    for match in NOTE.finditer(text):
        before += text.count("\n", seen, match.start())
        seen = match.start()
        while gaps and (first := next(iter(gaps))) < seen:
            below -= gaps.pop(first)
        if _is_in_its_place(match, before, below - before - 1):
            found.append(match)
    return found[0] if len({note["ref"] for note in found}) == 1 else None


def _is_in_its_place(note: re.Match[str], before: int, after: int) -> bool:
    if note["lines"] is not None:
        return after == 0 and before == int(note["lines"])
    first, last, total = int(note["first"]), int(note["last"]), int(note["total"])
    return before == first - 1 and after == total - last and first <= last
