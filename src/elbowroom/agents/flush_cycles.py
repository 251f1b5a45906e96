"""Which conversations were asked to save what must last, so that each is asked once from one compaction to the next."""

import hashlib
from collections.abc import Sequence
from typing import Final

from elbowroom.context.canonical import json_form
from elbowroom.context.division import is_summary
from elbowroom.context.ledger import Chain
from elbowroom.context.transcript import Message, Transcript

MOST_KEYS: Final = 5000


def cycle_of(messages: Sequence[Message]) -> str:
    """Return what tells the time between two compactions from any other: what stands for the part that is gone.

    Before the first compaction nothing does. Whatever else is shortened or added in between changes nothing.
    """
    summaries = [group.text for group in Transcript.of(messages).groups if is_summary(group)]
    return hashlib.sha256(json_form(summaries)).hexdigest() if summaries else ""


class FlushedBefore:
    """When conversations were asked last, by the keys of their chains; beyond its bounds the oldest go.

    It lasts as long as the server. After a restart a conversation may be asked once more in the same cycle.
    """

    def __init__(self, most_keys: int = MOST_KEYS) -> None:
        self._most_keys = most_keys
        self._cycles: dict[str, str | None] = {}  # in the order in which they were noted

    def is_done(self, chain: Chain, cycle: str) -> bool:
        """Tell whether a conversation was asked in this cycle, by its longest beginning that is known."""
        known = (key for key in reversed(chain.keys) if key in self._cycles)
        return self._cycles.get(next(known, "")) == cycle

    def note_done(self, key: str, cycle: str) -> None:
        """Note that the conversation that ends with this key was asked in this cycle."""
        self._note(key, cycle)

    def note_compacted(self, key: str) -> None:
        """Note that the next cycle of the conversation that ends with this key begins."""
        self._note(key, None)

    def _note(self, key: str, cycle: str | None) -> None:
        self._cycles.pop(key, None)
        self._cycles[key] = cycle
        while len(self._cycles) > self._most_keys:
            del self._cycles[next(iter(self._cycles))]
