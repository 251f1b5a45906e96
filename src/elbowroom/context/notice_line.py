"""Notices as lines of the answer's text, for clients that show nothing else, and the way back out of the history."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from elbowroom.context.transcript import Message

MARK: Final = "> *elbowroom: "
LINE: Final = re.compile(r"(?:\A|\n\n)> \*elbowroom: [^\n]*\*(?:\n\n|\s*\Z)")


def notice_line(text: str) -> str:
    """Return a notice as a line that readers can tell from the answer, and `without_notices` too."""
    return f"\n\n{MARK}{' '.join(text.split()).replace('*', '')}*\n\n"


def without_notices(messages: Iterable[Message]) -> list[Message]:
    """Return a history without the notices that a client has taken for the assistant's words and sent back."""
    return [_stripped(message) for message in messages]


def _stripped(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") != "assistant":
        return message
    if isinstance(content, list):
        return {**message, "content": [_stripped_part(part) for part in content]}
    return {**message, "content": _without_lines(content)} if isinstance(content, str) else message


def _stripped_part(part: Any) -> Any:
    """Return a part of a message's content, with the notices out of its text; images and the like stay."""
    if not isinstance(part, Mapping) or not isinstance(text := part.get("text"), str):
        return part
    return {**part, "text": _without_lines(text)}


def _without_lines(text: str) -> str:
    if MARK not in text:
        return text
    while (shorter := LINE.sub("", text)) != text:
        text = shorter
    return text
