"""Tries every client library and prints which scenario works with which: the table in docs/clients.md.

--write     put the table into the document
"""

import argparse
import sys
from pathlib import Path
from typing import Final

import pytest
from client_libraries import LIBRARIES, versions

REPOSITORY: Final = Path(__file__).parents[2]
TESTS: Final = REPOSITORY / "tests" / "clients" / "test_client_libraries.py"
DOCUMENT: Final = REPOSITORY / "docs" / "clients.md"
BEGIN, END = "<!-- tried: begin -->", "<!-- tried: end -->"
COLUMNS: Final = {
    "test_stream_with_a_compaction_in_the_middle": "stream, compacted in the middle",
    "test_whole_answer_after_a_compaction": "whole answer, compacted",
    "test_loop_of_tools": "tools",
    "test_overflow": "too long (400)",
    "test_error_in_the_middle": "error in the middle",
    "test_upstream_that_is_down": "LM Studio is down (503)",
    "test_stop": "stop",
}


class Outcomes:
    """Keeps what became of each test: the outcomes of each library and scenario."""

    def __init__(self) -> None:
        self.seen: dict[tuple[str, str], set[str]] = {}
        self._known: dict[str, tuple[str, str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Note which library each test tries."""
        for item in items:
            assert isinstance(item, pytest.Function)
            tried = item.callspec.params["library"]
            [name] = [name for name, library in LIBRARIES.items() if library == tried]
            self._known[item.nodeid] = (name, item.originalname)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how it went."""
        if report.when == "call" or report.outcome != "passed":
            self.seen.setdefault(self._known[report.nodeid], set()).add(report.outcome)

    def word(self, library: str, test: str) -> str:
        """Return the word for a cell."""
        return {"passed": "yes", "failed": "**no**"}.get("".join(sorted(self.seen[library, test])), "not tried")


def table(outcomes: Outcomes) -> str:
    """Return the table."""
    head = ["library", "versions", *COLUMNS.values()]
    rows = [
        [name, ", ".join(versions(library)), *(outcomes.word(name, test) for test in COLUMNS)]
        for name, library in LIBRARIES.items()
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in [head, ["---"] * len(head), *rows])


def main() -> None:
    """Try and print, or write into the document."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    outcomes = Outcomes()
    pytest.main(["-q", f"--rootdir={REPOSITORY}", str(TESTS)], plugins=[outcomes])
    text = table(outcomes)
    if given.write:
        before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{text}{END}{rest.partition(END)[2]}", encoding="utf-8")
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
