"""Measures a search over 10,000 notes beside ripgrep on the same folder: the first one, and later ones."""

import argparse
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from elbowroom.vault.names import Scope
from elbowroom.vault.search import parse_query, search
from elbowroom.vault.vault import Vault

NOTES, ROUNDS = 10_000, 11
MOST = 1.5
"""How many times ripgrep's own time a search may take once the notes are in memory."""


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured in rounds, in seconds: a search before which nothing was read, one after it, and ripgrep's."""

    first: tuple[float, ...]
    later: tuple[float, ...]
    ripgrep: tuple[float, ...]

    def ratio(self, own: Sequence[float]) -> float:
        """Return how many times ripgrep's time a search takes: the median of the rounds, each compared with itself."""
        return statistics.median(mine / other for mine, other in zip(own, self.ripgrep, strict=True))

    def rows(self) -> Iterator[str]:
        """Yield the figures as lines of a table."""
        yield f"{'':<26}{'median ms':>10}{'x ripgrep':>10}"
        for name, own in (("ripgrep", self.ripgrep), ("first search", self.first), ("later searches", self.later)):
            yield f"{name:<26}{statistics.median(own) * 1000:>10.0f}{self.ratio(own):>10.2f}"


def write_notes(root: Path) -> None:
    """Write the notes: 30 lines of random words and one that ten notes share, in 100 folders, 25 MB in all."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(3, 9))) for _ in range(5000)]
    for number in range(NOTES):
        folder = root / f"f{number % 100}"
        folder.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(chance.choices(words, k=12)) for _ in range(30)]
        (folder / f"note {number}.md").write_text("\n".join([*lines, f"needle{number % 1000}"]))


def measure(root: Path, ripgrep: str) -> Figures:
    """Measure in rounds that alternate, so that other work on the machine hits all alike."""
    first, later, other = list[float](), list[float](), list[float]()
    for number in range(ROUNDS):
        word, vault = f"needle{100 + number}", Vault(str(root), Scope())
        first.append(_seconds(_found_by_search, vault, word))
        other.append(_seconds(_found_by, ripgrep, word, root))
        later.append(_seconds(_found_by_search, vault, word))
    return Figures(tuple(first), tuple(later), tuple(other))


def _found_by(ripgrep: str, word: str, root: Path) -> int:
    done = subprocess.run([ripgrep, "-ilF", word, str(root)], capture_output=True, check=True)
    return done.stdout.count(b"\n")


def _found_by_search(vault: Vault, word: str) -> int:
    return search(vault, parse_query(word), limit=10).total


def _seconds(work: Callable[..., int], *arguments: object) -> float:
    began = time.perf_counter()
    found = work(*arguments)
    taken = time.perf_counter() - began
    if found != NOTES // 1000:
        raise AssertionError(f"{found} notes were found instead of {NOTES // 1000}")
    return taken


def main(arguments: Sequence[str]) -> int:
    """Print the table; return 1 if the target is missed and `--check` asks for it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit code 1 if the target is missed")
    check = parser.parse_args(arguments).check
    ripgrep = shutil.which("rg")
    if ripgrep is None:
        sys.stderr.write("ripgrep (rg) is not installed, or not on PATH.\n")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        write_notes(Path(folder))
        figures = measure(Path(folder), ripgrep)
    sys.stdout.write("".join(f"{row}\n" for row in figures.rows()))
    return int(check and figures.ratio(figures.later) > MOST)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
