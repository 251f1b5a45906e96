"""The content of messages: text or parts, joined without losing any of it."""

from collections.abc import Mapping
from typing import Any

from elbowroom.context.transcript import Message

BLANK_LINE = "\n\n"


def is_blank(content: object) -> bool:
    """Tell whether content says nothing: it is null, empty or white space; any part other than text says something."""
    if isinstance(content, str):
        return not content.strip()
    if not isinstance(content, list):
        return True
    return all(is_text(part) and is_blank(text_in(part)) for part in content)


def is_text(part: object) -> bool:
    """Tell whether a part of content is text."""
    return isinstance(part, str) or (isinstance(part, Mapping) and isinstance(part.get("text"), str))


def text_in(part: object) -> str:
    """Return the text of a text part."""
    return str(part["text"]) if isinstance(part, Mapping) else str(part)


def parts_of(content: object) -> list[Any]:
    """Return content as a list of parts; there are none in empty content."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return list(content) if isinstance(content, list) else []


def joined(first: object, second: object) -> str | list[Any]:
    """Join the contents of two messages with a blank line between their texts; media stay parts."""
    if not isinstance(first, list) and not isinstance(second, list):
        return BLANK_LINE.join(text for text in (first, second) if isinstance(text, str) and text)
    before, after = parts_of(first), parts_of(second)
    if before and after and is_text(before[-1]) and is_text(after[0]):
        text = BLANK_LINE.join(filter(None, (text_in(before.pop()), text_in(after.pop(0)))))
        before.append({"type": "text", "text": text})
    return before + after


def flattened(content: object) -> object:
    """Return content of text parts alone as one text, a line each; any other content as it is."""
    if isinstance(content, list) and all(is_text(part) for part in content):
        return "\n".join(text_in(part) for part in content)
    return content


def with_text(message: Message, text: str) -> Message:
    """Return a message with another text; what is no text of it stays."""
    media = [part for part in parts_of(message.get("content")) if not is_text(part)]
    return {**message, "content": [*parts_of(text), *media] if media else text}


def merged(first: Message, second: Message) -> Message:
    """Return one message that says what both say; keys other than texts are the second's where both have them."""
    message = {**first, **second, "content": joined(first.get("content"), second.get("content"))}
    thoughts = [message.get("reasoning_content") for message in (first, second)]
    if any(thoughts):
        message["reasoning_content"] = BLANK_LINE.join(str(thought) for thought in thoughts if thought)
    return message


def whole_characters(text: str) -> str:
    """Join the halves of split characters and replace those that have no other half: no encoder takes them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
