"""Prints what the tests promise for each fault in each state, and each threat: for docs/develop/reliability.md.

--write     put them into the document
"""

import argparse
import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from fault_list import FAULTS, STATES, THREATS, Fault

REPOSITORY: Final = Path(__file__).parents[2]
TESTS: Final = REPOSITORY / "tests"
DOCUMENT: Final = REPOSITORY / "docs" / "develop" / "reliability.md"
FAULT, THREAT = "fault", "threat"


class Promise(NamedTuple):
    """What a test promises: for one fault in one state, or, where there is no state, against a threat."""

    about: str
    state: str
    outcome: str
    test: str


def promises() -> list[Promise]:
    """Return the promises of all tests, in the order of their files."""
    found: list[Promise] = []
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if f"mark.{FAULT}(" in text or f"mark.{THREAT}(" in text:
            found += _promises_in(ast.parse(text), path.relative_to(TESTS).as_posix())
    return found


def _promises_in(tree: ast.Module, file: str) -> Iterator[Promise]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                yield from _promises_of(decorator, f"{file}::{node.name}")


def _promises_of(decorator: ast.expr, test: str) -> Iterator[Promise]:
    match decorator:
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="fault"), args=[faults, states, said]):
            for fault in _names(faults):
                for state in _names(states):
                    yield Promise(fault, state, ast.literal_eval(said), test)
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="mark"), attr="threat"), args=[threats, said]):
            for threat in _names(threats):
                yield Promise(threat, "", ast.literal_eval(said), test)
        case _:
            pass


def _names(given: ast.expr) -> Sequence[str]:
    """Return the names in an argument of a mark: one text, or several."""
    value: str | Sequence[str] = ast.literal_eval(given)
    return (value,) if isinstance(value, str) else value


def tables() -> dict[str, str]:
    """Return each table by its name."""
    held: dict[tuple[str, str], list[Promise]] = defaultdict(list)
    for promise in promises():
        held[promise.about, promise.state].append(promise)
    notes: dict[str, int] = {}
    faults = "\n".join(
        f"### {title}\n\n{_table(('fault', *STATES.values()), [_row(fault, held, notes) for fault in listed])}"
        for title, listed in FAULTS.items()
    )
    reasons = "".join(f"{number}. {reason}\n" for reason, number in notes.items())
    rows = [(f"**{name}**: {what}", _cell(held[name, ""])) for name, what in THREATS.items()]
    return {"faults": faults, "reasons": reasons, "threats": _table(("threat", "what happens"), rows)}


def _row(fault: Fault, held: dict[tuple[str, str], list[Promise]], notes: dict[str, int]) -> list[str]:
    cells = [f"**{fault.name}**"]
    for state in STATES:
        reason = fault.reason(state)
        cells.append(
            _cell(held[fault.name, state]) if reason is None else f"– ({notes.setdefault(reason, len(notes) + 1)})"
        )
    return cells


def _cell(found: Sequence[Promise]) -> str:
    """Return the outcomes with their tests; several tests of one outcome stand together."""
    tests: dict[str, list[str]] = {}
    for promise in found:
        tests.setdefault(promise.outcome, []).append(_link(promise.test))
    return "; ".join(f"{outcome} ({', '.join(links)})" for outcome, links in tests.items())


def _link(test: str) -> str:
    file, _, name = test.partition("::")
    return f"[{name.removeprefix('test_')}](../../tests/{file})"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])


def written(document: str) -> str:
    """Return the document with the tables of today."""
    for name, table in tables().items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, _, rest = document.partition(begin)
        document = f"{before}{begin}\n{table}{end}{rest.partition(end)[2]}"
    return document


def main() -> None:
    """Print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    if arguments.parse_args().write:
        DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        sys.stdout.write("\n".join(tables().values()))


if __name__ == "__main__":
    main()
