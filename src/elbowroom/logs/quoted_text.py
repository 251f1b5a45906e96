"""Takes out of a log line what it repeats of a client's own words: engines quote prompts in their errors."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Self

PIECE: Final = 16
"""Characters: what a line shares with the client's words is looked for in pieces of this length."""
STRIDE: Final = 4
MOST_CHARACTERS: Final = 1_000_000
"""What is looked through for each line, which takes at most some tenths of a second; no window is that large."""
TAKEN_OUT: Final = "[...]"
PICTURE: Final = "data:"
CONTROL: Final = re.compile(r"[\x01-\x1f\x7f-\x9f\u2028\u2029]")
FIELDS: Final = ("messages", "input", "prompt", "text", "message", "content")
"""The fields of a body that hold what a client says."""


class ClientWords:
    """What a client has sent, to be looked for in lines that are about to be logged; prepared when that first happens.

    `texts` are parsed JSON, and every string in them counts.
    """

    def __init__(self, texts: Iterable[Any]) -> None:
        self._texts = texts
        self._folded: str | None = None

    @classmethod
    def of(cls, *bodies: Any) -> Self:
        """Return the words in bodies of requests, whatever those are; those of the last are looked at first."""
        tables = [body if isinstance(body, dict) else {FIELDS[0]: body} for body in bodies]
        return cls([table[name] for table in tables for name in FIELDS if name in table])

    def taken_out_of(self, line: str, names: Sequence[str] = ()) -> str:
        """Return the line without what repeats these words; `names` in it stay.

        A repetition of at least `PIECE + STRIDE` characters is sure to be found.
        """
        names = [name for name in names if len(name) >= PIECE]  # no shorter one is taken for a repetition
        for number, name in enumerate(names):
            line = line.replace(name, f"\0{number}\0")  # which is in no line and in none of the words
        line = self._without_repetitions(line)
        for number, name in enumerate(names):
            line = line.replace(f"\0{number}\0", name)
        return line

    def _without_repetitions(self, line: str) -> str:
        if self._folded is None:
            self._folded = _fold("\n".join(_long_strings(self._texts)))
            self._texts = ()
        parts: list[str] = []
        place = 0
        for start in range(0, len(line) - PIECE + 1, STRIDE) if self._folded else ():
            if start >= place and _fold(line[start : start + PIECE]) in self._folded:
                first, last = _widened(line, start, place, self._folded)
                parts += [line[place:first], TAKEN_OUT]
                place = last
        return "".join([*parts, line[place:]])


def _widened(line: str, start: int, least: int, said: str) -> tuple[int, int]:
    """Return from where to where the line repeats what was said, around a piece that does."""
    first, last = start, start + PIECE
    while first > least and _fold(line[first - 1 : last]) in said:
        first -= 1
    while last < len(line) and _fold(line[first : last + 1]) in said:
        last += 1
    return first, last


def _long_strings(texts: Iterable[Any]) -> Iterator[str]:
    left = MOST_CHARACTERS
    for text in _strings(list(texts)):  # the last of the conversation first
        if len(text) >= PIECE and not text.startswith(PICTURE):
            yield text[:left]
            left -= len(text)
        if left <= 0:
            return


def _strings(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case dict() as table:
                waiting.extend(table.values())
            case list() | tuple() as items:
                waiting.extend(items)
            case _:
                pass  # a number says nothing


def _fold(text: str) -> str:
    """Return the text as one line, in the form that errors quote it in, without regard to case."""
    return CONTROL.sub(" ", text).lower()
