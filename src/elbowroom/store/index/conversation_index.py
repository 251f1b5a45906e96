"""Which conversation a history belongs to, from memory: the newest conversations with the keys of their messages."""

import time
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import NONE_KNOWN, Known
from elbowroom.store.base import encoded, owner_key
from elbowroom.store.changes import Deleted, KeptChange
from elbowroom.store.index.keys import (
    EVEN,
    IndexedConversation,
    KeyTable,
    name_number,
    number_of,
    numbers_of,
)

MOST_CONVERSATIONS: Final = 15_000
MOST_KEYS: Final = 300_000
BYTES_A_CONVERSATION: Final = 1000
BYTES_A_KEY: Final = 24
"""About how much the index takes: 22 MiB at its bounds."""
MOST_DELETED: Final = 10_000
IN_USE_SECONDS: Final = 60.0
"""For so long after its last use a conversation is not deleted, whatever the database has read of its use."""
MOST_LOOKED_UP: Final = 2_000
"""For so many of a history's last messages the index looks; for those before only the database does."""
KEYS_A_LOOK_UP: Final = 8
"""Of a conversation with no more keys for each one that is looked up, all are gone through instead."""
SWEPT: Final = 64
"""How many keys of dropped conversations go with each change, besides two for each key that comes."""


@dataclass(slots=True, eq=False)
class Record:
    """A conversation in the index. It is not `is_whole` while only a part of its keys is known.

    `keys` are in the table of the index, an answer's with its last bit set.
    """

    id: str
    number: int
    owner: str = ""
    name: int = 0
    used: float = 0.0
    is_whole: bool = False
    may_have_hidden: bool = False
    keys: "array[int]" = field(default_factory=partial(array, "Q"))
    unanswered: list[int] = field(default_factory=list)


@dataclass(slots=True)
class RunningTurn:
    """A turn that has not ended, and how many messages it has."""

    begun: kinds.TurnBegun
    messages: int = 0


class ConversationIndex:
    """The newest conversations with the keys of their chains, within bounds; `clock` gives Unix seconds.

    Noted changes keep it up to date from the start, and what the database has comes in the background, the newest
    first, while it `wants_more`; `to_read` are conversations of which it knows a part. `generation` rises when it
    forgets all. Only while it `is_complete` a history that it does not find is unknown.
    """

    def __init__(
        self,
        most_conversations: int = MOST_CONVERSATIONS,
        most_keys: int = MOST_KEYS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._most_conversations = most_conversations
        self._most_keys = most_keys
        self._clock = clock
        self._records: OrderedDict[str, Record] = OrderedDict()  # the one used longest ago first
        self._by_number: dict[int, Record] = {}
        self._table = KeyTable()
        self._unanswered = KeyTable()
        self._dropped: deque[tuple[int, array[int]]] = deque()  # with the keys that are still in the table
        self._dropped_keys = 0
        self._turns: dict[str, RunningTurn] = {}
        self._deleted: dict[str, None] = {}
        self._numbered = 0
        self._lacks_some = False
        self.wants_more = True
        self.to_read: dict[str, None] = {}
        self.generation = 0
        self.hits = self.misses = 0

    @property
    def is_complete(self) -> bool:
        """Tell whether every conversation is in the index, with all its keys."""
        return self._has_all and not self.to_read

    @property
    def _has_all(self) -> bool:
        return not (self.wants_more or self._lacks_some)

    @property
    def is_full(self) -> bool:
        """Tell whether nothing more fits in."""
        return len(self._records) >= self._most_conversations or self._table.length >= self._most_keys

    @property
    def conversations(self) -> int:
        """Return how many conversations the index has."""
        return len(self._records)

    @property
    def keys(self) -> int:
        """Return how many keys the index has."""
        return self._table.length

    @property
    def bytes(self) -> int:
        """Return about how much memory the index takes."""
        return self.conversations * BYTES_A_CONVERSATION + self.keys * BYTES_A_KEY

    def look_up(self, owner: str, name: str, keys: Sequence[str], common: int) -> Known | None:
        """Find a conversation by its name, or its id in place of one, or else by the longest beginning.

        NONE_KNOWN says that there is none; None says that only the database can tell.
        """
        found = self._found(owner_key(owner), name, numbers_of(keys), common, keys)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def _found(self, owner: str, name: str, numbers: Sequence[int], common: int, keys: Sequence[str]) -> Known | None:
        if name:
            record, is_sure = self._named(owner, name), True
        else:
            record, place = self._longest(owner, numbers, common)
            is_sure = self.is_complete or place >= len(numbers) - 1
        if record is None:
            is_new = self.is_complete and (name or len(numbers) <= MOST_LOOKED_UP)
            return NONE_KNOWN if is_new else None
        if not is_sure or not record.is_whole:
            return None
        return Known(record.id, self._kept(record, numbers, keys), record.may_have_hidden)

    def _kept(self, record: Record, numbers: Sequence[int], keys: Sequence[str]) -> frozenset[str]:
        """Return those of the keys that a conversation has."""
        if len(record.keys) <= KEYS_A_LOOK_UP * len(numbers):
            own = frozenset(key & EVEN for key in record.keys)
            return frozenset(key for key, number in zip(keys, numbers, strict=True) if number in own)
        return frozenset(key for key, number in zip(keys, numbers, strict=True) if self._has(record, number))

    def _has(self, record: Record, key: int) -> bool:
        """Tell whether a conversation has a message with this key."""
        holder = record.number
        return self._table.has(key, holder) or self._table.has(key | 1, holder)

    def _named(self, owner: str, name: str) -> Record | None:
        number = name_number(owner, encoded(name))
        found = self._newest(owner, self._table.holders(number, number))
        if found is None and (record := self._records.get(name)) is not None and record.owner == owner:
            return record
        return found

    def _longest(self, owner: str, numbers: Sequence[int], common: int) -> tuple[Record | None, int]:
        """Return the conversation that knows the longest beginning with an answer, and how long that is."""
        refused: set[int] = set()  # without an answer in a longer beginning they have none in a shorter one
        for place in range(len(numbers), max(0, len(numbers) - MOST_LOOKED_UP), -1):
            key = numbers[place - 1]
            holders = self._table.holders(key, key | 1) if place > common else ()
            interrupted = self._unanswered.holders(key, key) if place < len(numbers) else ()
            if not (holders or interrupted):
                continue
            new = {*interrupted, *holders} - refused
            answered = [one for one in new if self._has_answer(one, numbers, common, place)]
            if (found := self._newest(owner, answered)) is not None:
                return found, place
            refused |= new
        return None, 0

    def _has_answer(self, holder: int, numbers: Sequence[int], common: int, place: int) -> bool:
        """Tell whether a conversation has an answer within the beginning; what answers the last key is none.

        Of the first `common` keys only one whose answer was interrupted counts: a greeting is no answer.
        """
        last = len(numbers) - 1
        return any(
            (at >= common and self._table.has(numbers[at] | 1, holder))
            or (at < last and self._unanswered.has(numbers[at], holder))
            for at in reversed(range(place))
        )

    def _newest(self, owner: str, holders: Iterable[int]) -> Record | None:
        records = (self._by_number.get(holder) for holder in holders)
        own = [record for record in records if record is not None and record.owner == owner]
        return max(own, key=lambda record: (record.used, record.id), default=None)

    def note(self, changes: Sequence[KeptChange]) -> None:
        """Take changes in that are noted now."""
        for kind, alike in groupby(changes, type):
            if kind is kinds.Heard:
                self._hear_all(alike)
            elif (take := TAKEN.get(kind)) is not None:
                for change in alike:
                    take(self, change)

    def begin(self, change: kinds.ConversationBegun) -> None:
        """Take a conversation in; one with a name may be in the database already."""
        self._deleted.pop(change.conversation, None)
        record = self._records.get(change.conversation) or self._add(change.conversation)
        if not record.owner:
            record.owner = owner_key(change.owner)
            self._give_name(record, name_number(record.owner, encoded(change.name) if change.name else ""))
            if change.name and not self._has_all:
                self.to_read[record.id] = None
            else:
                record.is_whole = record.id not in self.to_read
        self._used(change.conversation, change.at)

    def _hear_all(self, changes: Iterable[Any]) -> None:
        """Take messages of clients in, those of a conversation together."""
        for conversation, alike in groupby(changes, attrgetter("conversation")):
            keys, at = list[int](), 0.0
            for change in alike:
                keys.append(number_of(change.key) | (change.message.get("role") == "assistant"))
                at = max(at, change.at)
            if (record := self._used(conversation, at)) is not None:
                self.put(record, keys)

    def begin_turn(self, change: kinds.TurnBegun) -> None:
        """Take a turn in, whose answer has no key yet."""
        self._used(change.conversation, change.at)
        self._turns[change.turn] = RunningTurn(change)

    def running(self) -> list[kinds.TurnBegun]:
        """Return the turns that have not ended."""
        return [turn.begun for turn in self._turns.values()]

    def add_message(self, change: kinds.ReplyBegun | kinds.Added) -> None:
        """Note a message of a turn; a turn of several holds some that the client does not see."""
        turn = self._turns.get(change.turn)
        if turn is None:
            return
        turn.messages += 1
        if turn.messages > 1 and (record := self._used(turn.begun.conversation, change.at)) is not None:
            record.may_have_hidden = True

    def end_turn(self, change: kinds.TurnEnded) -> None:
        """Take the key of an answer in."""
        turn = self._turns.pop(change.turn, None)
        record = self._used(turn.begun.conversation, change.at) if turn is not None else None
        if turn is None or record is None:
            return
        if change.key:
            self.put(record, [number_of(change.key) | 1])
        elif change.status == "interrupted":
            self.put(record, (), [number_of(turn.begun.parent)])

    def use(self, change: kinds.CompactionNoted) -> None:
        """Note that a conversation is used."""
        self._used(change.conversation, change.at)

    def wait(self, change: kinds.Queued) -> None:
        """Note that a message waits in a conversation."""
        self._used(change.item.conversation, change.item.at)

    def delete(self, change: Deleted) -> None:
        """Drop a conversation that is deleted."""
        self.drop(change.conversation)
        self.to_read.pop(change.conversation, None)
        self._deleted[change.conversation] = None
        if len(self._deleted) > MOST_DELETED:
            del self._deleted[next(iter(self._deleted))]

    def was_deleted(self, conversation: str) -> bool:
        """Tell whether a conversation has been deleted, and not begun anew since."""
        return conversation in self._deleted

    def may_go(self, conversation: str) -> bool:
        """Drop a conversation that is to be deleted, unless it was used just now; tell whether it may go."""
        record = self._records.get(conversation)
        if record is not None and record.used >= self._clock() - IN_USE_SECONDS:
            return False
        self.delete(Deleted(conversation))
        return True

    def stays(self, conversation: str) -> None:
        """Have a conversation read again that was to be deleted and was not."""
        if conversation in self._deleted:
            del self._deleted[conversation]
            self.read_again(conversation)

    def read_again(self, conversation: str) -> None:
        """Have a conversation read again from the database, since keys of it are gone."""
        if self.drop(conversation):
            self._add(conversation)
        self.to_read[conversation] = None

    def drop(self, conversation: str) -> bool:
        """Drop a conversation from the index; tell whether it was in it."""
        record = self._records.pop(conversation, None)
        if record is None:
            return False
        del self._by_number[record.number]
        for key in record.unanswered:
            self._unanswered.remove(key, record.number)
        if record.name:
            record.keys.append(record.name)
        self._dropped.append((record.number, record.keys))
        self._dropped_keys += len(record.keys)
        return True

    def clear(self) -> None:
        """Forget all that was read and noted; everything is read from the database again."""
        for conversation in list(self._records):
            self.drop(conversation)
        self.to_read.clear()
        self.wants_more, self._lacks_some = True, False
        self.generation += 1

    def begin_to_take(self, read: IndexedConversation) -> Record | None:
        """Take in a conversation that was read; its keys follow. None where it is not to be taken."""
        record = self._records.get(read.id)
        if read.id in self._deleted or (record is not None and record.is_whole):
            self.to_read.pop(read.id, None)
            return None
        if record is None:
            record = self._add(read.id)
            self._records.move_to_end(read.id, last=False)
        if not record.owner:
            record.owner = read.owner
            self._give_name(record, read.name)
        record.used = max(record.used, read.used)
        record.may_have_hidden = record.may_have_hidden or read.may_have_hidden
        return record

    def put(self, record: Record, keys: Sequence[int], unanswered: Iterable[int] = ()) -> None:
        """Add keys to a conversation, if it is still there; those of answers have their last bit set."""
        if self._records.get(record.id) is not record:
            return
        for key in keys:
            if self._table.add(key, record.number):
                record.keys.append(key)
        for key in unanswered:
            if self._unanswered.add(key, record.number):
                record.unanswered.append(key)
        self._sweep(SWEPT + 2 * len(keys))
        self._stay_within_bounds()

    def have_taken(self, record: Record) -> None:
        """Note that all keys of a conversation are in the index, if it is still there."""
        if self._records.get(record.id) is record:
            self.to_read.pop(record.id, None)
            record.is_whole = True

    def is_gone(self, conversation: str) -> None:
        """Note that a conversation that was to be read is not in the database: all of it that there is was noted."""
        self.to_read.pop(conversation, None)
        record = self._records.get(conversation)
        if record is not None and record.owner:
            record.is_whole = True
        elif record is not None:
            self.drop(conversation)

    def take_no_more(self, *, has_all: bool) -> None:
        """Note that nothing more is read; with `has_all` the database has no conversation that was not read."""
        self.wants_more = False
        self._lacks_some = self._lacks_some or not has_all

    def _used(self, conversation: str, at: float) -> Record | None:
        """Return the record of a conversation that is used now, None of a deleted one; an unknown one is to be read."""
        if conversation in self._deleted:
            return None
        record = self._records.get(conversation)
        if record is None:
            record = self._add(conversation)
            self.to_read[conversation] = None
        record.used = max(record.used, at)
        self._records.move_to_end(conversation)
        return record

    def _add(self, conversation: str) -> Record:
        self._numbered += 1
        record = Record(conversation, self._numbered)
        self._records[conversation] = self._by_number[record.number] = record
        return record

    def _stay_within_bounds(self) -> None:
        """Drop conversations that were used longest ago."""
        while (
            len(self._records) > self._most_conversations or self._table.length - self._dropped_keys > self._most_keys
        ):
            oldest = next(iter(self._records))
            self.drop(oldest)
            self.to_read.pop(oldest, None)
            self._lacks_some = True

    def _give_name(self, record: Record, name: int) -> None:
        record.name = name
        if name:
            self._table.add(name, record.number)

    def _sweep(self, most: int) -> None:
        """Remove some keys of dropped conversations, so that no change has to wait for many."""
        while self._dropped and most > 0:
            number, keys = self._dropped[0]
            going = keys[-most:]
            for key in going:
                self._table.remove(key, number)
            del keys[len(keys) - len(going) :]
            self._dropped_keys -= len(going)
            most -= len(going)
            if not keys:
                self._dropped.popleft()


TAKEN: Final[Mapping[type[Any], Callable[[ConversationIndex, Any], None]]] = {
    kinds.ConversationBegun: ConversationIndex.begin,
    kinds.TurnBegun: ConversationIndex.begin_turn,
    kinds.ReplyBegun: ConversationIndex.add_message,
    kinds.Added: ConversationIndex.add_message,
    kinds.TurnEnded: ConversationIndex.end_turn,
    kinds.CompactionNoted: ConversationIndex.use,
    kinds.Queued: ConversationIndex.wait,
    Deleted: ConversationIndex.delete,
}
"""How each kind of change but messages of clients is taken in; what is not named here says nothing about keys."""
