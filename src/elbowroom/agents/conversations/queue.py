"""Messages that wait until a turn of their conversation takes them in."""

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.conversations.recording import TurnRecorder
from elbowroom.context.conversation import Change, Queued, QueuedMessage, QueueDropped, QueueMode, QueueTaken
from elbowroom.context.outputs import one_line
from elbowroom.context.transcript import Message, text_of
from elbowroom.errors import BodyTooLarge, ContextOverflow, ElbowroomError, RequestError, UpstreamRejected

STEER: Final[frozenset[QueueMode]] = frozenset({"steer"})
FOLLOW_UP: Final[frozenset[QueueMode]] = frozenset({"follow_up"})
ANY: Final = STEER | FOLLOW_UP
MOST_WAITING: Final = 1_000
MOST_BYTES: Final = 1024 * 1024
LOADING_SECONDS: Final = 2.0
"""How long what an earlier process has left is waited for, by all who use the queue together."""


class KeptQueue(Protocol):
    """What a queue needs of the `Conversations` that keep it."""

    def note(self, changes: Sequence[Change]) -> None:
        """Take changes in, to be written soon and in this order."""
        ...

    async def settled(self) -> bool:
        """Wait until all that was noted before is durable, or cannot be made so; tell whether it is."""
        ...

    async def queue(self) -> list[QueuedMessage]:
        """Return all that waits, in order; what was taken by a turn that has not ended waits again."""
        ...


class QueueFull(RequestError):
    """As many messages wait in a conversation as may."""

    status = 429
    type = "rate_limit_error"
    code = "conversation_queue_full"

    def __init__(self) -> None:
        super().__init__(
            f"{MOST_WAITING:,} messages wait in this conversation already, and no more may. Let a turn take them in, "
            "or remove some with DELETE."
        )


@dataclass(frozen=True, slots=True)
class Accepted:
    """A message that was put in the queue, at this place among those that wait, counted from 1.

    `is_stored` tells whether it outlives this process.
    """

    id: str
    position: int
    is_stored: bool


class MessageQueue:
    """What waits in all conversations, in order; each message is handed to one turn.

    What a turn has taken is either `delivered` or given back. `conversations` keep it all beyond this process; where
    they cannot, or are None, it is kept here.
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
        """Take up what an earlier process has left, once; where that takes too long, it comes in later."""
        if self._conversations is None or self._seen is None:
            return
        now = asyncio.get_running_loop().time()
        if self._loading is None:
            self._loading = asyncio.create_task(self._load(self._conversations))
            self._waits_until = now + LOADING_SECONDS
        await asyncio.wait([self._loading], timeout=max(0.0, self._waits_until - now))

    async def add(self, conversation: str, message: Message, mode: QueueMode) -> Accepted:
        """Put a message behind all others, and return once it is durable or cannot be made so.

        Raises QueueFull, or BodyTooLarge where it is too large.
        """
        size = _bytes_of(message)
        if size > MOST_BYTES:
            raise BodyTooLarge(f"A message of {size:,} bytes is more than the {MOST_BYTES:,} that may wait in a queue.")
        await self.load()
        waiting = self._waiting.setdefault(conversation, [])
        if len(waiting) >= MOST_WAITING:
            raise QueueFull
        item = QueuedMessage(f"qmsg_{secrets.token_hex(12)}", conversation, message, mode, self._clock())
        self._number(item, self._next)
        self._next += 1
        waiting.append(item)
        position = len(waiting)
        self._note(Queued(item))
        return Accepted(item.id, position, await self.settled())

    def take(self, conversation: str, turn: str, modes: Collection[QueueMode]) -> list[QueuedMessage]:
        """Hand the messages of these modes to a turn, in order; nobody else gets them while it has them."""
        taken = self._cut(conversation, lambda item: item.mode in modes and item.id not in self._held)
        if taken:
            self._taken.setdefault(turn, []).extend(taken)
            self._note(QueueTaken(turn, tuple(item.id for item in taken)))
        return taken

    def delivered(self, turn: str) -> None:
        """Let go what a turn has taken: the model has read it."""
        self._drop(self._taken.pop(turn, []))

    def give_back(self, turn: str, ids: Collection[str] | None = None) -> None:
        """Let what a turn has taken, and no model has read, wait again in its old place; with `ids` only these."""
        taken = self._taken.pop(turn, [])
        items = taken if ids is None else [item for item in taken if item.id in ids]
        if left := [item for item in taken if item not in items]:
            self._taken[turn] = left
        for conversation in {item.conversation for item in items}:
            mine = [item for item in items if item.conversation == conversation]
            self._waiting[conversation] = self._sorted([*mine, *self._waiting.get(conversation, [])])
        if items:
            self._note(QueueTaken("", tuple(item.id for item in items)))

    def hold(self, ids: Collection[str]) -> None:
        """Let these wait where they are until they are removed: no turn is handed them any more."""
        self._held.update(ids)

    def waiting(self, conversation: str) -> list[QueuedMessage]:
        """Return what waits in a conversation, in order."""
        return list(self._waiting.get(conversation, ()))

    def taken(self, conversation: str) -> list[QueuedMessage]:
        """Return what turns of a conversation have taken in and no model has read yet."""
        return [item for items in self._taken.values() for item in items if item.conversation == conversation]

    def remove(self, conversation: str, ids: Collection[str]) -> list[QueuedMessage]:
        """Remove those of these messages that wait, and return them."""
        return self._drop(self._cut(conversation, lambda item: item.id in ids))

    def clear(self, conversation: str) -> list[QueuedMessage]:
        """Remove all that waits in a conversation, and return it."""
        return self._drop(self._cut(conversation, lambda _: True))

    async def settled(self) -> bool:
        """Wait until what has happened so far is durable, or cannot be made so; tell whether it is.

        Those who ask while others are waiting for this are answered together.
        """
        if self._conversations is None:
            return False
        noted = self._noted
        async with self._settling:
            if self._settled < noted:
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
        """Take out of those that wait what is meant, and return it."""
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


def _bytes_of(message: Message) -> int:
    return len(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"))


LONGEST_BEGINNING: Final = 60  # characters
REFUSED: Final = frozenset({400, 413, 422})
"""Statuses by which an upstream says that it takes no such message."""
MOST_TOLD: Final = 5
MODES_BEHIND: Final[dict[str, frozenset[QueueMode]]] = {"tool": STEER, "assistant": frozenset()}
"""What a turn begins with behind the client's last message; in the middle of an answer nothing fits."""


class Intake:
    """The messages from the queue that one run has taken in, at their places among what the run itself has added.

    Where `live` is None, the run belongs to no conversation and nothing is ever taken in.
    """

    def __init__(self, queue: MessageQueue, live: TurnRecorder | None, sink: Sink) -> None:
        self._queue = queue
        self._live = live
        self._sink = sink
        self._added: list[tuple[int, dict[str, Any]]] = []
        self._left_out: list[QueuedMessage] = []

    async def begin(self, of_client: Sequence[Message]) -> None:
        """Take in what has waited for a turn; where the client is in the middle of an answer, that is ended first."""
        if self._live is not None:
            await self._queue.load()
            await self.take(0, MODES_BEHIND.get(str(of_client[-1].get("role")), ANY))

    async def take(self, place: int, modes: Collection[QueueMode]) -> bool:
        """Take in what waits, behind so many messages of the run; tell whether it was anything."""
        items = self._taken(modes)
        self._put(place, items)
        await self._tell(items)
        return bool(items)

    async def take_behind(self, place: int, reply: dict[str, Any]) -> bool:
        """Take in what waits behind a reply that is not among the messages of the run; tell whether it was anything.

        What is to follow the answer comes once nothing is left that steers it.
        """
        items = self._taken(STEER) or self._taken(FOLLOW_UP)
        if items and reply.get("content") and self._added[-1:] != [(place, reply)]:
            self._added.append((place, reply))
        self._put(place, items)
        await self._tell(items)
        return bool(items)

    def merged(self, appended: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the messages of the run with what was taken in, each where it was when it came."""
        merged: list[dict[str, Any]] = []
        before = 0
        for place, message in self._added:
            merged += [*appended[before:place], message]
            before = place
        return [*merged, *appended[before:]]

    def note_read(self) -> None:
        """Let those leave the queue for good that a model has begun to answer."""
        if self._live is not None:
            self._live.hand_on()
            if not self._live.unread:
                self._queue.delivered(self._live.id)

    @property
    def has_unread(self) -> bool:
        """Tell whether something was taken in that no model has begun to answer."""
        return self._live is not None and bool(self._live.unread)

    async def leave_out(self, error: ElbowroomError) -> bool:
        """Let some of what may have caused a failure wait again; tell whether there was anything to leave out.

        Of several messages it is the later half, which a next step may take in. One alone is left out of all turns,
        if the model then answers: the person is told.
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

    def note_answered(self) -> None:
        """Let what was left out of a step wait for good, since the model has answered without it."""
        self._queue.hold([item.id for item in self._left_out])
        self._left_out.clear()

    def end(self) -> None:
        """Let what no model has begun to answer wait again: the run has ended."""
        self.note_read()
        if self._live is not None:
            self._queue.give_back(self._live.id)

    def _taken(self, modes: Collection[QueueMode]) -> list[QueuedMessage]:
        return self._queue.take(self._live.conversation, self._live.id, modes) if self._live is not None else []

    def _put(self, place: int, items: Sequence[QueuedMessage]) -> None:
        if items and self._live is not None:
            self._live.took_in(items)
            self._added += [(place, {**item.message}) for item in items]

    async def _tell(self, items: Sequence[QueuedMessage]) -> None:
        if items:
            await self._sink([Notice("taken in", text) for text in told(items)])


def told(items: Sequence[QueuedMessage]) -> list[str]:
    """Return what the person is told of messages that are taken in: how each of them begins, on a line."""
    few = items if len(items) <= MOST_TOLD else items[: MOST_TOLD - 1]
    lines = [f"Taken in: {beginning_of(item)}" for item in few]
    left = len(items) - len(few)
    return [*lines, f"Taken in: {left} more messages"] if left else lines


def beginning_of(item: QueuedMessage) -> str:
    """Return how a message begins, on a line."""
    return one_line(text_of(item.message), LONGEST_BEGINNING) or "a message without text"
