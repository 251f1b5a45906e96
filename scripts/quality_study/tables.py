"""Writes the figures as tables, and puts them into README.md, a few of them into docs/pruning-agents.md."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pruners import AGENTS

from elbowroom.quality.grading import Grade

DOCUMENT: Final = Path(__file__).with_name("README.md")
PAGE: Final = Path(__file__).parents[2] / "docs" / "pruning-agents.md"
"""What people read of it: the section `kept`."""
LAST, CUT, PLAIN = "last messages only", "the middle cut out", "one plain summary"
PLAINS: Final = {agent: f"{PLAIN}, {agent}" for agent in AGENTS}
"""One plain summary each time, by each of the agents."""
WAYS: Final = (*AGENTS, *PLAINS.values(), LAST, CUT)
COLUMNS: Final = {
    "identifiers": "identifiers",
    "words": "names and words",
    "newest": "newest value",
    "constraints": "constraints",
    "todos": "to-dos",
    "told by tools": "told by tools",
    "artifacts": "files and state",
    "everything": "every identifier",
}
OTHERS: Final = ("only old value", "made up by agent", "by code", "unpaired", "tokens", "of all", "read again")
KEPT: Final = ("identifiers", "newest", "constraints")


class Row(NamedTuple):
    """What a figure is about; `way` is a pruning agent or a control, `kind` and `language` are empty in sums."""

    window: int
    way: str
    compactions: int
    kind: str = ""
    language: str = ""


Figures = dict[Row, Grade]


def summed(figures: Mapping[Row, Grade], *blank: str) -> Figures:
    """Return the figures with some of the columns summed up."""
    sums: Figures = {}
    for row, each in figures.items():
        sums.setdefault(without(row, *blank), Grade()).add(each)
    return sums


def without(row: Row, *blank: str) -> Row:
    """Return a row with some of its texts empty."""
    kind, language = ("" if name in blank else getattr(row, name) for name in ("kind", "language"))
    return Row(row.window, row.way, row.compactions, kind, language)


def by_window(figures: Mapping[Row, Grade]) -> Iterator[str]:
    """Yield a table for each window: all measures for each pruning agent and number of compactions."""
    sums = summed(figures, "kind", "language")
    for window in sorted({row.window for row in sums}):
        yield f"\n### A window of {window:,} tokens\n\n"
        yield from table(
            ("compactions", "pruning agent", *COLUMNS.values(), *OTHERS),
            (
                [
                    f"{row.compactions}",
                    named(row.way),
                    *(percent(sums[row], key) for key in COLUMNS),
                    *counts(sums[row]),
                ]
                for row in ordered(sums)
                if row.window == window
            ),
        )


def kept(figures: Mapping[Row, Grade]) -> Iterator[str]:
    """Yield the table for people: what ten compactions leave in a window of 8,192 tokens."""
    sums = summed(figures, "kind", "language")
    ways = (*AGENTS, PLAINS["sloppy"], LAST, CUT)
    columns = ("identifiers", "newest", "constraints", "todos", "artifacts")
    rows = [row for row in ordered(sums) if row[:3] == (8192, row.way, 10) and row.way in ways]
    yield from table(
        ("pruning agent", *(COLUMNS[key] for key in columns)),
        ([named(row.way), *(percent(sums[row], key) for key in columns)] for row in rows),
    )


def counts(grade: Grade) -> Iterator[str]:
    """Yield the figures that are no shares of what was said."""
    yield from map(str, (grade.stale, grade.made_up, grade.by_code, grade.unpaired))
    yield f"{grade.tokens // grade.prompts:,}"
    yield f"{100 * grade.tokens / grade.whole:.0f} %"
    yield f"{grade.reread // grade.prompts:,}" if grade.reread else "–"


def by(column: str, figures: Mapping[Row, Grade]) -> Iterator[str]:
    """Yield one table with the main measures for each kind of conversation, or for each language."""
    other = "language" if column == "kind" else "kind"
    sums = summed(figures, other)
    groups = list(dict.fromkeys(getattr(row, column) for row in sums))
    heads = [f"{group}: {COLUMNS[key]}" for group in groups for key in KEPT]
    rows = ordered(without(row, column) for row in sums if getattr(row, column) == groups[0])
    yield from table(
        ("window", "compactions", "pruning agent", *heads),
        (
            [f"{row.window:,}", f"{row.compactions}", named(row.way)]
            + [percent(found(sums, row, group), key) for group in groups for key in KEPT]
            for row in rows
        ),
    )


def found(sums: Mapping[Row, Grade], row: Row, group: str) -> Grade:
    """Return the figure of a kind or a language that stands in this row."""
    [grade] = [each for other, each in sums.items() if other[:3] == row[:3] and group in (other.kind, other.language)]
    return grade


OTHER_LANGUAGES: Final = "all others"
INFORMAL: Final = ("identifiers", "words", "newest", "constraints", "todos", "told by tools")


def informal(figures: Mapping[Row, Grade]) -> Iterator[str]:
    """Yield the table of the informal conversations, by language and all together."""
    sums = summed(figures, "kind")
    order = sorted({row.language for row in sums}, key=lambda language: (language != "English", language))
    for row in [row for row in sums if row.language != "English"]:
        sums.setdefault(row._replace(language=OTHER_LANGUAGES), Grade()).add(sums[row])
    order.insert(1, OTHER_LANGUAGES)
    heads = ("language", "window", "compactions", "pruning agent", *(COLUMNS[key] for key in INFORMAL))
    yield from table(
        (*heads, "only old value", *OTHERS[1:3], "tokens", "of all"),
        (
            [row.language, f"{row.window:,}", f"{row.compactions}", named(row.way)]
            + [percent(sums[row], key) for key in INFORMAL]
            + [f"{sums[row].stale} of {sums[row].tallies['newest'].total}"]
            + [f"{sums[row].made_up}", f"{sums[row].by_code}", *list(counts(sums[row]))[4:6]]
            for language in order
            for row in ordered(row for row in sums if row.language == language)
        ),
    )


def short(figures: Mapping[Row, Grade]) -> Iterator[str]:
    """Yield the table of the short form, which a test compares with what it measures itself."""
    sums = summed(figures, "kind", "language")
    yield from table(
        ("compactions", "pruning agent", *COLUMNS.values()),
        ([f"{row.compactions}", named(row.way), *plain(sums[row])] for row in ordered(sums)),
    )


def plain(grade: Grade) -> list[str]:
    """Return the shares in the prompt, all with one decimal."""
    return [f"{grade.tallies[key].share:.1f}" for key in COLUMNS]


def recorded(figures: Mapping[Row, Grade]) -> Iterator[str]:
    """Yield the table of the recorded conversations."""
    sums = summed(figures, "kind", "language")
    heads = ("window", "compactions", "pruning agent", "the user's identifiers", "every identifier", "made up by code")
    yield from table(
        (*heads, "unpaired", "tokens", "of all", "read again"),
        (
            [f"{row.window:,}", f"{row.compactions}", named(row.way)]
            + [percent(sums[row], key) for key in ("identifiers", "everything")]
            + list(counts(sums[row]))[2:]
            for row in ordered(sums)
        ),
    )


def ordered(rows: "Iterator[Row] | Mapping[Row, Grade]") -> list[Row]:
    """Return rows by window, number of compactions and pruning agent; the controls come last."""
    return sorted(rows, key=lambda row: (row.window, row.compactions, WAYS.index(row.way)))


def named(way: str) -> str:
    """Return the name of a pruning agent as it is; that of a control in italics."""
    return way if way in AGENTS else f"*{way}*"


def percent(grade: Grade, key: str) -> str:
    """Return a share in the prompt, and in brackets the share with what can be read by reference where that is more."""
    tally = grade.tallies[key]
    if not tally.total:
        return "–"
    inside, reachable = f"{tally.share:.0f}", f"{tally.reachable:.0f}"
    return inside if inside == reachable else f"{inside} ({reachable})"


def table(heads: Sequence[str], rows: Iterator[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table; figures stand at the right."""
    texts = {"language", "window", "pruning agent", "compactions"}
    yield f"| {' | '.join(heads)} |\n"
    yield f"|{''.join('---|' if head in texts else '--:|' for head in heads)}\n"
    for row in rows:
        yield f"| {' | '.join(row)} |\n"


def write(sections: Mapping[str, str]) -> None:
    """Put each section's text between its marks in its document."""
    for name, body in sections.items():
        document = PAGE if name == "kept" else DOCUMENT
        text = document.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, mark, rest = text.partition(begin)
        if not mark:
            raise SystemExit(f"{document} has no line {begin}: put it back where the table belongs.")
        document.write_text(f"{before}{begin}\n{body}{end}{rest.partition(end)[2]}", encoding="utf-8")


def published_short() -> dict[tuple[str, str], list[float]]:
    """Return the figures of the short form in the document, by number of compactions and pruning agent."""
    body = (
        DOCUMENT.read_text(encoding="utf-8").partition("<!-- short: begin -->")[2].partition("<!-- short: end -->")[0]
    )
    rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in body.strip().splitlines()[2:]]
    return {(row[0], row[1]): [float(cell) for cell in row[2:]] for row in rows}


def as_published(figures: Mapping[Row, Grade]) -> dict[tuple[str, str], list[float]]:
    """Return figures in the form of `published_short`."""
    sums = summed(figures, "kind", "language")
    return {(f"{row.compactions}", named(row.way)): [float(cell) for cell in plain(each)] for row, each in sums.items()}
