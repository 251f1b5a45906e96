"""The version has one place, `src/elbowroom/__init__.py`; every other file that has to state it says the same."""

import json
import re
from pathlib import Path
from typing import Any

from elbowroom import __version__

REPOSITORY = Path(__file__).parents[2]
CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text(encoding="utf-8")


def stated(path: str) -> Any:
    """Return what a JSON file of the plugin says."""
    return json.loads((REPOSITORY / "obsidian" / path).read_text(encoding="utf-8"))


def test_the_plugin_has_the_version_of_the_program() -> None:
    """Manifest, package and lock file say it, and Obsidian's list knows what it needs; `scripts/release --set` does."""
    lock = stated("package-lock.json")
    said = [stated("manifest.json")["version"], stated("package.json")["version"], lock["version"]]
    assert {*said, lock["packages"][""]["version"]} == {__version__}
    assert stated("versions.json")[__version__] == stated("manifest.json")["minAppVersion"]


def test_the_changelog_has_a_dated_section_of_the_version() -> None:
    """A release is what its section says, short enough to be read in three minutes; what comes next stands above it."""
    headings = re.findall(r"^## (.+)$", CHANGELOG, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])
    section = CHANGELOG.split(f"## {headings[1]}\n")[1].split("\n## ")[0]
    assert len(section.split()) <= 900
