"""Leaves out the middles of a request's longest texts; orders at their beginnings and ends stay word for word."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from elbowroom.context.message_content import is_text, text_in
from elbowroom.context.normalise import with_content
from elbowroom.context.transcript import SYSTEM_ROLES, Message

MARK: Final = "\n[… a part is left out here …]\n"
HISTORY_BEGINS, HISTORY_ENDS = "<chat_history>", "</chat_history>"
BEGINNING_KEPT: Final = 1000
END_KEPT: Final = 500
"""Characters of a text that stay where nothing says which part of it is history."""


def longest_middle(messages: Sequence[Message]) -> int:
    """Return how many characters of one text may be left out at most; 0 where none is worth the mark.

    System messages are never cut: they hold the order, or a list that would be broken.
    """
    middles = [end - start for message in messages for start, end in map(_middle, _texts(message))]
    longest = max(middles, default=0)
    return longest if longest > len(MARK) else 0


def with_short_middles(messages: Sequence[Message], shown: int) -> list[Message]:
    """Return the messages with at most so many characters of each text's middle: its first and last ones.

    The longest texts are cut first by this, and the others not before these are as short as they are. Messages that
    need no cut are the very same.
    """
    return [
        message
        if message.get("role") in SYSTEM_ROLES
        else with_content(message, _cut_content(message.get("content"), shown))
        for message in messages
    ]


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    if message.get("role") in SYSTEM_ROLES:
        return
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (text_in(part) for part in content if is_text(part))


def _cut_content(content: Any, shown: int) -> Any:
    """Return content with its texts cut: itself where none of them is."""
    if isinstance(content, str):
        return _cut(content, shown)
    if not isinstance(content, list):
        return content
    parts = [_cut_part(part, shown) for part in content]
    return content if parts == content else parts


def _cut_part(part: Any, shown: int) -> Any:
    if not is_text(part):
        return part
    text = _cut(text_in(part), shown)
    return {**part, "text": text} if isinstance(part, Mapping) else text


def _cut(text: str, shown: int) -> str:
    start, end = _middle(text)
    if end - start <= shown + len(MARK):
        return text
    return f"{text[: start + (shown + 1) // 2]}{MARK}{text[end - shown // 2 :]}"


def _middle(text: str) -> tuple[int, int]:
    """Return from where to where a text may be cut: its history where that is marked, else all but its ends."""
    begins, ends = text.find(HISTORY_BEGINS), text.rfind(HISTORY_ENDS)
    if 0 <= begins < ends:
        return begins + len(HISTORY_BEGINS), ends
    return BEGINNING_KEPT, max(BEGINNING_KEPT, len(text) - END_KEPT)
