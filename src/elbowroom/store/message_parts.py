"""Messages as rows: the text and the calls of a message in parts, its other fields as one JSON object in ASCII."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal

from elbowroom.context.transcript import Message, text_of
from elbowroom.store.base import encoded

PartKind = Literal["text", "reasoning", "content", "tool_call", "lost"]
"""`text` and `reasoning` are pieces of one text; `content` is an item of a list in its place.

`lost` is nothing that was said: what the engine had to read again for the reply.
"""
REPLY_FIELDS: Final = '{"role":"assistant","content":""}'
MOST_AT_ONCE: Final = 2**18
"""Characters of a text that are one part; a longer text has several, as the database copies a part more than once."""
_READER: Final = json.JSONDecoder(strict=False)
UNREADABLE: Final = (TypeError, ValueError, RecursionError, AttributeError, LookupError)
"""What reading raises where another program has written into the database."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a message; `content` is JSON, of a text without the quotes."""

    kind: PartKind
    content: str


def body(text: str) -> str:
    """Return a text as JSON without the quotes: such pieces can be joined."""
    return encode_basestring_ascii(text)[1:-1]


def text_in_body(content: str) -> str:
    """Return the text. Raises ValueError for a text that `body` has not made."""
    return str(_READER.decode(f'"{content}"'))


def split(message: Message) -> tuple[str, list[Part]]:
    """Return a message as fields, which are a JSON object, and parts.

    Raises TypeError, ValueError or RecursionError for values that JSON cannot hold.
    """
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    # Nearly all messages are plain text, and short.
    if len(message) == 2 and type(role) is str and type(content) is str and len(content) <= MOST_AT_ONCE:
        return f'{{"role":{encode_basestring_ascii(role)}}}', [Part("text", body(content))]
    fields = dict(message)
    parts: list[Part] = []
    if isinstance(content, str):
        del fields["content"]
        for at in range(0, max(1, len(content)), MOST_AT_ONCE):
            parts.append(Part("text", body(content[at : at + MOST_AT_ONCE])))  # noqa: PERF401  # one, as a rule
    elif isinstance(content, list) and content:
        parts += [Part("content", encoded(item)) for item in fields.pop("content")]
    if isinstance(calls, list) and calls:
        parts += [Part("tool_call", encoded(call)) for call in fields.pop("tool_calls")]
    return encoded(fields), parts


def joined(fields: str, parts: Iterable[Part]) -> tuple[dict[str, Any], str]:
    """Return the message that these make, and the reasoning before it. Raises one of UNREADABLE."""
    found: dict[str, list[str]] = {"text": [], "reasoning": [], "content": [], "tool_call": [], "lost": []}
    for part in parts:
        found[part.kind].append(part.content)
    message: dict[str, Any] = dict(json.loads(fields))
    if found["text"]:
        message["content"] = text_in_body("".join(found["text"]))
    elif found["content"]:
        message["content"] = [json.loads(item) for item in found["content"]]
    if found["tool_call"]:
        message["tool_calls"] = [json.loads(call) for call in found["tool_call"]]
    return message, text_in_body("".join(found["reasoning"]))


def text_in_part(part: Part) -> str:
    """Return the text in a part that is content; empty where it cannot be read."""
    try:
        if part.kind == "text":
            return text_in_body(part.content)
        item = json.loads(part.content)
    except UNREADABLE:
        return ""
    return text_of({"content": [item]}) if isinstance(item, str | Mapping) else ""
