"""Cuts the conversation in a task to what a title needs: its first and its last exchange, each text by its ends."""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from elbowroom.context.templates import with_content
from elbowroom.context.transcript import SYSTEM_ROLES, Message

MARK: Final = "\n[… a part is left out here …]\n"
HISTORY_BEGINS, HISTORY_ENDS = "<chat_history>", "</chat_history>"
BEGINNING_SHOWN: Final = 800
END_SHOWN: Final = 400
"""Characters of a text that are shown of its beginning and its end."""
SPEAKER: Final = re.compile(r"^(?:USER|ASSISTANT): ", re.MULTILINE)
"""How Open WebUI begins each message of a conversation that it writes into a task."""
ASKS: Final = "USER: "


def marked_history(text: str) -> tuple[int, int] | None:
    """Return where the conversation in a task begins and ends; None where nothing marks it."""
    begins, ends = text.find(HISTORY_BEGINS), text.rfind(HISTORY_ENDS)
    return (begins + len(HISTORY_BEGINS), ends) if 0 <= begins < ends else None


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
