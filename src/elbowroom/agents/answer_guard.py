"""Keeps remote images out of an answer: what its agent has read may have talked the model into writing one."""

from collections.abc import Sequence

from elbowroom.context.remote_images import ImageGuard
from elbowroom.context.transcript import Message, text_of
from elbowroom.providers.events import ReasoningDelta, TextDelta

Said = TextDelta | ReasoningDelta


class AnswerGuard:
    """Turns remote images into links in one answer, over all its steps and agents; thoughts have a guard of their own.

    What it returns is the answer from there on: for the client, and for the model that reads its own words again.
    """

    def __init__(self) -> None:
        self._text = ImageGuard()
        self._thoughts = ImageGuard()
        self._field = ReasoningDelta("").field

    @classmethod
    def behind(cls, messages: Sequence[Message]) -> "AnswerGuard":
        """Return one for the answer to these; where they end with the beginning of that answer, it has read it."""
        guard = cls()
        last = messages[-1] if messages else {}
        if last.get("role") == "assistant":
            guard._text.feed(text_of(last))
            guard._text.cut()
        return guard

    def passed(self, event: Said) -> list[Said]:
        """Return what is to be shown now that this has come: it, less of it, or what was held back before it.

        Probabilities of tokens are left out where the text is not theirs.
        """
        if isinstance(event, ReasoningDelta):
            self._field = event.field
            return self._thought(self._thoughts.feed(event.text))
        thought = self._thought(self._thoughts.cut())
        text = self._text.feed(event.text)
        if text == event.text:
            return [*thought, event]
        return [*thought, TextDelta(text)] if text else thought

    def end_attempt(self, *, goes_on: bool) -> list[Said]:
        """Return what is still held back at the end of a request, behind which the same text may go on."""
        thoughts, text = self._thoughts, self._text
        rest = thoughts.cut() if goes_on else thoughts.end(), text.cut() if goes_on else text.end()
        return [*self._thought(rest[0]), *([TextDelta(rest[1])] if rest[1] else ())]

    def drop(self) -> None:
        """Forget what has been held back of a request that has failed."""
        self._thoughts.drop()
        self._text.drop()

    def paragraph(self, text: str) -> str:
        """Return a whole paragraph of the answer as it is to be shown."""
        return self._text.feed(text) + self._text.end()

    def _thought(self, text: str) -> list[Said]:
        return [ReasoningDelta(text, self._field)] if text else []
