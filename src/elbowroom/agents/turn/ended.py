"""What is noted about answers once they have ended: how they ended, and what the next request of their chat tells."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from elbowroom.agents.answer import Notice
from elbowroom.context.conversation import KeptTurn
from elbowroom.context.transcript import text_of

MOST_NOTED: Final = 1000  # answers of each kind
SUMMARISED: Final = "Earlier part summarised while you read: {:,} to {:,} tokens"
KEPT: Final = "The answer that broke off is kept: {words:,} words, on elbowroom's page and for the model."


class EndedAnswers:
    """Notes what became of answers, each known by its conversation's key with it, and tells each person once."""

    def __init__(self) -> None:
        self._summarised: dict[str, tuple[int, int]] = {}
        self._unfinished: dict[str, None] = {}
        self._lost: set[str] = set()

    def note_summarised(self, key: str, before: int, after: int) -> None:
        """Note a compaction of the conversation with its answer, from and to so many tokens, that nobody waited for."""
        self._summarised[key] = before, after
        _trim(self._summarised)

    def note_unfinished(self, key: str) -> None:
        """Note that a limit has ended the answer."""
        self._unfinished[key] = None
        _trim(self._unfinished)

    def has_unfinished(self, keys: Collection[str]) -> bool:
        """Tell whether a limit has ended one of these answers."""
        return not self._unfinished.keys().isdisjoint(keys)

    def news(self, keys: Sequence[str], lost: KeptTurn | None) -> list[Notice]:
        """Tell, once, what was summarised since these answers, and that an answer which the client `lost` is kept."""
        told = []
        if self._summarised:
            found = [sizes for key in keys if (sizes := self._summarised.pop(key, None))]
            told = [Notice("compacted", SUMMARISED.format(*sizes), before=sizes[0], after=sizes[1]) for sizes in found]
        if lost is not None and lost.id not in self._lost:
            self._lost.add(lost.id)
            answers = [message for message in lost.messages if message.get("role") == "assistant"]
            words = sum(len(text_of(message).split()) for message in answers)
            told.append(Notice("kept", KEPT.format(words=words)))
        return told


def _trim(noted: dict[str, Any]) -> None:
    """Forget the oldest note where there is one too many."""
    if len(noted) > MOST_NOTED:
        del noted[next(iter(noted))]
