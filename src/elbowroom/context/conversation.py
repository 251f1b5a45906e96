"""A conversation as it is kept: what can be read of it again, and where conversations are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from elbowroom.context.conversation_changes import Change, CompactionDetails, ContextFill, QueuedMessage, Status
from elbowroom.context.step_usage import StepUsage
from elbowroom.context.transcript import Message

LARGEST_PAGE = 200


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a conversation that a client sends: which it is, and which of the keys it has already."""

    conversation: str
    kept: frozenset[str]


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """A turn with all its messages in order: replies, results, what came from the queue, and the last reply.

    `key` is empty where the process died before the answer ended: then `messages` are what had been written.
    """

    id: str
    key: str
    parent: str
    agent: str
    status: Status
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """What a conversation has used in all its model calls, in tokens."""

    usage: StepUsage
    steps: int
    compactions: int


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation as a list shows it; `title` is the beginning of its first question."""

    id: str
    name: str
    agent: str
    title: str
    created: float
    updated: float
    totals: Totals
    fill: ContextFill | None


@dataclass(frozen=True, slots=True)
class KeptCompaction:
    """A compaction of a conversation, as `CompactionNoted`; of one from before there were any, `details` are None."""

    before: int
    after: int
    rung: str
    at: float
    details: CompactionDetails | None = None


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message of a conversation: one that a client sent, or one of a turn, which `turn` then names.

    Of a client's message `key` and `parent` are its place in the tree; those of a turn stand between the turn's
    `parent` and its `key`, in the order of `number`. `reasoning` is what the model has thought before it spoke.
    """

    id: str
    number: int
    turn: str
    key: str
    parent: str
    agent: str
    status: Status
    message: Message
    reasoning: str
    at: float


@dataclass(frozen=True, slots=True)
class Conversation:
    """All that is kept of one conversation, the messages of all its branches in the order in which they came in."""

    row: ConversationRow
    compactions: tuple[KeptCompaction, ...]
    messages: tuple[KeptMessage, ...]


class Conversations(Protocol):
    """Where conversations are kept. Every question is answered with all that was noted before. Nothing here raises.

    `owner` is whose they are: another one's are never found.
    """

    def note(self, changes: Sequence[Change]) -> None:
        """Take changes in, to be written soon and in this order; what is no JSON is left out, with a warning."""
        ...

    async def settled(self) -> bool:
        """Wait until all that was noted before is durable, or cannot be made so; tell whether it is."""
        ...

    async def look_up(self, owner: str, name: str, keys: Sequence[str]) -> Known | None:
        """Find the conversation with this name, or where that is empty, the one that has the longest beginning.

        `keys` are those of a chain. One with a name is found by its name alone. Of several that have the same
        beginning the one that was used last is meant; a beginning without any answer is none.
        """
        ...

    async def turns(self, conversation: str, keys: Sequence[str]) -> list[KeptTurn]:
        """Return the turns whose answer, or else whose parent, has one of these keys and that hold more than a reply.

        By their parents only those are found that were interrupted before their key was known.
        """
        ...

    async def queue(self) -> list[QueuedMessage]:
        """Return all that waits in the queues of all conversations, in order; called once, when the server starts.

        What was taken by a turn that has not ended waits again.
        """
        ...

    async def rows(
        self, owner: str, *, search: str = "", before: float | None = None, limit: int = 50
    ) -> list[ConversationRow]:
        """Return conversations, the one used last first; only those used before that moment.

        With `search` only those whose messages, results of tools too, hold this text, in whatever case.
        """
        ...

    async def find(self, owner: str, conversation: str) -> ConversationRow | None:
        """Return the conversation with this id, or else with this name."""
        ...

    async def holder(self, owner: str, turn: str) -> str | None:
        """Return the id of the conversation that has the turn with this id."""
        ...

    async def read(self, owner: str, conversation: str) -> Conversation | None:
        """Return all of the conversation with this id, or else with this name."""
        ...

    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete one turn with all that was said in it; tells whether it was there."""
        ...

    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete one with all that belongs to it; tells whether it was there."""
        ...
