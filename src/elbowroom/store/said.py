"""An index of what was said in one conversation, in memory: SQLite's full-text search ranks its passages by BM25."""

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final

from elbowroom.errors import RequestError

MAKE: Final = (
    "CREATE VIRTUAL TABLE said USING fts5"
    "(text, content='', tokenize=\"porter unicode61 remove_diacritics 0 categories 'L* M* N* Co'\")"
)
BEST: Final = "SELECT rowid FROM said WHERE said MATCH ? ORDER BY rank, rowid DESC LIMIT ?"
WEIGHTS: Final = "SELECT rowid, -rank FROM said WHERE said MATCH ?"
BEYOND: Final = "SELECT rowid FROM said WHERE said MATCH ? LIMIT 1 OFFSET ?"
NO_FULL_TEXT: Final = (
    "What was said cannot be searched by words: the SQLite of this Python has no full-text search (FTS5: {error}). Run "
    "elbowroom with another Python; a regular expression can be searched for meanwhile."
)


class SaidIndex:
    """The passages of a conversation by their words, with English word endings taken off; safe for all threads.

    A passage is known by its number, from 0 on in the order in which they came. Raises RequestError where this Python's
    SQLite has no full-text search.
    """

    def __init__(self) -> None:
        import sqlite3

        self._lock = threading.Lock()
        self._database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        weakref.finalize(self, self._database.close)
        try:
            self._database.execute(MAKE)
        except sqlite3.OperationalError as error:
            raise RequestError(NO_FULL_TEXT.format(error=error)) from error
        self.size = 0
        self.letters = 0

    def add(self, passages: Iterable[str]) -> None:
        """Add passages after those that are there, in the form in which a search reads them."""
        with self._lock:
            rows = list(enumerate(passages, self.size + 1))
            self._database.execute("BEGIN")
            self._database.executemany("INSERT INTO said (rowid, text) VALUES (?, ?)", rows)
            self._database.execute("COMMIT")
            self.size += len(rows)
            self.letters += sum(len(text) for _, text in rows)

    def best(self, words: Sequence[str], most: int, *, begun: bool = False) -> list[int]:
        """Return the passages that have one of the words, the best by BM25 first and of equal ones the newest.

        With `begun` also those in which a word only begins so.
        """
        search = " OR ".join(f"{_quoted(word)}{'*' if begun else ''}" for word in words)
        return [number - 1 for (number,) in self._asked(BEST, search, most)] if search else []

    def weights(self, word: str, most: int) -> dict[int, float]:
        """Return the passages that have a word, with its weight in each by BM25; none where they are more than `most`.

        A common word costs no more than that: it is not ranked.
        """
        if self._asked(BEYOND, _quoted(word), most):
            return {}
        return {number - 1: weight for number, weight in self._asked(WEIGHTS, _quoted(word))}

    def _asked(self, statement: str, *values: str | int) -> list[Any]:
        with self._lock:
            return self._database.execute(statement, values).fetchall()


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'
