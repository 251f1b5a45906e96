"""Fixtures for all tests, and the rule that a skip has to be on the list in `skips.txt`."""

import fnmatch
from collections.abc import Generator
from pathlib import Path

import pytest

SKIPS = Path(__file__).with_name("skips.txt")
skipped = pytest.StashKey[dict[str, str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[skipped] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        item.config.stash[skipped][item.nodeid] = reason.removeprefix("Skipped: ")
    return report


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    unlisted = [test for test in session.config.stash[skipped] if not _is_listed(test)]
    if unlisted and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for test, reason in config.stash[skipped].items():
        if not _is_listed(test):
            terminalreporter.line(
                f"FAILED: skipped without being listed in tests/skips.txt: {test}: {reason}", red=True
            )


def _is_listed(test: str) -> bool:
    lines = SKIPS.read_text(encoding="utf-8").splitlines()
    patterns = [line.partition(" - ")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)
