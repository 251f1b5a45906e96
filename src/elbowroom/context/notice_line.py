"""Notices as lines of the answer's text, for clients that show nothing else, and the way back out of the history."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from elbowroom.context.message_content import is_text
from elbowroom.context.transcript import Message

MARK = "> *elbowroom: "
LINE = r"> \*elbowroom: [^\n]*\*"
LINES = re.compile(rf"(?:\A|\n\n){LINE}(?:\n\n(?:\n\n)?{LINE})*(?:\n\n|\s*\Z)")
"""One notice or several in a row, with the blank lines that came with them."""


def notice_line(text: str) -> str:
    """Return a notice as a line that readers can tell from the answer, and `without_notices` too."""
    return f"\n\n> *elbowroom: {' '.join(text.split()).replace('*', '')}*\n\n"


def without_notices(messages: Iterable[Message]) -> list[Message]:
    """Return a history without the notices that a client has taken for the assistant's words and sent back."""
    return [_stripped(message) for message in messages]


def _stripped(message: Message) -> Message:
    content = message.get("content")
    if message.get("role") != "assistant" or (isinstance(content, str) and MARK not in content):
        return message
    without = [_without(part) for part in content] if isinstance(content, list) else _without(content)
    return message if without == content else {**message, "content": without}


def _without(part: Any) -> Any:
    """Return a text or a part of text without notices, and any other part as it is."""
    if isinstance(part, Mapping) and is_text(part):
        return {**part, "text": _without(part["text"])}
    if not isinstance(part, str) or MARK not in part:
        return part
    return LINES.sub("", part)
