"""How long the answers of a conversation have been, by which room is kept for its next one."""

from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final

from elbowroom.caches import Recent
from elbowroom.context.reuse import Talk

CONVERSATIONS: Final = 512
NEWEST: Final = 64


class Answers:
    """The tokens of the newest answers of the conversations used last, thoughts and calls included, by their model."""

    def __init__(self) -> None:
        self._of_talks = Recent[Hashable, deque[int]]("answers", CONVERSATIONS)

    def note(self, talk: Talk, model: str, tokens: int) -> None:
        """Note an answer of a conversation."""
        sizes = self._known(talk.sought, model) or deque(maxlen=NEWEST)
        sizes.append(tokens)
        for key in talk.kept:
            self._of_talks.put((model, key), sizes)

    def of(self, talk: Talk, model: str) -> tuple[int, ...]:
        """Return the sizes of the answers that this model has given in a conversation, from small to large."""
        return tuple(sorted(self._known(talk.sought, model) or ()))

    def _known(self, keys: Sequence[Hashable], model: str) -> deque[int] | None:
        return next((found for key in keys if (found := self._of_talks.get((model, key))) is not None), None)
