"""What the model would get without elbowroom: the last messages alone, or LM Studio's cut through the middle."""

from collections.abc import Sequence

from play import size_of, tokens_of_tools

from elbowroom.context.transcript import Message, Transcript, messages_of
from elbowroom.demo.overflow import truncate


def last_messages(history: Sequence[Message], most: int) -> list[Message]:
    """Return the system messages and as many of the last groups as fit in so many tokens."""
    transcript = Transcript.of(history)
    system = [group for group in transcript.groups if group.kind == "system"]
    others = [group for group in transcript.groups if group.kind != "system"]
    left = most - tokens_of_tools() - sum(size_of(message) for message in messages_of(system))
    start = len(others)
    while start > 0 and (taken := sum(map(size_of, others[start - 1].messages))) <= left:
        left -= taken
        start -= 1
    return [*messages_of(system), *messages_of(others[start:])]


def cut_through_the_middle(history: Sequence[Message], window: int) -> list[Message]:
    """Return what LM Studio leaves of a history with its default policy."""
    sizes = [size_of(message) for message in history]
    total = tokens_of_tools() + sum(sizes)
    return (
        list(truncate([dict(message) for message in history], total, sizes, window, "truncateMiddle").messages)
        if total >= window
        else [*history]
    )
