"""Tells which changes of conversations can be kept: any database takes them, and they come back as they were."""

import logging
from dataclasses import dataclass
from math import isfinite
from operator import attrgetter
from typing import Any, Final

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import Change, ReplyGrew, StepUsed
from elbowroom.store.base import encoded

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deleted:
    """A conversation that is to be deleted, with all that belongs to it."""

    conversation: str


@dataclass(frozen=True, slots=True)
class TurnDeleted:
    """A turn that is to be deleted, with all that was said in it."""

    turn: str


KeptChange = Change | Deleted | TurnDeleted
OVERHEAD: Final = 200
"""About how many bytes a change takes besides its text."""
MOST_TOKENS: Final = 2**31 - 1
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
    Deleted: ("conversation",),
    TurnDeleted: ("turn",),
}
"""The fields of each kind of change that hold names; what people and models say is not among them."""
ANY_TEXT: Final = frozenset({"owner", "name", "agent", "model"})
"""These are kept as JSON or as a hash, and may hold anything."""
MESSAGES: Final = {kinds.Heard: "message", kinds.ReplyCalled: "call", kinds.Added: "content"}
UNSOUND: Final = (TypeError, ValueError, RecursionError, AttributeError, LookupError)


def check(change: KeptChange) -> None:
    """Check that the names and numbers of a change can be kept. Raises one of UNSOUND."""
    if type(change) is ReplyGrew:
        _check_id(change.message)
        return
    for name in TEXTS[type(change)]:
        text = attrgetter(name)(change)
        encoded(text) if name in ANY_TEXT else _check_id(text)
    for name in getattr(change, "ids", ()):
        _check_id(name)
    if isinstance(change, kinds.CompactionNoted) and change.details:
        _check_time(change.details.seconds)
        encoded(change.details.summary)
    _check_time(change.item.at if isinstance(change, kinds.Queued) else getattr(change, "at", 0.0))
    if not all(0 <= tokens <= MOST_TOKENS for tokens in _tokens(change)):
        raise ValueError("there are too many tokens")


def left_out(change: KeptChange, error: Exception) -> None:
    """Warn that a change is not kept."""
    log.warning("Something of a conversation cannot be kept (%s): %s.", type(change).__name__, error)


def rough_size(change: KeptChange) -> int:
    """Return about how many bytes a change takes, whatever it holds."""
    try:
        return _size(change)
    except UNSOUND:
        return OVERHEAD


def _size(change: KeptChange) -> int:
    if type(change) is ReplyGrew:
        return len(change.text) + OVERHEAD
    if isinstance(change, kinds.Queued):
        return len(encoded(change.item.message)) + OVERHEAD
    if isinstance(change, kinds.CompactionNoted):
        return (len(encoded(change.details.summary)) if change.details else 0) + OVERHEAD
    kind = type(change)
    return (len(encoded(getattr(change, MESSAGES[kind]))) if kind in MESSAGES else 0) + OVERHEAD


def _tokens(change: KeptChange) -> tuple[int, ...]:
    if isinstance(change, kinds.CompactionNoted):
        kept = change.details
        counts = (kept.groups_kept, kept.messages_kept, kept.messages_removed) if kept else ()
        return change.before, change.after, *counts
    if not isinstance(change, StepUsed):
        return ()
    used = change.usage
    fill = (change.fill.tokens, change.fill.window, change.fill.trigger, change.fill.stop_at) if change.fill else ()
    return used.input, used.output, used.cache_creation, used.cache_read, *fill


def is_sound_id(text: str) -> bool:
    """Tell whether any database takes this as an id."""
    try:
        _check_id(text)
    except UNSOUND:
        return False
    return True


def _check_id(text: str) -> None:
    if not text.isascii():
        text.encode()
    if "\0" in text:
        raise ValueError("an id holds a NUL")


def _check_time(seconds: float) -> None:
    if not isfinite(seconds):
        raise ValueError("a time is no number")
