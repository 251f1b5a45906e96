"""Changes of conversations, and what of them can be kept."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import Change, ReplyGrew
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


@dataclass(frozen=True, slots=True)
class Unheard:
    """A message of a client that is to be deleted; what came after it comes after its `parent` then."""

    conversation: str
    message: str
    key: str
    parent: str


@dataclass(frozen=True, slots=True)
class Described:
    """What a client keeps beside a conversation, in place of what it kept before."""

    conversation: str
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Renamed:
    """The title that a person gave a conversation; where it is empty, it has the beginning of its first question."""

    conversation: str
    title: str


@dataclass(frozen=True, slots=True)
class SummaryEdited:
    """The summary of the compaction that was made at this time, as a person has changed it."""

    conversation: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class CompactionUndone:
    """The compaction that was made at this time is taken back, `undone` being when."""

    conversation: str
    at: float
    undone: float


@dataclass(frozen=True, slots=True)
class Pinned:
    """A message that is never to be summarised, or may be again."""

    conversation: str
    message: str
    is_pinned: bool


@dataclass(frozen=True, slots=True)
class Released:
    """Messages in a queue are with no server from now on: they wait for whichever runs the next turn."""

    ids: tuple[str, ...]


KeptChange = (
    Change
    | Deleted
    | TurnDeleted
    | Unheard
    | Described
    | Renamed
    | SummaryEdited
    | CompactionUndone
    | Pinned
    | Released
)
OVERHEAD: Final = 200
"""About how many bytes a change takes besides its text."""
MOST_NUMBER: Final = 2**31 - 1
MESSAGES: Final = {
    kinds.Heard: "message",
    kinds.ReplyCalled: "call",
    kinds.Added: "content",
    Described: "metadata",
    kinds.Titled: "title",
    Renamed: "title",
    SummaryEdited: "text",
}
UNSOUND: Final = (TypeError, ValueError, RecursionError, AttributeError, LookupError)


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


def is_sound(value: Any) -> bool:
    """Tell whether any database takes this: a text without NULs and lone surrogates, a number within bounds, None."""
    if isinstance(value, str):
        try:
            return "\0" not in value and (value.isascii() or bool(value.encode()))
        except UnicodeEncodeError:
            return False
    if isinstance(value, float):
        return isfinite(value)
    return 0 <= value <= MOST_NUMBER if isinstance(value, int) else value is None


KEPT_LONGEST: Final = (
    kinds.ConversationBegun,
    Deleted,
    TurnDeleted,
    Unheard,
    Described,
    Renamed,
    SummaryEdited,
    CompactionUndone,
    Pinned,
    kinds.Queued,
    kinds.QueueTaken,
    kinds.QueueDropped,
    Released,
)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that are written together, in order; a later batch has a higher number.

    `since` is when the first of them was noted, in seconds of the monotonic clock.
    """

    number: int
    changes: tuple[KeptChange, ...]
    since: float
