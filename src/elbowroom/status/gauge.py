"""Draws the state of a server: for each conversation a bar with marks where it is compacted and where answers stop."""

import os
import shutil
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any, Final, Literal, TextIO

from elbowroom.errors import in_own_words
from elbowroom.status.asking import CONVERSATIONS, Fields, Snapshot

Colour = Literal["good", "warning", "alarm", "dim", "strong"]
CODES: Final[Mapping[Colour, str]] = {"good": "32", "warning": "33", "alarm": "31", "dim": "2", "strong": "1"}
LEAST_COLUMNS: Final = 40
ELLIPSIS: Final = "..."
MOST_BAR: Final = 50
NUMBERS: Final = 38
"""The columns of the numbers after a bar."""
MOST_TOLD: Final = 1000
"""The most columns of an error, over all its lines."""
MODELS: Final = 8
"""The most models that are listed of a provider, loaded ones first."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The abilities of an output stream; `is_screen` tells that text on it can be replaced."""

    columns: int = 80
    is_unicode: bool = False
    is_coloured: bool = False
    is_screen: bool = False

    @classmethod
    def of(cls, stream: TextIO, environ: Mapping[str, str]) -> "Terminal":
        """Return the abilities of a stream."""
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
        """Return a text in a colour, if the terminal has colours."""
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self.is_coloured and text else text

    def folded(self, text: str, indent: str) -> list[str]:
        """Return a text as lines with an indentation, so that all of an error can be read."""
        rest, lines = self.fitted(text, MOST_TOLD), []
        while rest:
            end = fitting = _fitting(rest, self.columns - len(indent))
            if fitting < len(rest) and (blank := rest.rfind(" ", 0, fitting + 1)) > 0:
                end = blank
            lines.append(f"{indent}{rest[:end]}")
            rest = rest[end:].lstrip()
        return lines

    def fitted(self, text: str, columns: int) -> str:
        """Return a text as one line of at most so many columns, with blanks instead of control characters."""
        printable = "".join(character if character.isprintable() else " " for character in text)
        line = " ".join(printable.split())
        if not self.is_unicode:
            line = line.encode("ascii", "replace").decode()
        if width(line) <= columns:
            return line
        return f"{line[: _fitting(line, columns - len(ELLIPSIS))].rstrip()}{ELLIPSIS}"


def width(text: str) -> int:
    """Return the number of columns of a text."""
    return sum(_columns(character) for character in text)


def _fitting(text: str, columns: int) -> int:
    """Return how many of the first characters of a text have room in so many columns."""
    return sum(1 for _ in takewhile(lambda used: used <= columns, accumulate(map(_columns, text))))


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def drawn(snapshot: Snapshot, terminal: Terminal, now: float | None = None) -> str:
    """Return a snapshot as lines of text; `now` is in Unix seconds."""
    return "\n".join(_lines(snapshot, terminal, time.time() if now is None else now)) + "\n"


def _lines(snapshot: Snapshot, terminal: Terminal, now: float) -> Iterator[str]:
    if snapshot.version is None:
        yield in_own_words(f"No elbowroom runs at {snapshot.address}. Start it with `elbowroom serve`.")
        return
    yield terminal.paint(f"elbowroom {snapshot.version} at {snapshot.address}", "strong")
    yield ""
    for provider in snapshot.providers:
        yield from _provider(provider, terminal)
    yield ""
    yield f"Answering now: {len(snapshot.live) or 'nothing'}"
    for turn in snapshot.live:
        yield from _turn(turn, terminal, now)
    idle = [row for row in snapshot.conversations if row.get("status") != "running" and row.get("context")]
    if idle:
        yield ""
        yield "Lately:"
    for row in idle[:CONVERSATIONS]:
        yield from _idle(row, terminal)
    if snapshot.note:
        yield ""
        yield from terminal.folded(snapshot.note, "")


def _provider(provider: Fields, terminal: Terminal) -> Iterator[str]:
    name = terminal.fitted(str(provider.get("id", "")), terminal.columns // 2)
    if not provider.get("reachable"):
        yield f"{name}: {terminal.paint('does not answer', 'alarm')}"
        if why := provider.get("error"):
            yield from terminal.folded(str(why), "  ")
        return
    yield f"{name}: {terminal.paint('answers', 'good')}"
    models = [model for model in provider.get("models") or [] if isinstance(model, dict)]
    models.sort(key=lambda model: model.get("state") != "loaded")
    for model in models[:MODELS]:
        yield f"  {terminal.fitted(_model(model), terminal.columns - 2)}"
    if len(models) > MODELS:
        yield f"  and {len(models) - MODELS} more"


def _model(model: Fields) -> str:
    window, most = model.get("window"), model.get("max_window")
    size = f"window of {window:,} tokens" if isinstance(window, int) else "window not known"
    largest = f", at most {most:,}" if isinstance(most, int) and most != window else ""
    state = f" ({model['state']})" if model.get("state") else ""
    return f"{model.get('id', '')}{state}: {size}{largest}"


def _turn(turn: Fields, terminal: Terminal, now: float) -> Iterator[str]:
    began = turn.get("began")
    seconds = f", {max(0, int(now - began))} s" if isinstance(began, int | float) else ""
    doing = f"{turn.get('phase', '')}{seconds}"
    who = " / ".join(str(part) for part in (turn.get("agent"), turn.get("model")) if part)
    yield _headline(turn, f"{doing}: {who}", terminal)
    yield _gauge(turn.get("fill"), terminal)


def _idle(row: Fields, terminal: Terminal) -> Iterator[str]:
    times = row.get("compaction_count") or 0
    compacted = f", compacted {times} time{'s' if times != 1 else ''}" if times else ""
    yield _headline(row, f"{row.get('agent', '')}{compacted}{_turns_left(row.get('context'))}", terminal)
    yield _gauge(row.get("context"), terminal)


def _turns_left(fill: Any) -> str:
    left = fill.get("turns_left") if isinstance(fill, dict) else None
    return f", about {left:,} turn{'s' if left != 1 else ''} left" if isinstance(left, int) else ""


def _headline(fields: Fields, about: str, terminal: Terminal) -> str:
    told = terminal.fitted(about, terminal.columns * 2 // 3)
    name = fields.get("title") or fields.get("conversation") or fields.get("id") or ""
    title = terminal.fitted(str(name), max(10, terminal.columns - width(told) - 4))
    return f"  {title}  {terminal.paint(told, 'dim')}"


def _gauge(fill: Any, terminal: Terminal) -> str:
    """Return the bar of a window with its numbers, or a line that its fill is not known."""
    given = [fill.get(name) for name in ("tokens", "window", "trigger", "stop_at")] if isinstance(fill, dict) else []
    numbers = [number for number in given if isinstance(number, int)]
    if len(numbers) < 4 or numbers[1] <= 0:
        return "  (how full its window is, is not known)"
    tokens, window, trigger, stop_at = numbers
    columns = max(10, min(MOST_BAR, terminal.columns - NUMBERS - 4))
    colour: Colour = "alarm" if tokens >= stop_at else "warning" if tokens >= trigger else "good"
    drawn_bar = terminal.paint(bar(tokens / window, (trigger / window, stop_at / window), columns, terminal), colour)
    told = f"{tokens:,} of {window:,} ({tokens * 100 // window} %)"
    return f"  {drawn_bar} {terminal.fitted(told, terminal.columns - columns - 5)}"


def bar(share: float, marks: tuple[float, ...], columns: int, terminal: Terminal) -> str:
    """Return a bar that is filled to a share of its columns, with marks at other shares."""
    full, empty, mark = ("\u2588", "\u2591", "\u2502") if terminal.is_unicode else ("#", ".", "|")
    filled = min(columns, round(max(0.0, share) * columns))
    cells = [full] * filled + [empty] * (columns - filled)
    for place in marks:
        cells[min(columns - 1, int(place * columns))] = mark
    return f"[{''.join(cells)}]"
