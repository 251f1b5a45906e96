"""Which changes of conversations can be kept at all: any database takes them, and they come back as they were."""

import logging
from math import isfinite
from operator import attrgetter
from typing import Any, Final

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import Change, ReplyGrew, StepUsed
from elbowroom.store.message_json import encoded

log = logging.getLogger(__name__)
OVERHEAD: Final = 200
"""Roughly what a change takes in bytes besides its text."""
FARTHEST: Final = 2**62
TEXTS: Final[dict[type[Any], tuple[str, ...]]] = {
    kinds.ConversationBegun: ("conversation", "owner", "name", "agent"),
    kinds.Heard: ("conversation", "key", "parent"),
    kinds.TurnBegun: ("turn", "conversation", "parent", "agent"),
    kinds.ReplyBegun: ("turn", "message"),
    kinds.ReplyCalled: ("message",),
    kinds.ReplyEnded: ("message", "status"),
    kinds.Added: ("turn", "message"),
    kinds.StepUsed: ("turn", "model"),
    kinds.CompactionNoted: ("conversation", "rung"),
    kinds.TurnEnded: ("turn", "status", "key"),
    kinds.Queued: ("item.id", "item.conversation", "item.mode", "item.turn"),
    kinds.QueueTaken: ("turn",),
    kinds.QueueDropped: (),
}
"""The texts of each kind of change, which are names or say a kind; what people and models say is not among them."""
ANY_TEXT: Final = frozenset({"owner", "name", "agent", "model", "rung"})
"""These are kept as JSON or as a hash, so that they may hold anything."""
MESSAGES: Final = {kinds.Heard: "message", kinds.ReplyCalled: "call", kinds.Added: "content"}
NOT_JSON: Final = (TypeError, ValueError, RecursionError, AttributeError)


def weighed(change: Change) -> int | None:
    """Return about how many bytes a change takes, or None with a warning in the log where it cannot be kept."""
    try:
        if type(change) is ReplyGrew:
            _check_id(change.message)
            return len(change.text) + OVERHEAD
        return _weighed(change)
    except NOT_JSON as error:
        log.warning("Something of a conversation cannot be kept (%s): %s.", type(change).__name__, error)
        return None


def _weighed(change: Change) -> int:
    kind = type(change)
    for name in TEXTS[kind]:
        text = attrgetter(name)(change)
        if name in ANY_TEXT:
            encoded(text)
        else:
            _check_id(text)
    for name in getattr(change, "ids", ()):
        _check_id(name)
    _check_number(getattr(change, "at", 0.0))
    for number in _tokens(change):
        _check_number(number)
    if isinstance(change, kinds.Queued):
        _check_number(change.item.at)
        return len(encoded(change.item.message)) + OVERHEAD
    return (len(encoded(getattr(change, MESSAGES[kind]))) if kind in MESSAGES else 0) + OVERHEAD


def _tokens(change: Change) -> tuple[float, ...]:
    if isinstance(change, kinds.CompactionNoted):
        return change.before, change.after
    if not isinstance(change, StepUsed):
        return ()
    used = change.usage
    fill = (change.fill.tokens, change.fill.window, change.fill.trigger, change.fill.stop_at) if change.fill else ()
    return used.input, used.output, used.cache_creation, used.cache_read, *fill


def _check_id(text: str) -> None:
    if not text.isascii():
        text.encode()
    if "\0" in text:
        raise ValueError("an id holds a NUL")


def _check_number(number: float) -> None:
    if not (isfinite(number) and abs(number) < FARTHEST):
        raise ValueError(f"{number!r} is out of range")
