"""Takes out of a log line what it repeats of a client's own words: engines quote prompts in their errors."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, Self

PIECE: Final = 16
"""Characters: what a line shares with the client's words is looked for in pieces of this length."""
STRIDE: Final = 4
MOST_CHARACTERS: Final = 2_000_000
TAKEN_OUT: Final = "[...]"
PICTURE: Final = "data:"
CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
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
    def of(cls, body: Any) -> Self:
        """Return the words in a request's body, whatever that is."""
        return cls([body[name] for name in FIELDS if name in body] if isinstance(body, dict) else [body])

    def taken_out_of(self, line: str) -> str:
        """Return the line without what repeats these words.

        A repetition of at least `PIECE + STRIDE` characters is sure to be found.
        """
        if self._folded is None:
            self._folded = _fold("\0".join(_long_strings(self._texts)))
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
    for text in _strings(list(texts)):
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
