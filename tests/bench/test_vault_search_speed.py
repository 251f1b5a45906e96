"""How long a search over 10,000 notes takes, beside ripgrep on the same notes."""

import random
import shutil
import statistics
import subprocess
import time
from pathlib import Path

import pytest
from vaults import vault_of

from elbowroom.vault.search import parse_query, search

RIPGREP = shutil.which("rg")
ROUNDS = 11
MOST = 1.5


@pytest.mark.long
@pytest.mark.skipif(RIPGREP is None, reason="ripgrep is not installed")
def test_search_beside_ripgrep(tmp_path: Path) -> None:
    """With the notes in memory, a search, the look for changed notes included, takes at most 1.5 times ripgrep's time.

    Rounds alternate, and their ratios are compared, so that other work on the machine hits both.
    """
    assert RIPGREP is not None
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(5000)]
    root = tmp_path / "vault"
    for number in range(10_000):
        (root / f"f{number % 100}").mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(words, k=12)) for _ in range(30)]
        (root / f"f{number % 100}" / f"note {number}.md").write_text("\n".join([*lines, f"needle{number % 1000}"]))
    vault = vault_of(tmp_path, {})
    vault.refresh()
    ratios = []
    for number in range(ROUNDS):
        word = f"needle{100 + number}"
        began = time.perf_counter()
        found = search(vault, parse_query(word), limit=10)
        own = time.perf_counter() - began
        began = time.perf_counter()
        grep = subprocess.run([RIPGREP, "-ilF", word, str(root)], capture_output=True, check=True)
        ratios.append(own / (time.perf_counter() - began))
        assert found.total == grep.stdout.count(b"\n") == 10
    assert statistics.median(ratios) <= MOST, ratios
