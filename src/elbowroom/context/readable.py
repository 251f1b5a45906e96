"""Messages as text to read: for a pruning agent, for a digest, for the first words of a row."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from elbowroom.context.message_content import is_text, parts_of, text_in
from elbowroom.context.transcript import Group, Message

KINDS = {"image_url": "image", "input_image": "image", "input_audio": "audio", "input_file": "file"}


def readable(message: Message) -> str:
    """Return the text of a message; a part that is no text is named where it stands, as "[image]"."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "\n".join(filter(None, (text_in(part) if is_text(part) else named(part) for part in parts_of(content))))


def named(part: object) -> str:
    """Return the name of a part of content in brackets."""
    kind = part.get("type") if isinstance(part, Mapping) else None
    return f"[{KINDS.get(kind, kind)}]" if isinstance(kind, str) else ""


def called(message: Message) -> Iterator[tuple[str, str]]:
    """Yield name and arguments of the calls in a message, as text whatever they are."""
    for call in message.get("tool_calls") or ():
        function: Any = call.get("function") if isinstance(call, Mapping) else None
        if isinstance(function, Mapping):
            arguments = function.get("arguments") or ""
            as_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            yield str(function.get("name") or "a tool"), as_text


def written(message: Message) -> str:
    """Return everything that a message says to a reader: who speaks, the text, and calls with their arguments."""
    calls = "".join(f"\n(calls {name} with {arguments})" for name, arguments in called(message))
    return f"{message.get('role')}: {readable(message)}{calls}"


def written_out(group: Group) -> str:
    """Return a group's messages, written out."""
    return "\n".join(written(message) for message in group.messages)
