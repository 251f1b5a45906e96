"""Leaves out the middle of a request's longest text; the order at its beginning and end stays word for word."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.message_content import is_text, text_in
from elbowroom.context.transcript import SYSTEM_ROLES, Message

MARK: Final = "\n[… a part is left out here …]\n"
HISTORY_BEGINS, HISTORY_ENDS = "<chat_history>", "</chat_history>"
BEGINNING_KEPT: Final = 1000
END_KEPT: Final = 500
"""Characters of a text that stay where nothing says which part of it is history."""


@dataclass(frozen=True, slots=True)
class MiddleCut:
    """A text of a request that can be shortened: what stands from `start` to `end` is what may be left out of it.

    `part` is the text's place in the content of its message, None where the content is the text.
    """

    messages: tuple[Message, ...]
    message: int
    part: int | None
    start: int
    end: int

    @property
    def length(self) -> int:
        """Return how many characters may be left out."""
        return self.end - self.start

    def showing(self, shown: int) -> tuple[Message, ...]:
        """Return the messages with only so many of these characters: the first and the last ones, half and half."""
        text = self._text
        head = text[: self.start + (shown + 1) // 2]
        tail = text[self.end - shown // 2 :]
        return self._with_text(f"{head}{MARK}{tail}")

    @property
    def _text(self) -> str:
        content = self.messages[self.message]["content"]
        return text_in(content if self.part is None else content[self.part])

    def _with_text(self, text: str) -> tuple[Message, ...]:
        message = self.messages[self.message]
        content: object = text
        if self.part is not None:
            parts = list(message["content"])
            parts[self.part] = {**parts[self.part], "text": text} if isinstance(parts[self.part], Mapping) else text
            content = parts
        changed = {**message, "content": content}
        return (*self.messages[: self.message], changed, *self.messages[self.message + 1 :])


def longest_cut(messages: Sequence[Message]) -> MiddleCut | None:
    """Return the cut that can free the most; None where no text is long enough for one.

    System messages are never cut: they hold the order, or a list that would be broken.
    """
    kept = tuple(messages)
    cuts = [
        MiddleCut(kept, index, part, *_span(text))
        for index, message in enumerate(kept)
        if message.get("role") not in SYSTEM_ROLES
        for part, text in _texts(message)
    ]
    longest = max(cuts, key=lambda cut: cut.length, default=None)
    return longest if longest is not None and longest.length > len(MARK) else None


def _texts(message: Message) -> Iterator[tuple[int | None, str]]:
    """Yield each text of a message with its place in the content."""
    content = message.get("content")
    if isinstance(content, str):
        yield None, content
    elif isinstance(content, list):
        yield from ((place, text_in(part)) for place, part in enumerate(content) if is_text(part))


def _span(text: str) -> tuple[int, int]:
    """Return from where to where a text may be cut: its history where that is marked, else all but its ends."""
    begins, ends = text.find(HISTORY_BEGINS), text.rfind(HISTORY_ENDS)
    if 0 <= begins < ends:
        return begins + len(HISTORY_BEGINS), ends
    return BEGINNING_KEPT, max(BEGINNING_KEPT, len(text) - END_KEPT)
