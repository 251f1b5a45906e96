"""How long a search over 10,000 notes takes, beside ripgrep on the same notes."""

import shutil
from pathlib import Path

import pytest
from vault_search import MOST, measure, write_notes

RIPGREP = shutil.which("rg")


@pytest.mark.long
@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
def test_search_beside_ripgrep(tmp_path: Path) -> None:
    """With the notes in memory, a search, the look for changed notes included, takes at most 1.5 times ripgrep's time.

    The first search, which reads them all, takes longer: how much is measured, and bounded widely.
    """
    assert RIPGREP is not None
    write_notes(tmp_path)
    figures = measure(tmp_path, RIPGREP)
    assert figures.ratio(figures.later) <= MOST, figures
    assert figures.ratio(figures.first) <= 6, figures
