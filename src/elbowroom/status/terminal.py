"""What a terminal can show: how wide it is, which characters, whether in colour, and whether it can be drawn over."""

import os
import shutil
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TextIO

Colour = Literal["good", "warning", "alarm", "dim", "strong"]
CODES: Final[Mapping[Colour, str]] = {"good": "32", "warning": "33", "alarm": "31", "dim": "2", "strong": "1"}
LEAST_COLUMNS: Final = 40
ELLIPSIS: Final = "..."


@dataclass(frozen=True, slots=True)
class Terminal:
    """A stream of text with `columns`; `is_screen` tells that it can be drawn over."""

    columns: int = 80
    is_unicode: bool = False
    is_coloured: bool = False
    is_screen: bool = False

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> "Terminal":
        """Return what this stream can do."""
        is_old_windows = os.name == "nt" and not environ.get("WT_SESSION")
        is_screen = stream.isatty() and environ.get("TERM") != "dumb" and not is_old_windows
        encoding = (getattr(stream, "encoding", None) or "").lower().replace("_", "-")
        return cls(
            max(LEAST_COLUMNS, shutil.get_terminal_size().columns),
            encoding in ("utf-8", "utf8"),
            is_screen and not environ.get("NO_COLOR"),
            is_screen,
        )

    def paint(self, text: str, colour: Colour) -> str:
        """Return a text in a colour, where there are colours."""
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self.is_coloured and text else text

    def fitted(self, text: str, columns: int) -> str:
        """Return a text as one line that is no wider; what could steer the terminal is blank in it."""
        printable = "".join(character if character.isprintable() else " " for character in text)
        line = " ".join(printable.split())
        if not self.is_unicode:
            line = line.encode("ascii", "replace").decode()
        if width(line) <= columns:
            return line
        while line and width(line) > columns - len(ELLIPSIS):
            line = line[:-1]
        return f"{line.rstrip()}{ELLIPSIS}"


def width(text: str) -> int:
    """Return how many columns a text takes."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
