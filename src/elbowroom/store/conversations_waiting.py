"""Changes of conversations that are not written yet: in order, the deltas of a reply joined, within bounds."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import Change, ReplyGrew
from elbowroom.store.conversations_sound import rough_size

log = logging.getLogger(__name__)
MOST_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes that are written together, in order; a later batch has a higher number."""

    number: int
    changes: tuple[Change, ...]


class WaitingChanges:
    """What waits to be written. Beyond the bounds the turns go that began first, each as a whole.

    Then what clients have sent goes, the oldest first, and in the end all else; the queue goes last.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.new: list[Change] = []
        self._most_bytes = most_bytes
        self._batches: list[Batch] = []
        self._sizes: dict[int, int] = {}
        self._numbered = 0
        self.let_go = 0

    def batches(self) -> list[Batch]:
        """Return all that waits, what is new as a batch of its own."""
        if self.new:
            self._numbered += 1
            self._batches.append(Batch(self._numbered, tuple(with_joined_deltas(self.new))))
            self.new = []
        return list(self._batches)

    def written(self, batch: Batch) -> None:
        """Let go what has been written."""
        self._batches.remove(batch)
        self._sizes.pop(batch.number, None)

    def trim(self) -> None:
        """Go back within the bounds, with a warning in the log."""
        for batch in self._batches:
            if batch.number not in self._sizes:
                self._sizes[batch.number] = sum(map(rough_size, batch.changes))
        if sum(self._sizes.values()) <= self._most_bytes:
            return
        before = sum(len(batch.changes) for batch in self._batches)
        for stage in (_of_turns, _but_the_queue, lambda _: True):
            self._let_go_oldest(stage)
        lost = before - sum(len(batch.changes) for batch in self._batches)
        self.let_go += lost
        log.warning("Too much waits to be written: of conversations %d changes, the oldest, are lost.", lost)

    def _let_go_oldest(self, may_go: Callable[[Change], bool]) -> None:
        """Let go of such changes, with each turn all of it, until half of the bounds is free."""
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
        kept = [Batch(batch.number, tuple(change for change in batch.changes if next(left))) for batch in self._batches]
        self._batches = [batch for batch in kept if batch.changes]
        self._sizes = {batch.number: sum(map(rough_size, batch.changes)) for batch in self._batches}


def with_joined_deltas(changes: Sequence[Change]) -> list[Change]:
    """Return changes of the same effect: deltas of a reply that follow one another are one change."""
    found: list[Change] = []
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


def _close_all(found: list[Change], growing: dict[str, tuple[int, list[ReplyGrew]]]) -> None:
    for place in growing.values():
        _close(found, place)
    growing.clear()


def _close(found: list[Change], place: tuple[int, list[ReplyGrew]] | None) -> None:
    if place and len(place[1]) > 1:
        first = place[1][0]
        found[place[0]] = ReplyGrew(first.message, first.kind, "".join(delta.text for delta in place[1]))


def _of_turns(change: Change) -> bool:
    return not isinstance(change, kinds.ConversationBegun | kinds.Heard | kinds.CompactionNoted) and _but_the_queue(
        change
    )


def _but_the_queue(change: Change) -> bool:
    return not isinstance(change, kinds.ConversationBegun | kinds.Queued | kinds.QueueTaken | kinds.QueueDropped)


def _with_owners(changes: Iterable[Change]) -> Iterable[tuple[Change, str]]:
    """Yield each change with what it goes with: its turn, or itself."""
    turn_of: dict[str, str] = {}
    for number, change in enumerate(changes):
        if isinstance(change, kinds.ReplyBegun):
            turn_of[change.message] = change.turn
        if isinstance(change, kinds.ReplyGrew | kinds.ReplyCalled | kinds.ReplyEnded):
            yield change, turn_of.get(change.message, change.message)
        elif isinstance(change, kinds.QueueTaken):
            yield change, f"{number}"
        else:
            yield change, getattr(change, "turn", f"{number}")
