"""Draws a study of pruning agents for a terminal: how far it is, and its table."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from elbowroom.status.gauge import Terminal, width

Fields = Mapping[str, Any]
SHARES: Final = {
    "identifiers": "identifiers",
    "constraints": "constraints",
    "newest": "newest",
    "told": "told",
    "answered": "answered",
    "called": "tool call",
}
HEADS: Final = ("pruning agent", *SHARES.values(), "made up", "by code", "seconds", "tokens")
BAR: Final = 20
NONE: Final = "-"
ENDS: Final[Mapping[str, str]] = {
    "none": "No study of pruning agents was begun.",
    "stopped": "Stopped: this is what was measured until then.",
    "failed": "The study has ended early: {problem}",
}


def progress_of(state: Fields, terminal: Terminal) -> str:
    """Return one line: a bar, how much is done, about how long the rest takes, and what is done now."""
    done, of = int(state["done"]), max(1, int(state["of"]))
    filled = BAR * done // of
    bar = f"[{'#' * filled}{'.' * (BAR - filled)}]"
    line = f"{bar} {done} of about {of} steps, {time_left(state['seconds_left'])}  {state['now']}"
    return terminal.fitted(line, terminal.columns - 1)


def time_left(seconds: int | None) -> str:
    """Return about how long the rest takes, in words."""
    if seconds is None:
        return "the time is known after the first compaction"
    if seconds < 60:
        return "less than 1 min left"
    return f"about {-(-seconds // 60)} min left"


def table_of(state: Fields, terminal: Terminal) -> str:
    """Return the table of a study, what it was made of, and the advice."""
    return "\n".join(_lines(state, terminal))


def _lines(state: Fields, terminal: Terminal) -> Iterator[str]:
    if end := ENDS.get(state["state"]):
        yield end.format(problem=state.get("problem", ""))
    rows = [_row(line) for line in state["lines"]]
    if rows:
        yield (
            f"{state['model']} with a window of {state['window']:,} tokens; {amount_of(state)}. Shares are per cent."
        )
        yield ""
        yield from _aligned([HEADS, *rows], terminal)
    for name, problem in state.get("troubles", {}).items():
        yield f"{name} could not be measured: {problem}"
    if state.get("advice"):
        yield ""
        yield str(state["advice"])
    elif state["state"] != "none":
        yield "Nothing was measured far enough for an advice."


def amount_of(state: Fields) -> str:
    """Return in words how many conversations are compacted how often."""
    conversations, compactions = state["conversations"], state["compactions"]
    several = "1 conversation" if conversations == 1 else f"{conversations} conversations"
    often = {1: "once", 2: "twice"}.get(compactions, f"{compactions} times")
    return f"{several}, compacted {often}{' each' if conversations > 1 else ''}"


def _row(line: Fields) -> list[str]:
    shares = [NONE if line[name] is None else f"{line[name]:.0f}" for name in SHARES]
    if line["is_control"]:
        return [f"({line['pruner']})", *shares, NONE, NONE, NONE, NONE]
    code = f"{line['by_code']} of {line['compactions']}"
    return [line["pruner"], *shares, f"{line['made_up']}", code, f"{line['seconds']:.1f}", f"{line['tokens']:,}"]


def _aligned(rows: Sequence[Sequence[str]], terminal: Terminal) -> Iterator[str]:
    """Yield the rows with columns of one width each: the names at the left, figures at the right."""
    widths = [max(width(row[at]) for row in rows) for at in range(len(rows[0]))]
    for name, *cells in rows:
        figures = "  ".join(cell.rjust(space) for cell, space in zip(cells, widths[1:], strict=True))
        yield f"{terminal.fitted(name, widths[0])}{' ' * (widths[0] - width(name))}  {figures}"
