"""Notices as lines of the answer's text, for clients that show nothing else, and the way back out of the history."""

import re
from collections.abc import Iterable

from elbowroom.context.transcript import Message

LINE = re.compile(r"(?:\A|\n\n)> \*elbowroom: [^\n]*\*(?:\n\n|\s*\Z)")


def notice_line(text: str) -> str:
    """Return a notice as a line that readers can tell from the answer, and `without_notices` too."""
    return f"\n\n> *elbowroom: {' '.join(text.split()).replace('*', '')}*\n\n"


def without_notices(messages: Iterable[Message]) -> list[Message]:
    """Return a history without the notices that a client has taken for the assistant's words and sent back."""
    return [_stripped(message) for message in messages]


def _stripped(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") != "assistant" or not isinstance(content, str) or "> *elbowroom: " not in content:
        return message
    while (shorter := LINE.sub("", content)) != content:
        content = shorter
    return {**message, "content": content}
