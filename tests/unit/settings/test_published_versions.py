"""Settings that a published version took are taken by every later one."""

from pathlib import Path

import pytest
from frozen_versions import FOLDER, FROZEN, SETTINGS, every_key
from settings_file import load

from elbowroom import __version__


@pytest.mark.parametrize("version", FROZEN)
def test_no_key_of_a_published_version_is_unknown(version: str, tmp_path: Path) -> None:
    """Each key that it had is read without a doubt."""
    loaded = load(tmp_path, (FOLDER / version / SETTINGS).read_text(encoding="utf-8"))
    assert loaded.settings.agents[0].id == "mine"
    assert loaded.warnings == ()


def test_what_is_kept_has_every_key(tmp_path: Path) -> None:
    """What `scripts/release --freeze` would write now is accepted, and more than what a person usually sets."""
    assert load(tmp_path, every_key()).warnings == ()
    assert every_key().count(" = ") > 50


def test_this_version_is_kept() -> None:
    """The version of the sources has a store and settings of its own."""
    assert __version__ in FROZEN
