"""The plugin's own checks and tests, in Node: types and lint at zero, and main.js as the build writes it."""

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from client_libraries import LibraryUnavailableError
from obsidian_plugin import PLUGIN, ROOT, SOURCES, packages

NOTICE_KINDS = ROOT / "src" / "elbowroom" / "agents" / "answer.py"
"""Where the tests of the plugin read which kinds of notices there are."""

pytestmark = [pytest.mark.long, pytest.mark.timeout(700)]


@cache
def packages_or_reason() -> Path | LibraryUnavailableError:
    """Install the packages; return why it cannot be done, where it cannot."""
    try:
        return packages()
    except LibraryUnavailableError as error:
        return error


@pytest.mark.parametrize("script", ["check", "test"])
def test_the_script_finds_nothing(script: str) -> None:
    """`npm run check` and `npm test` pass for the sources as they are, next to fresh packages of the lock file."""
    folder = packages_or_reason()
    if isinstance(folder, LibraryUnavailableError):
        pytest.skip(str(folder))
    with TemporaryDirectory(dir=folder.parent) as home:
        skipped = shutil.ignore_patterns("node_modules")
        copied = shutil.copytree(SOURCES, Path(home, "obsidian"), symlinks=True, ignore=skipped)
        shutil.copytree(PLUGIN, Path(home, PLUGIN.relative_to(ROOT)))
        kinds = Path(home, NOTICE_KINDS.relative_to(ROOT))
        kinds.parent.mkdir(parents=True)
        shutil.copyfile(NOTICE_KINDS, kinds)
        command = [shutil.which("npm") or "npm", "run", script]
        done = subprocess.run(
            command, cwd=copied, capture_output=True, text=True, timeout=300, env={**os.environ, "NO_COLOR": "1"}
        )
    assert done.returncode == 0, done.stdout + done.stderr
