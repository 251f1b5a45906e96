"""Reads `unseen_outputs.txt`: outputs of programs that failed, and the words in each that say what did."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from random import Random

OUTPUTS = Path(__file__).with_suffix(".txt")
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "karst", "larch", "onyx")
KEPT = re.compile("⟦(.*?)⟧")
MARKS = re.compile("[⟦⟧]")


@dataclass(frozen=True)
class Unseen:
    """One output: the lines that it repeats and the others, in order, and the words that have to be seen."""

    name: str
    lines: tuple[tuple[str, str], ...]
    words: tuple[str, ...]

    def output(self, characters: int) -> str:
        """Return the output with about so many characters, its repeated lines shared out over their places."""
        random = Random(self.name)
        blocks = [(mark, [line for _, line in block]) for mark, block in groupby(self.lines, key=lambda line: line[0])]
        share = characters // max(1, sum(mark == "~" for mark, _ in blocks))
        written = [_filled(lines, share, random) if mark == "~" else lines for mark, lines in blocks]
        return "\n".join(line for lines in written for line in lines)


def _filled(lines: list[str], characters: int, random: Random) -> list[str]:
    return [
        _as_read(line, random) for _ in range(1 + characters // sum(len(line) + 1 for line in lines)) for line in lines
    ]


def _as_read(line: str, random: Random) -> str:
    line = re.sub(r"\{n\}", lambda _: str(random.randrange(1, 900)), line)
    line = re.sub(r"\{w\}", lambda _: random.choice(WORDS), line)
    return re.sub(r"\{h\}", lambda _: f"{random.getrandbits(40):010x}", line)


def read(lines: Iterable[str]) -> list[Unseen]:
    """Return the outputs that such a file holds."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if line.startswith("@ "):
            found.append((line[2:], []))
        elif found and line:
            found[-1][1].append(line)
    return [
        Unseen(
            name,
            tuple((" " if line[0] == "!" else line[0], MARKS.sub("", line[2:])) for line in body),
            tuple(word for line in body if line[0] == "!" for word in KEPT.findall(line)),
        )
        for name, body in found
    ]


UNSEEN = read(OUTPUTS.read_text(encoding="utf-8").split("\n"))
