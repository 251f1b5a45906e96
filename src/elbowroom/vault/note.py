"""Finds the parts of a note: frontmatter, headings with their sections, blocks with an id. Pure, in linear time."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.vault.names import VaultError, fold

HEADING: Final = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*))?$")
FENCE: Final = re.compile(r"[ \t>]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(`{3,}|~{3,})(.*)$")
BLOCK_ID: Final = re.compile(r"(?:^|[ \t])\^([A-Za-z0-9-]+)[ \t]*$")
LIST_ITEM: Final = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]")
NO_PARAGRAPH: Final = re.compile(r"[ \t]*(?:[-*+>|#]|\d{1,9}[.)][ \t]|$)")
UNDERLINE: Final = re.compile(r" {0,3}(=+|-+)[ \t]*$")
FRONTMATTER: Final = re.compile(r"---[ \t]*$")
LINE_END: Final = re.compile(r"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading: its lines are `start` to `body`, its section goes on to `end`, lines counted from 0."""

    level: int
    text: str
    start: int
    body: int
    end: int
    path: tuple[str, ...]
    """The headings above it, from the outermost, and itself."""


@dataclass(frozen=True, slots=True)
class Block:
    """A paragraph or list item with an id: lines `start` to `end`; the id stands in line `id_line`."""

    id: str
    start: int
    end: int
    id_line: int


class Note:
    """A note's text as lines with their ends, which joined give the text."""

    def __init__(self, text: str) -> None:
        self.lines = split_lines(text)
        self.bare = [line.rstrip("\r\n") for line in self.lines]
        if self.bare and self.bare[0].startswith("\ufeff"):
            self.bare[0] = self.bare[0][1:]
        self.line_end = _line_end(self.lines)
        self.frontmatter = _frontmatter(self.bare)
        self._in_code = _code_lines(self.bare, self.frontmatter)
        self.headings = list(self._find_headings())
        self._heading_lines = frozenset(n for heading in self.headings for n in range(heading.start, heading.body))

    def is_prose(self, line: int) -> bool:
        """Tell whether a line is neither frontmatter nor in a block of code."""
        return line >= self.frontmatter and not self._in_code[line]

    def heading(self, written: str) -> Heading:
        """Return the heading with this text, or with this path of headings: `Plan > Tasks`.

        Raises VaultError with the headings that there are.
        """
        wanted = written.strip()
        found = self._with_path([wanted]) or self._with_path([wanted.lstrip("#").strip()])
        for separator in (" > ", ">", "#"):
            if not found and separator in wanted:
                found = self._with_path([part.strip().lstrip("#").strip() for part in wanted.split(separator)])
        if len(found) == 1:
            return found[0]
        if found:
            where = "; ".join(f"{' > '.join(heading.path)} (line {heading.start + 1})" for heading in found[:6])
            raise VaultError(f"There are {len(found)} headings {written!r}: {where}. Write it with those above it.")
        there = ", ".join(repr(heading.text) for heading in self.headings[:20]) or "none"
        raise VaultError(f"There is no heading {written!r}. The headings are: {there}.")

    def _with_path(self, names: Sequence[str]) -> list[Heading]:
        folded = [fold(name) for name in names if name]
        found = [h for h in self.headings if folded and [fold(name) for name in h.path[-len(folded) :]] == folded]
        exact = [h for h in found if h.text == names[-1]]
        return exact or found

    def block(self, written: str) -> Block:
        """Return the block with an id; raises VaultError with the ids that there are."""
        wanted, ids = written.strip().removeprefix("#").removeprefix("^"), []
        for number, line in enumerate(self.bare):
            if self.is_prose(number) and (match := BLOCK_ID.search(line)):
                if match[1].lower() == wanted.lower():
                    return self._block_ending(number, match)
                ids.append(match[1])
        there = ", ".join(f"^{name}" for name in ids[:20]) or "none"
        raise VaultError(f"There is no block ^{wanted}. The block ids are: {there}.")

    def _block_ending(self, number: int, match: re.Match[str]) -> Block:
        last = number
        if not self.bare[number][: match.start()].strip():  # the id alone on its line stands for the block above
            last = number - 1
            while last >= self.frontmatter and not self.bare[last].strip():
                last -= 1
        if last < self.frontmatter or self._starts_heading(last):
            return Block(match[1], number, number, number)
        start = last
        while not LIST_ITEM.match(self.bare[start]) and start > self.frontmatter and self._continues(start - 1):
            start -= 1
        return Block(match[1], start, last + 1, number)

    def _continues(self, line: int) -> bool:
        """Tell whether a block that comes after this line may include it."""
        return bool(self.bare[line].strip()) and self.is_prose(line) and not self._starts_heading(line)

    def _starts_heading(self, line: int) -> bool:
        return line in self._heading_lines

    def _find_headings(self) -> Iterator[Heading]:
        found = list(self._scan())
        ends, open_ones = [len(self.lines)] * len(found), list[int]()
        paths: list[tuple[str, ...]] = []
        for index, (level, text, start, _) in enumerate(found):
            while open_ones and found[open_ones[-1]][0] >= level:
                ends[open_ones.pop()] = start
            paths.append((*(found[i][1] for i in open_ones), text))
            open_ones.append(index)
        for (level, text, start, body), end, path in zip(found, ends, paths, strict=True):
            yield Heading(level, text, start, body, end, path)

    def _scan(self) -> Iterator[tuple[int, str, int, int]]:
        """Yield level, text, first line and the line after the heading."""
        paragraph = -1
        for number, line in enumerate(self.bare):
            if not self.is_prose(number):
                paragraph = -1
            elif match := HEADING.match(line):
                paragraph = -1
                yield len(match[1]), _heading_text(match[2] or ""), number, number + 1
            elif paragraph >= 0 and (match := UNDERLINE.match(line)):
                text = " ".join(part.strip() for part in self.bare[paragraph:number])
                yield 1 if match[1][0] == "=" else 2, text, paragraph, number + 1
                paragraph = -1
            elif NO_PARAGRAPH.match(line) or (paragraph < 0 and line.startswith(("    ", "\t"))):
                paragraph = -1
            elif paragraph < 0 and not (number and self._is_in_list(number)):
                paragraph = number

    def _is_in_list(self, number: int) -> bool:
        """Tell whether a line continues the block of the line above, such as an item of a list."""
        return (
            number > self.frontmatter
            and bool(self.bare[number - 1].strip())
            and not HEADING.match(self.bare[number - 1])
        )


def split_lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; only CR and LF end a line, as in editors for Markdown."""
    lines, start = [], 0
    for match in LINE_END.finditer(text):
        lines.append(text[start : match.end()])
        start = match.end()
    if start < len(text):
        lines.append(text[start:])
    return lines


def _heading_text(written: str) -> str:
    text = written.strip()
    without = text.rstrip("#")
    return without.rstrip() if without != text and (not without or without[-1] in " \t") else text


def _line_end(lines: Sequence[str]) -> str:
    with_return = sum(line.endswith("\r\n") for line in lines)
    without = sum(line.endswith("\n") for line in lines) - with_return
    return "\r\n" if with_return > without else "\n"


def _frontmatter(bare: Sequence[str]) -> int:
    """Return the number of lines of the frontmatter with both its rules, 0 if there is none."""
    if not bare or not FRONTMATTER.match(bare[0]):
        return 0
    return next((n + 1 for n, line in enumerate(bare) if n and FRONTMATTER.match(line)), 0)


def _code_lines(bare: Sequence[str], start: int) -> list[bool]:
    """Tell for each line whether it belongs to a fenced block of code."""
    inside, fence, is_quoted = [False] * len(bare), "", False
    for number in range(start, len(bare)):
        if fence and is_quoted and not bare[number].lstrip().startswith(">"):
            fence = ""  # a quote ends with all that is in it
        match = FENCE.match(bare[number]) if "```" in bare[number] or "~~~" in bare[number] else None
        if fence:
            inside[number] = True
            if match and match[1].startswith(fence) and not match[2].strip():
                is_end = not bare[number][: match.start(1)].strip(" \t>" if is_quoted else " \t")
                fence = "" if is_end else fence
        elif match and not (match[1][0] == "`" and "`" in match[2]):
            inside[number] = True
            fence, is_quoted = match[1], bare[number].lstrip().startswith(">")
    return inside
