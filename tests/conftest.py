"""Rules for all tests: a skip has to be on the list in `skips.txt`, and no example of a property is timed.

A property is tried with 20 examples, in the long suite with 100, unless it says how many. The 20 are always the same;
the long suite draws new ones.
"""

import fnmatch
import gc
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any, NoReturn

import pytest
from aiohttp import web_app
from hypothesis import settings

SKIPS = Path(__file__).with_name("skips.txt")
IN_MEMORY = Path("/dev/shm")
"""Where Linux has a folder in memory: the tests make thousands of databases, which else wait for the disk."""
ROOM = 4 * 2**30
"""So many bytes have to be free there; the tests take some hundred MiB of it, and give them back."""


class SkipRule:
    """Collects the skips of a run; those that are not on the list fail it."""

    def __init__(self) -> None:
        self.unlisted: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail") and not _is_listed(report.nodeid):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            self.unlisted[report.nodeid] = reason.removeprefix("Skipped: ")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if self.unlisted and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, reason in self.unlisted.items():
            line = f"FAILED: skipped without being listed in tests/skips.txt: {test}: {reason}"
            terminalreporter.line(line, red=True)


def pytest_configure(config: pytest.Config) -> None:
    if IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))
    settings.register_profile("long", deadline=None)  # a busy machine is slow, and that is no failure
    settings.register_profile("quick", settings.get_profile("long"), max_examples=20, derandomize=True)
    settings.load_profile("quick" if "not long" in config.option.markexpr else "long")
    config.pluginmanager.register(SkipRule(), "skip-rule")
    signal.signal(signal.SIGINT, _interrupted)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep thousands of collected tests and all modules out of every search for garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # each test leaves a server behind: to look for one rarely is enough


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Let go of the test's applications: aiohttp keeps the last thousand, with all that they hold, in a cache."""
    try:
        return (yield)
    finally:
        web_app._cached_build_middleware.cache_clear()


def _interrupted(*_: Any) -> NoReturn:
    """Do as Python's own handler does, which asyncio would exchange for each test.

    In doing so `signal` writes down, in vain, all that the test's fixtures have returned.
    """
    raise KeyboardInterrupt


def _is_listed(test: str) -> bool:
    lines = SKIPS.read_text(encoding="utf-8").splitlines()
    patterns = [line.partition(" - ")[0].strip() for line in lines if line.strip() and not line.startswith("#")]
    return any(fnmatch.fnmatchcase(test, pattern) for pattern in patterns)
