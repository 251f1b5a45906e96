"""What a run takes in from the queue of its conversation, told to the client and put where the model reads it."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.live_turn import LiveTurn
from elbowroom.agents.message_queue import ANY, FOLLOW_UP, STEER, MessageQueue
from elbowroom.context.conversation import QueuedMessage, QueueMode
from elbowroom.context.tool_stubs import one_line
from elbowroom.context.transcript import Message, text_of

LONGEST_BEGINNING: Final = 60  # characters
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
        if items and reply.get("content"):
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
            if not self._live.has_unread:
                self._queue.delivered(self._live.id)

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
    lines = [
        f"Taken in: {one_line(text_of(item.message), LONGEST_BEGINNING) or 'a message without text'}" for item in few
    ]
    left = len(items) - len(few)
    return [*lines, f"Taken in: {left} more messages"] if left else lines
