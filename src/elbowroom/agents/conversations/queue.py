"""Messages that wait for a turn of their conversation, and how a running turn takes them in."""

import asyncio
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.conversations.beginning import new_id
from elbowroom.agents.conversations.recording import TurnRecorder
from elbowroom.agents.running import RunningAnswer
from elbowroom.caches import Recent
from elbowroom.context.conversation import Change, Queued, QueuedMessage, QueueDropped, QueueMode, QueueTaken
from elbowroom.context.outputs import one_line
from elbowroom.context.transcript import Message, as_json, size_in_bytes, text_of
from elbowroom.errors import BodyTooLarge, ContextOverflow, ElbowroomError, RequestError, UpstreamRejected

STEER: Final[frozenset[QueueMode]] = frozenset({"steer"})
FOLLOW_UP: Final[frozenset[QueueMode]] = frozenset({"follow_up"})
ANY: Final = STEER | FOLLOW_UP
KNOWN_EMPTIED: Final = 1000
"""Conversations of which it is remembered what waited in them when their answer was stopped."""
KNOWN_RECEIVED: Final = 1000
"""Messages that are in memory alone of which it is remembered that they came, so that they come once."""
MOST_WAITING: Final = 1_000
MOST_BYTES: Final = 1024 * 1024
LOADING_SECONDS: Final = 2.0
"""How long all users of the queue together wait for what an earlier process has left in it."""
LONGEST_BEGINNING: Final = 60  # characters
REFUSED: Final = frozenset({400, 413, 422})
"""Statuses by which an upstream refuses a message."""
MOST_TOLD: Final = 5
DROPPED: Final = "Not read, since the answer was stopped"
MODES_AFTER: Final[dict[str, frozenset[QueueMode]]] = {"tool": STEER, "assistant": frozenset()}
"""Which messages a turn begins with, by the role of the client's last message; a begun answer takes none."""


class KeptQueue(Protocol):
    """The part of `Conversations` that a queue needs."""

    def note(self, changes: Sequence[Change]) -> None:
        """Take changes in, to be written soon and in this order."""

    async def settled(self) -> bool:
        """Wait until all that was noted before is durable or has failed to become so; tell whether it is."""

    async def queue(self) -> list[QueuedMessage]:
        """Return all waiting messages in order, also those that an unended turn has taken."""

    async def receipt(self, conversation: str, message: str) -> str | None:
        """Return the fingerprint of the message that was ever put in a queue under this id; None for none."""


class QueueFull(RequestError):
    """A conversation has as many waiting messages as it may have."""

    status = 429
    type = "rate_limit_error"
    code = "conversation_queue_full"

    def __init__(self) -> None:
        super().__init__(
            f"{MOST_WAITING:,} messages wait in this conversation already, and no more may. Let a turn take them in, "
            "or remove some with DELETE."
        )


class KeyUsed(RequestError):
    """A key stands for another message already."""

    status = 422
    code = "idempotency_key_used"

    def __init__(self) -> None:
        super().__init__(
            "This Idempotency-Key came with another message for this conversation before: a key stands for one "
            "message. Send this one with a key of its own, or without one."
        )


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that was put in the queue; `is_stored` says that it survives a restart.

    `position` counts from 1, and is 0 where it waits no longer.
    """

    id: str
    position: int
    is_stored: bool


class MessageQueue:
    """The waiting messages of all conversations, in order; each message is handed to one turn.

    Messages that a turn has taken are either `delivered` or given back. `conversations` keep them beyond this
    process; where they cannot, or are None, the queue is kept in memory alone. `untold` are those that nobody will
    read, since an answer was stopped, by their conversations: the next answer tells of them.
    """

    def __init__(self, conversations: KeptQueue | None, clock: Callable[[], float] = time.time) -> None:
        self._conversations = conversations
        self._clock = clock
        self._waiting: dict[str, list[QueuedMessage]] = {}
        self._taken: dict[str, list[QueuedMessage]] = {}
        self._numbers: dict[str, int] = {}
        self._next = 0
        self._seen: set[str] | None = set() if conversations is not None else None
        self._held: set[str] = set()
        self._emptied = Recent[str, Sequence[QueuedMessage]]("emptied_queues", KNOWN_EMPTIED)
        self._received = Recent[str, str]("received_messages", KNOWN_RECEIVED)
        self.untold = dict[str, Sequence[QueuedMessage]]()
        self._loading: asyncio.Task[None] | None = None
        self._waits_until = 0.0
        self._noted = self._settled = 0
        self._is_stored = True
        self._settling = asyncio.Lock()

    @property
    def length(self) -> int:
        """Return how many messages wait in all conversations."""
        return sum(map(len, self._waiting.values()))

    async def load(self) -> None:
        """Load what an earlier process has left, once; after a while it goes on loading in the background."""
        self.load_soon()
        if self._loading is not None and not self._loading.done():
            left = self._waits_until - asyncio.get_running_loop().time()
            await asyncio.wait([self._loading], timeout=max(0.0, left))

    def load_soon(self) -> None:
        """Begin to load it in the background."""
        if self._conversations is not None and self._seen is not None and self._loading is None:
            self._loading = asyncio.create_task(self._load(self._conversations))
            self._waits_until = asyncio.get_running_loop().time() + LOADING_SECONDS

    async def add(
        self, conversation: str, message: Message, mode: QueueMode, *, key: str = "", is_kept: bool = True
    ) -> Accepted:
        """Put a message after all others, and return once it is durable or has failed to become so.

        A message whose `key` came before in this conversation is the one that came then. The queue of a conversation
        that is not kept is in memory alone. Raises QueueFull, KeyUsed, NotFound where the conversation was deleted
        meanwhile, or BodyTooLarge where it is too large.
        """
        item, is_kept = self._made(conversation, message, mode, key), is_kept and self._conversations is not None
        await self.load()
        if not (key and await self._came_before(item, is_kept=is_kept)):
            if len(self._waiting.get(conversation, ())) >= MOST_WAITING:
                raise QueueFull
            self._emptied.take(conversation)
            self._take_in([item])
            if is_kept:
                self._note(Queued(item))
            else:
                self._received.put(item.id, item.fingerprint)
        position = place_of(item, self.waiting(conversation))
        return Accepted(item.id, position, is_kept and await self.settled())

    async def ready_for(self, live: TurnRecorder) -> None:
        """Wait until the messages that wait for this turn can be known; a raw model does not wait for the store."""
        self.load_soon()
        if live.is_patient:
            await live.looked_up()
            await self.load()

    async def listed(self, conversation: str) -> list[QueuedMessage]:
        """Return the waiting messages of a conversation, in order, also those that an earlier process has left."""
        await self.load()
        return self.waiting(conversation)

    async def taken_back(
        self, conversation: str, ids: Collection[str] | None = None
    ) -> tuple[list[QueuedMessage], set[str]]:
        """Remove waiting messages, with `ids` only these; return them, and the ids of those that turns have taken."""
        await self.load()
        removed = self.clear(conversation) if ids is None else self.remove(conversation, ids)
        await self.settled()
        return removed, {item.id for item in self.taken(conversation)}

    async def emptied(self, conversation: str, ids: Collection[str], *, is_told: bool) -> Sequence[QueuedMessage]:
        """Remove these messages, since the answer that they waited for was stopped; return those that waited.

        Where its client `is_told` of them, the next answer is silent.
        """
        removed, _ = await self.taken_back(conversation, ids)
        if removed:
            self._emptied.put(conversation, removed)
        if removed and not is_told:
            self.untold[conversation] = (*self.untold.pop(conversation, ()), *removed)
            if len(self.untold) > KNOWN_EMPTIED:
                del self.untold[next(iter(self.untold))]
        return removed

    def dropped(self, conversation: str) -> Sequence[QueuedMessage]:
        """Return the messages that were removed when an answer was stopped, until another one waits there."""
        return self._emptied.get(conversation) or ()

    def let_go(self, conversation: str, ended: RunningAnswer) -> None:
        """Note that an answer to a conversation has ended; what waits there waits for the next one."""

    def take(self, conversation: str, turn: str, modes: Collection[QueueMode]) -> list[QueuedMessage]:
        """Hand the messages of these modes to a turn, in order; no other turn gets them while it has them."""
        if conversation not in self._waiting:
            return []
        taken = self._cut(conversation, lambda item: item.mode in modes and item.id not in self._held)
        if taken:
            self._taken.setdefault(turn, []).extend(taken)
            self._note(QueueTaken(turn, tuple(item.id for item in taken)))
        return taken

    def delivered(self, turn: str) -> None:
        """Drop the messages that a turn has taken: the model has read them."""
        if taken := self._taken.pop(turn, []):
            self._drop(taken)

    def give_back(self, turn: str, ids: Collection[str] | None = None) -> None:
        """Put what a turn has taken, and no model has read, back in its old place; with `ids` only these."""
        if not (taken := self._taken.pop(turn, [])):
            return
        items = taken if ids is None else [item for item in taken if item.id in ids]
        if left := [item for item in taken if item not in items]:
            self._taken[turn] = left
        for conversation in {item.conversation for item in items}:
            mine = [item for item in items if item.conversation == conversation]
            self._waiting[conversation] = self._sorted([*mine, *self._waiting.get(conversation, [])])
        if items:
            self._note(QueueTaken("", tuple(item.id for item in items)))

    def hold(self, ids: Collection[str]) -> None:
        """Hand these messages to no turn any more; they stay in the queue until they are removed."""
        self._held.update(ids)

    def waiting(self, conversation: str) -> list[QueuedMessage]:
        """Return the waiting messages of a conversation, in order."""
        return list(self._waiting.get(conversation, ()))

    def taken(self, conversation: str) -> list[QueuedMessage]:
        """Return the messages that turns of a conversation have taken and no model has read yet."""
        return [item for items in self._taken.values() for item in items if item.conversation == conversation]

    def remove(self, conversation: str, ids: Collection[str]) -> list[QueuedMessage]:
        """Remove these messages as far as they wait, and return the removed ones."""
        return self._drop(self._cut(conversation, lambda item: item.id in ids))

    def clear(self, conversation: str) -> list[QueuedMessage]:
        """Remove all waiting messages of a conversation, and return them."""
        return self._drop(self._cut(conversation, lambda _: True))

    async def settled(self) -> bool:
        """Wait until all changes so far are durable or have failed to become so; tell whether they are.

        One wait of the store serves all callers that ask meanwhile.
        """
        if self._conversations is None:
            return False
        noted = self._noted
        async with self._settling:
            if self._settled < noted or not self._is_stored:
                settled = self._noted
                self._is_stored = await self._conversations.settled()
                self._settled = settled
            return self._is_stored

    async def aclose(self) -> None:
        """Stop waiting for what an earlier process has left."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])

    async def _load(self, conversations: KeptQueue) -> None:
        items = await conversations.queue()
        seen, self._seen = self._seen or set(), None
        left = [replace(item, turn="") for item in items if item.id not in seen]
        for number, item in enumerate(left, -len(left)):
            self._numbers[item.id] = number
            self._waiting.setdefault(item.conversation, []).append(item)
        for conversation in {item.conversation for item in left}:
            self._waiting[conversation] = self._sorted(self._waiting[conversation])

    async def _came_before(self, item: QueuedMessage, *, is_kept: bool = True) -> bool:
        """Tell whether a message was put in the queue under its id. Raises KeyUsed where it was another one."""
        if is_kept and self._conversations is not None:
            known = await self._conversations.receipt(item.conversation, item.id)
        else:
            known = self._received.get(item.id)
        if known not in (None, item.fingerprint):
            raise KeyUsed
        return known is not None

    def _take_in(self, items: Sequence[QueuedMessage]) -> None:
        for item in items:
            if item.id not in self._numbers:
                self._number(item, self._next)
                self._next += 1
                self._waiting.setdefault(item.conversation, []).append(item)

    def _made(self, conversation: str, message: Message, mode: QueueMode, key: str = "") -> QueuedMessage:
        size = size_in_bytes(as_json(message))
        if size > MOST_BYTES:
            raise BodyTooLarge(f"A message of {size:,} bytes is more than the {MOST_BYTES:,} that may wait in a queue.")
        return QueuedMessage(new_id(conversation, key, "qmsg"), conversation, message, mode, self._clock())

    def _note(self, change: Change) -> None:
        if self._conversations is not None:
            self._noted += 1
            self._conversations.note([change])

    def _number(self, item: QueuedMessage, number: int) -> None:
        self._numbers[item.id] = number
        if self._seen is not None:
            self._seen.add(item.id)

    def _sorted(self, items: Sequence[QueuedMessage]) -> list[QueuedMessage]:
        return sorted(items, key=lambda item: self._numbers[item.id])

    def _cut(self, conversation: str, is_meant: Callable[[QueuedMessage], bool]) -> list[QueuedMessage]:
        """Remove the meant messages from the waiting ones, and return them."""
        waiting = self._waiting.get(conversation, [])
        cut = [item for item in waiting if is_meant(item)]
        if len(cut) == len(waiting):
            self._waiting.pop(conversation, None)
        elif cut:
            self._waiting[conversation] = [item for item in waiting if not is_meant(item)]
        return cut

    def _drop(self, items: list[QueuedMessage]) -> list[QueuedMessage]:
        for item in items:
            del self._numbers[item.id]
            self._held.discard(item.id)
        if items:
            self._note(QueueDropped(tuple(item.id for item in items)))
        return items


def place_of(item: QueuedMessage, waiting: Sequence[QueuedMessage]) -> int:
    """Return the place of a message among those that wait, from 1 on; 0 where it waits no longer."""
    return next((place for place, one in enumerate(waiting, 1) if one.id == item.id), 0)


@dataclass(slots=True)
class Intake:
    """The messages from the queue that one run has taken in, at their places among the messages of the run.

    Where `_live` is None, the run belongs to no conversation and never takes in anything.
    """

    _queue: MessageQueue
    _live: TurnRecorder | None
    _sink: Sink
    _added: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    _left_out: list[QueuedMessage] = field(default_factory=list)

    async def begin_step(
        self, of_client: Sequence[Message], appended: Sequence[Message], *, is_first: bool = False
    ) -> None:
        """Take in what has waited for this step, after the results among the messages that the run has appended.

        An answer that the client has begun is ended first. A raw model does not wait for what an earlier process has
        left: that comes after its reply, if it is late.
        """
        if self._live is None:
            return
        if is_first:
            await self._queue.ready_for(self._live)
            await self.take(0, MODES_AFTER.get(str(of_client[-1].get("role")), ANY))
        else:
            self._live.results(appended)
            await self.take(len(appended), STEER)

    async def take(self, place: int, *ranks: Collection[QueueMode], reply: dict[str, Any] | None = None) -> bool:
        """Take in waiting messages after so many messages of the run; tell whether there were any.

        They have the modes of the first of these ranks in which any wait. A `reply` that is not among the run's
        messages stands before them.
        """
        if (live := self._live) is None:
            return False
        for modes in ranks:
            if items := self._queue.take(live.conversation, live.id, modes):
                if reply is not None and reply.get("content") and self._added[-1:] != [(place, reply)]:
                    self._added.append((place, reply))
                live.took_in(items)
                self._added += [(place, {**item.message}) for item in items]
                await self._sink([Notice("taken in", text) for text in told("Taken in", items)])
                return True
        return False

    def merged(self, appended: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages of the run with those that were taken in, each where it came in."""
        merged: list[dict[str, Any]] = []
        before = 0
        for place, message in self._added:
            merged += [*appended[before:place], message]
            before = place
        return [*merged, *appended[before:]]

    def note_read(self, *, is_answered: bool = False) -> None:
        """Drop the messages from the queue that a model has begun to answer.

        Hold those that were left out where it has answered without them.
        """
        if is_answered and self._left_out:
            self._queue.hold([item.id for item in self._left_out])
            self._left_out.clear()
        if self._live is not None:
            self._live.hand_on()
            if not self._live.unread:
                self._queue.delivered(self._live.id)

    @property
    def has_unread(self) -> bool:
        """Tell whether a message was taken in that no model has begun to answer."""
        return self._live is not None and bool(self._live.unread)

    async def put_unread_back(self, error: ElbowroomError) -> bool:
        """Put messages back that may have caused a failure; tell whether there were any.

        Of several messages the later half goes back, and a next step may take it in. A single one is left out of all
        turns if the model then answers, and the person is told.
        """
        is_refused = isinstance(error, UpstreamRejected) and error.status in REFUSED
        self.note_read()
        if self._live is None or not self._live.unread or not (is_refused or isinstance(error, ContextOverflow)):
            return False
        unread = self._live.unread
        going = unread[len(unread) // 2 :]
        self._live.left_out(going)
        self._queue.give_back(self._live.id, [item.id for item in going])
        del self._added[-len(going) :]
        if len(unread) == 1:
            self._left_out += going
            why = "the model does not take it" if is_refused else "the model's window has no room for it"
            await self._sink([Notice("left out", f"Left in the queue, since {why}: {beginning_of(going[0])}")])
        return True

    def end(self) -> None:
        """End the run: messages that no model has begun to answer go back to the queue."""
        self.note_read()
        if self._live is not None and self._live.unread:
            self._queue.give_back(self._live.id)


def told(what: str, items: Sequence[QueuedMessage]) -> list[str]:
    """Return a line for each message to which this has happened, with its first words, for the person."""
    few = items if len(items) <= MOST_TOLD else items[: MOST_TOLD - 1]
    lines = [f"{what}: {beginning_of(item)}" for item in few]
    left = len(items) - len(few)
    return [*lines, f"{what}: {left} more messages"] if left else lines


def beginning_of(item: QueuedMessage) -> str:
    """Return the first words of a message on one line."""
    return one_line(text_of(item.message), LONGEST_BEGINNING) or "a message without text"
