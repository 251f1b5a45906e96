"""What the model would get without elbowroom: the last messages alone, or a history with its middle cut out."""

from collections.abc import Callable, Sequence

from elbowroom.context.compaction import all_said
from elbowroom.context.transcript import Message, Transcript, messages_of

FRAME = 5
"""Tokens that a message takes besides its words."""
Size = Callable[[str], int]
"""Returns how many tokens a text has."""


def last_messages(history: Sequence[Message], most: int, size: Size) -> list[Message]:
    """Return the system message and as many of the last groups as fit in so many tokens."""
    return _ends(history, 1, most, size)


def cut_through_the_middle(history: Sequence[Message], window: int, size: Size) -> list[Message]:
    """Return what LM Studio leaves of a history with its default policy: its first question, and its end."""
    return _ends(history, 2, window, size)


def _ends(history: Sequence[Message], first: int, most: int, size: Size) -> list[Message]:
    groups = Transcript.of(history).groups
    sizes = [sum(size(all_said([message])) + FRAME for message in group.messages) for group in groups]
    start, left = len(groups), most - sum(sizes[:first])
    while start > first and sizes[start - 1] <= left:
        start -= 1
        left -= sizes[start]
    return messages_of([*groups[:first], *groups[start:]])
