"""Changes of conversations: what of them can be kept, and those that wait to be written."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
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


MOST_BYTES: Final = 64 * 2**20
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


class WaitingChanges:
    """Changes that wait to be written. Beyond the bounds the turns go that began first, each as a whole.

    Then messages of clients go, the oldest first, and in the end all else; the queue goes last. `growing` is how
    many replies grew in the last batch, at least 1, and `let_go` how many changes went. `since` is when the first of
    what is in no batch yet was noted, in seconds of the monotonic clock, or None.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.new: list[KeptChange] = []
        self.since: float | None = None
        self._handing_on: dict[Callable[[], None], None] = {}
        self._most_bytes = most_bytes
        self._batches: list[Batch] = []
        self._sizes: dict[int, int] = {}
        self._numbered = 0
        self.growing = 1
        self.let_go = 0

    @property
    def oldest(self) -> float | None:
        """Return when the first of all changes that wait was noted, None where none waits."""
        return self._batches[0].since if self._batches else self.since

    def note(self, changes: Iterable[KeptChange]) -> None:
        """Let changes wait."""
        self.new.extend(changes)
        self._begin()

    def note_when_writing(self, hand_on: Callable[[], None]) -> None:
        """Call this before the next batch is made, so that it notes what has come until then."""
        self._handing_on[hand_on] = None
        self._begin()

    def batches(self) -> list[Batch]:
        """Return all batches that wait; new changes become a batch of their own."""
        handing_on, self._handing_on = self._handing_on, {}
        for hand_on in handing_on:
            hand_on()
        since, self.since = self.since, None
        if self.new and since is not None:
            self._numbered += 1
            self._batches.append(Batch(self._numbered, tuple(with_joined_deltas(self.new)), since))
            self.growing = max(1, sum(type(change) is ReplyGrew for change in self._batches[-1].changes))
            self.new = []
        return list(self._batches)

    def written(self, batch: Batch) -> None:
        """Let a batch go that has been written."""
        self._batches.remove(batch)
        self._sizes.pop(batch.number, None)

    def waits(self, batches: Sequence[Batch]) -> bool:
        """Tell whether one of these still waits."""
        numbers = {batch.number for batch in self._batches}
        return any(batch.number in numbers for batch in batches)

    def __bool__(self) -> bool:
        return bool(self.new or self._handing_on or self._batches)

    def trim(self) -> bool:
        """Go back within the bounds, with a warning in the log where something is lost; tell whether it is."""
        for batch in self._batches:
            if batch.number not in self._sizes:
                self._sizes[batch.number] = sum(map(rough_size, batch.changes))
        if sum(self._sizes.values()) <= self._most_bytes:
            return False
        before = sum(len(batch.changes) for batch in self._batches)
        for stage in (_of_turns, _but_the_queue, lambda _: True):
            self._let_go_oldest(stage)
        lost = before - sum(len(batch.changes) for batch in self._batches)
        self.let_go += lost
        log.warning("Too much waits to be written: of conversations %d changes, the oldest, are lost.", lost)
        return True

    def _let_go_oldest(self, may_go: Callable[[KeptChange], bool]) -> None:
        """Drop such changes, each turn as a whole, until half of the bounds is free."""
        too_much = sum(self._sizes.values()) - self._most_bytes // 2
        sizes: dict[str, int] = {}
        owners = list(_with_owners(change for batch in self._batches for change in batch.changes))
        for change, owner in owners:
            if may_go(change):
                sizes[owner] = sizes.get(owner, 0) + rough_size(change)
        going: set[str] = set()
        for owner, size in sizes.items():
            if too_much > 0:
                going.add(owner)
                too_much -= size
        left = iter([not (may_go(change) and owner in going) for change, owner in owners])
        kept = [replace(batch, changes=tuple(filter(lambda _: next(left), batch.changes))) for batch in self._batches]
        self._batches = [batch for batch in kept if batch.changes]
        self._sizes = {batch.number: sum(map(rough_size, batch.changes)) for batch in self._batches}

    def _begin(self) -> None:
        if self.since is None:
            self.since = time.monotonic()


def with_joined_deltas(changes: Sequence[KeptChange]) -> list[KeptChange]:
    """Return changes of the same effect, in which deltas of a reply that follow one another are one change."""
    found: list[KeptChange] = []
    growing: dict[str, tuple[int, list[ReplyGrew]]] = {}
    for change in changes:
        if type(change) is ReplyGrew:
            place = growing.get(change.message)
            if place and place[1][0].kind == change.kind:
                place[1].append(change)
                continue
            _close(found, place)
            growing[change.message] = (len(found), [change])
        elif isinstance(change, kinds.ReplyBegun | kinds.ReplyCalled | kinds.ReplyEnded):
            _close(found, growing.pop(change.message, None))
        elif isinstance(change, kinds.TurnEnded):
            _close_all(found, growing)
        found.append(change)
    _close_all(found, growing)
    return found


def _close_all(found: list[KeptChange], growing: dict[str, tuple[int, list[ReplyGrew]]]) -> None:
    for place in growing.values():
        _close(found, place)
    growing.clear()


def _close(found: list[KeptChange], place: tuple[int, list[ReplyGrew]] | None) -> None:
    if place and len(place[1]) > 1:
        first = place[1][0]
        found[place[0]] = ReplyGrew(first.message, first.kind, "".join(delta.text for delta in place[1]))


def _of_turns(change: KeptChange) -> bool:
    return not isinstance(change, (*KEPT_LONGEST, kinds.Heard, kinds.CompactionNoted))


def _but_the_queue(change: KeptChange) -> bool:
    return not isinstance(change, KEPT_LONGEST)


def _with_owners(changes: Iterable[KeptChange]) -> Iterable[tuple[KeptChange, str]]:
    """Yield each change with the name of its group: its turn, or itself."""
    turn_of: dict[str, str] = {}
    for number, change in enumerate(changes):
        if isinstance(change, kinds.ReplyBegun):
            turn_of[change.message] = change.turn
        if isinstance(change, kinds.ReplyGrew | kinds.ReplyCalled | kinds.ReplyEnded):
            yield change, turn_of.get(change.message, change.message)
        elif isinstance(change, kinds.QueueTaken | TurnDeleted | Unheard):
            yield change, f"{number}"
        else:
            yield change, getattr(change, "turn", f"{number}")
