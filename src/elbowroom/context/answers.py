"""How long the answers of a conversation have been, by which room is kept for its next one."""

from collections.abc import Hashable
from typing import Final

from elbowroom.caches import Recent
from elbowroom.context.reuse import Talk

CONVERSATIONS: Final = 512
NEWEST: Final = 64


class Answers:
    """The tokens of the newest answers of the conversations used last, thoughts and calls included, by their model."""

    def __init__(self) -> None:
        self._of_talks = Recent[Hashable, tuple[int, ...]]("answers", CONVERSATIONS)

    def note(self, talk: Talk, model: str, tokens: int) -> None:
        """Note an answer of a conversation."""
        sizes = tuple([*self.of(talk, model), tokens][-NEWEST:])
        for key in talk.kept:
            self._of_talks.put((model, key), sizes)

    def of(self, talk: Talk, model: str) -> tuple[int, ...]:
        """Return the sizes of the answers that this model has given in a conversation, the newest last."""
        for key in talk.sought:
            if (found := self._of_talks.get((model, key))) is not None:
                return found
        return ()
