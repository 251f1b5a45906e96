"""The words that clients have received, and those of them that a database has."""

import re
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

WORD: Final = re.compile(r"[a-z]+\d+\.\d+(?= )")
EVERYTHING: Final = "SELECT p.message, p.content FROM message_parts p JOIN messages m ON m.id = p.message \
WHERE m.number > ? AND p.kind = 'text' ORDER BY m.number, p.position"


@dataclass(slots=True)
class Received:
    """Words by the time at which a client had them, since the last check; `count` of all."""

    times: dict[str, float] = field(default_factory=dict)
    count: int = 0

    def note(self, text: str, begin: int) -> int:
        """Note the whole words of an answer from a place on; return the place up to which there are whole ones."""
        now, end = time.monotonic(), begin
        for word in WORD.finditer(text, begin):
            self.times.setdefault(word[0], now)
            self.count += 1
            end = word.end()
        return end


@dataclass(frozen=True, slots=True)
class Lost:
    """How many words are missing that were received longer ago than they may take, and the age of the oldest missing.

    Ages are seconds before the process was killed or had ended.
    """

    words: int
    oldest: float


class Kept:
    """What a database has of what was said, read without the server.

    Each check reads the messages that came since the check before the last, for the last ones may still have grown.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._checked = [0, 0]

    def missing(self, received: Mapping[str, float], ended: float, may_take: float) -> Lost:
        """Compare what was received since the last check with what was written since then."""
        with closing(sqlite3.connect(f"file:{self._path}?mode=ro", uri=True)) as database:
            parts: dict[str, list[str]] = {}
            for message, content in database.execute(EVERYTHING, [self._checked.pop(0)]):
                parts.setdefault(message, []).append(content.strip('"'))
            self._checked += database.execute("SELECT coalesce(max(number), 0) FROM messages").fetchone()
        words = {word for contents in parts.values() for word in WORD.findall("".join(contents) + " ")}
        ages = [ended - at for word, at in received.items() if word not in words]
        return Lost(sum(age > may_take for age in ages), max(ages, default=0.0))
