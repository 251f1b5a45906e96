"""How long the answers of a conversation have been, and how long its person has read them.

Room is kept for the next answer by the one, and a plan that is made meanwhile is as long as the other allows.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from statistics import median
from typing import Final

from elbowroom.caches import Recent
from elbowroom.context.costs import LEAST_TOLD
from elbowroom.context.reuse import Talk

CONVERSATIONS: Final = 512
NEWEST: Final = 64


@dataclass(frozen=True, slots=True)
class Given:
    """The newest answers that a model has given in a conversation: their `sizes` in tokens, the newest last.

    The last has `ended` at this time, and a person has read others before the next message for so many seconds: the
    `pauses`.
    """

    sizes: tuple[int, ...] = ()
    ended: float | None = None
    pauses: tuple[float, ...] = ()

    @property
    def pause(self) -> float | None:
        """Return for how many seconds an answer is usually read; None where that is not known, or a program asks."""
        usual = median(self.pauses) if self.pauses else 0.0
        return usual if usual >= LEAST_TOLD else None


NOTHING_GIVEN: Final = Given()


class Answers:
    """The newest answers of the conversations used last, thoughts and calls included, by their model."""

    def __init__(self) -> None:
        self._of_talks = Recent[Hashable, Given]("answers", CONVERSATIONS)

    def note(self, talk: Talk, model: str, tokens: int, asked: float | None = None, ended: float | None = None) -> None:
        """Note an answer of a conversation, that a person has `asked` for, and when it ended."""
        before = self.of(talk, model)
        pauses = before.pauses
        if asked is not None and before.ended is not None:
            pauses = (*pauses, asked - before.ended)[-NEWEST:]
        given = Given((*before.sizes, tokens)[-NEWEST:], ended, pauses)
        for key in talk.kept:
            self._of_talks.put((model, key), given)

    def of(self, talk: Talk, model: str) -> Given:
        """Return the answers that this model has given in a conversation."""
        for key in talk.sought:
            if (found := self._of_talks.get((model, key))) is not None:
                return found
        return NOTHING_GIVEN
