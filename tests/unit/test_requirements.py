"""Holds that `docs/develop/requirements.md` names tests that exist, and that each of its rows has one or a reason."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import pytest

REPOSITORY: Final = Path(__file__).parents[2]
PAGE: Final = REPOSITORY / "docs" / "develop" / "requirements.md"
DOCUMENTS: Final = 5
NAMED_TEST: Final = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
REASON: Final = re.compile(r"(Differs|Not done)\b[^:.]*: \w.{20,}")


class Row(NamedTuple):
    """One requirement: the title of its document, its number there, and how it is held."""

    document: str
    number: int
    held: str


def rows() -> Iterator[Row]:
    """Yield the rows of all tables of the page in their order."""
    document = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            document = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| no. |"):
            number, requirement, held = (cell.strip() for cell in line.strip("|").split("|"))
            assert requirement.endswith("."), line
            yield Row(document, int(number), held)


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file, none where there is no such file."""
    if not path.is_file():
        return frozenset()
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, functions))


@pytest.mark.slow
def test_each_test_that_the_page_names_exists() -> None:
    """A test that is renamed or removed is missed on the page."""
    named = {test for row in rows() for test in NAMED_TEST.findall(row.held)}
    assert len(named) > 200
    assert sorted(f"{path}::{name}" for path, name in named if name not in names_in(REPOSITORY / path)) == []


def test_each_requirement_has_a_test_or_a_reason() -> None:
    """Five documents are gone through, their rows numbered from 1; none just stands there."""
    by_document: dict[str, list[Row]] = {}
    for row in rows():
        by_document.setdefault(row.document, []).append(row)
    assert len(by_document) == DOCUMENTS
    for document, listed in by_document.items():
        assert [row.number for row in listed] == list(range(1, len(listed) + 1)), document
        bare = [row.number for row in listed if not (NAMED_TEST.search(row.held) or REASON.match(row.held))]
        assert bare == [], document
