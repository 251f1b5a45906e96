"""The indexes of conversations' pasts that stay in memory between their turns."""

from collections.abc import Sequence
from typing import Final

from elbowroom.agents.tools.recall.past_index import PastIndex
from elbowroom.caches import Recent

MOST_INDEXES: Final = 8
MOST_LETTERS: Final = 16_000_000
"""A longer past is indexed anew for each question: its index would take some fifty megabytes."""


class Pasts:
    """Indexes by the key of the last message in them. Whoever takes one has it alone until it is kept again."""

    def __init__(self) -> None:
        self._indexes = Recent[str, tuple[int, PastIndex]]("past_indexes", MOST_INDEXES)

    def take(self, keys: Sequence[str]) -> tuple[int, PastIndex]:
        """Return the index of the longest beginning of these messages, with their number; a new one where none is."""
        for key in reversed(keys):
            if (found := self._indexes.take(key)) is not None:
                return found
        return 0, PastIndex()

    def keep(self, keys: Sequence[str], index: PastIndex) -> None:
        """Keep an index of all these messages."""
        if index.letters <= MOST_LETTERS:
            self._indexes.put(keys[-1], (len(keys), index))
