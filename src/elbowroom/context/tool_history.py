"""Calls and results for templates that take only one call a message, or none at all."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from elbowroom.context.message_content import BLANK_LINE, is_blank, is_text, joined, parts_of
from elbowroom.context.tool_calls import calls_of
from elbowroom.context.transcript import Group, Message, Transcript, text_of


def one_call_a_message(messages: Sequence[Message]) -> list[Message]:
    """Split assistant messages with several calls: each call stands alone, its result behind it.

    Text and thoughts stay with the first call. The history has to be sound, as `repair` leaves it.
    """
    return [message for group in Transcript.of(messages).groups for message in split(group)]


def split(group: Group) -> Iterator[Message]:
    """Yield the messages of a group, one call at a time."""
    first, *results = group.messages
    calls = calls_of(first)
    if len(calls) < 2:
        yield from group.messages
        return
    for call, result in zip(calls, results, strict=True):
        if call is calls[0]:
            yield {**first, "tool_calls": [call]}
        else:
            yield {"role": "assistant", "content": "", "tool_calls": [call]}
        yield result


def results_as_text(messages: Sequence[Message]) -> list[Message]:
    """Let the user say what was called and what came back, fenced as data; the history has to be sound.

    The assistant's part keeps its text alone: a model that saw calls written out in its own words would write such
    words instead of calling.
    """
    return [message for group in Transcript.of(messages).groups for message in told(group)]


def told(group: Group) -> Iterator[Message]:
    """Yield the messages of a group without calls and results: what was said, and what the tools returned."""
    first, *results = group.messages
    calls = calls_of(first)
    if not calls:
        yield from group.messages
        return
    if not is_blank(first.get("content")):
        yield {key: value for key, value in first.items() if key != "tool_calls"}
    content: str | list[Any] = ""
    for call, result in zip(calls, results, strict=True):
        content = joined(content, report(call, result))
    yield {"role": "user", "content": content}


def report(call: Mapping[str, Any], result: Message) -> str | list[Any]:
    """Write a call and its result; what is no text of the result stays a part of its own."""
    function, text = call["function"], text_of(result)
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    written = f"Result of {function['name']}, called with {function['arguments']}:{BLANK_LINE}{fence}\n{text}\n{fence}"
    media = [part for part in parts_of(result.get("content")) if not is_text(part)]
    return [{"type": "text", "text": written}, *media] if media else written
