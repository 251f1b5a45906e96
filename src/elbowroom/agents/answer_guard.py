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
        self._opening = ""

    @classmethod
    def behind(cls, messages: Sequence[Message]) -> "AnswerGuard":
        """Return one for the answer to these; where they end with the beginning of that answer, it has read it."""
        guard = cls()
        last = messages[-1] if messages else {}
        if last.get("role") == "assistant":
            guard._go_on_behind(text_of(last))
        return guard

    def passed(self, event: Said) -> list[Said]:
        """Return what is to be shown now that this has come: it, less of it, or what was held back before it.

        Probabilities of tokens are left out where the text is not theirs.
        """
        if isinstance(event, ReasoningDelta):
            self._field = event.field
            return self._thought(self._thoughts.feed(event.text))
        thought = self._thought(self._thoughts.cut())
        text = self._opened(self._text.feed(event.text))
        if text == event.text:
            return [*thought, event]
        return [*thought, TextDelta(text)] if text else thought

    def end_attempt(self, *, goes_on: bool) -> list[Said]:
        """Return what is still held back at the end of a request, behind which the same text may go on."""
        thoughts, text = self._thoughts, self._text
        thought = self._thought(thoughts.cut() if goes_on else thoughts.end())
        rest = self._opened(text.cut() if goes_on else text.end())
        return [*thought, TextDelta(rest)] if rest else thought

    def drop(self) -> None:
        """Forget what has been held back of a request that has failed."""
        self._thoughts.drop()
        self._text.drop()

    def paragraph(self, text: str) -> str:
        """Return a whole paragraph of the answer as it is to be shown."""
        return self._text.feed(text) + self._text.end()

    def _go_on_behind(self, said: str) -> None:
        """Read a text that the client has already; where an image may have begun, a blank line is to end it."""
        self._text.feed(said)
        if self._text.held in ("", "!", "]"):
            self._text.cut()
        else:
            self._text.end()
            self._opening = "\n\n"

    def _opened(self, text: str) -> str:
        """Return the text with what has to stand before the first of it."""
        opening, self._opening = (self._opening, "") if text else ("", self._opening)
        return opening + text

    def _thought(self, text: str) -> list[Said]:
        return [ReasoningDelta(text, self._field)] if text else []
