"""Shortens the conversation in a task: to its first and last exchange, all that a title needs, or by middles of texts.

The order of a task, which says what to make of the conversation, stays as it is.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from elbowroom.context.compaction import find_values, spoken
from elbowroom.context.transcript import SYSTEM_ROLES, Message, calls_of, is_text, text_in, with_content

MARK: Final = "\n[… a part is left out here …]\n"
HISTORIES: Final = (("<chat_history>", "</chat_history>"), ("<conversation>", "</conversation>"))
"""What stands around a conversation in a task, of Open WebUI and of coding agents."""
BEGINNING_KEPT: Final = 1000
END_KEPT: Final = 500
"""Characters of a text that stay where nothing says which part of it is history."""
BEGINNING_SHOWN: Final = 800
END_SHOWN: Final = 400
"""Characters of a text that are shown of its beginning and its end."""
SPEAKER: Final = re.compile(r"^(?:USER|ASSISTANT): ", re.MULTILINE)
"""How Open WebUI begins each message of a conversation that it writes into a task."""
ASKS: Final = "USER: "
LONGEST_TITLE: Final = 200


def marked_history(text: str) -> tuple[int, int] | None:
    """Return where the conversation in a task begins and ends; None where nothing marks it."""
    for opening, closing in HISTORIES:
        begins, ends = text.find(opening), text.rfind(closing)
        if 0 <= begins < ends:
            return begins + len(opening), ends
    return None


def with_ends_of_history(messages: Sequence[Message]) -> list[Message]:
    """Return a task with the first and the last exchange of its conversation; where nothing marks that, as it is."""
    return [
        with_content(message, _with_ends(content))
        if isinstance(content := message.get("content"), str) and message.get("role") not in SYSTEM_ROLES
        else message
        for message in messages
    ]


def _with_ends(text: str) -> str:
    if (place := marked_history(text)) is None:
        return text
    begin, end = place
    return text[:begin] + _ends_of(text[begin:end]) + text[end:]


def _ends_of(history: str) -> str:
    """Return the first and the last exchange of a conversation; each begins where the person speaks."""
    starts = [match.start() for match in SPEAKER.finditer(history)]
    said = [history[start:end] for start, end in pairwise([*starts, len(history)])]
    asked = [at for at, text in enumerate(said) if text.startswith(ASKS)]
    texts = [_shortened(text) for text in said]
    if len(asked) > 2:
        texts = [*texts[: asked[1]], MARK.lstrip("\n"), *texts[asked[-1] :]]
    return history[: starts[0] if starts else None] + "".join(texts)


def _shortened(text: str) -> str:
    """Return one message by its ends, with the line break that follows it."""
    if len(text) <= BEGINNING_SHOWN + len(MARK) + END_SHOWN:
        return text
    return text[:BEGINNING_SHOWN] + MARK + text[-END_SHOWN:]


def order_of(messages: Sequence[Message]) -> str:
    """Return the text at the end of the last message that is not the system's."""
    said = [message for message in messages if message.get("role") not in SYSTEM_ROLES]
    *_, order = ["", *(text for message in said[-1:] for text in _texts(message))]
    return order


def longest_middle(messages: Sequence[Message], order: str = "") -> int:
    """Return how many characters of one text may be left out at most; 0 where the mark would be longer.

    System messages are never cut: they hold the order, or a list that would be broken. Of an `order` that is given,
    only the conversation in it is.
    """
    middles = [end - start for message in messages for start, end in (_middle(text, order) for text in _texts(message))]
    longest = max(middles, default=0)
    return longest if longest > len(MARK) else 0


def with_short_middles(messages: Sequence[Message], shown: int, order: str = "") -> list[Message]:
    """Return the messages with at most `shown` characters of each text's middle, its first and its last ones.

    This cuts the longest texts first. A message that needs no cut is returned as the same object.
    """
    return [
        message
        if message.get("role") in SYSTEM_ROLES
        else with_content(message, _cut_content(message.get("content"), shown, order))
        for message in messages
    ]


def with_short_calls(messages: Sequence[Message]) -> list[Message]:
    """Return the messages with the long arguments of calls as one text by its ends, which is JSON again."""
    return [
        {**message, "tool_calls": [_short_call(call) for call in calls]} if (calls := calls_of(message)) else message
        for message in messages
    ]


def _short_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    given = function.get("arguments") if isinstance(function, Mapping) else None
    if not isinstance(given, str) or (short := _cut(given, 0, "")) == given:
        return call
    return {**call, "function": {**call["function"], "arguments": json.dumps({"shortened": short}, ensure_ascii=False)}}


def _texts(message: Message) -> Iterator[str]:
    content = message.get("content")
    if message.get("role") in SYSTEM_ROLES:
        return
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (text_in(part) for part in content if is_text(part))


def _cut_content(content: Any, shown: int, order: str) -> Any:
    """Return content with its texts cut, or the same object where none is."""
    if isinstance(content, str):
        return _cut(content, shown, order)
    if not isinstance(content, list):
        return content
    parts = [_cut_part(part, shown, order) for part in content]
    return content if parts == content else parts


def _cut_part(part: Any, shown: int, order: str) -> Any:
    if not is_text(part):
        return part
    text = _cut(text_in(part), shown, order)
    return {**part, "text": text} if isinstance(part, Mapping) else text


def _cut(text: str, shown: int, order: str) -> str:
    start, end = _middle(text, order)
    if end - start <= shown + len(MARK):
        return text
    return f"{text[: start + (shown + 1) // 2]}{MARK}{text[end - shown // 2 :]}"


def _middle(text: str, order: str) -> tuple[int, int]:
    """Return where a text may be cut, as start and end: its marked history, else all but its two ends."""
    if (place := marked_history(text)) is not None:
        return place
    return (0, 0) if text == order else (BEGINNING_KEPT, max(BEGINNING_KEPT, len(text) - END_KEPT))


def title_in(said: str) -> str:
    """Return the title in the answer to a task: that of a JSON object, else a single line; empty without one."""
    said = spoken(said).strip()
    told = next((found.value for found in find_values(said) if isinstance(found.value, dict)), None)
    title = told.get("title") if told is not None else said
    title = " ".join(title.split()) if isinstance(title, str) and "\n" not in title.strip() else ""
    return title.strip("\"'") if len(title) <= LONGEST_TITLE else ""
