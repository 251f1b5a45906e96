"""What a run takes in from the queue of its conversation, told to the client and put where the model reads it."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.live_turn import LiveTurn
from elbowroom.agents.message_queue import ANY, FOLLOW_UP, STEER, MessageQueue
from elbowroom.context.conversation_changes import QueuedMessage, QueueMode
from elbowroom.context.tool_stubs import one_line
from elbowroom.context.transcript import Message, text_of
from elbowroom.errors import ContextOverflow, ElbowroomError, UpstreamRejected

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

    def __init__(self, queue: MessageQueue, live: LiveTurn | None, sink: Sink) -> None:
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
