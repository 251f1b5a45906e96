"""A conversation as it is kept: what can be read of it again, and where conversations are kept."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from elbowroom.context.transcript import Message


@dataclass(frozen=True, slots=True)
class StepUsage:
    """Tokens of a model call, each counted once: `input` are those that the engine has read anew.

    `cache_read` are those of the prompt that it had read before, `cache_creation` those that it says it has put in a
    cache of its own. `is_counted` tells that the numbers are counted here, since the upstream reports none.
    """

    input: int = 0
    output: int = 0
    cache_creation: int = 0
    cache_read: int = 0
    is_counted: bool = False

    @property
    def total(self) -> int:
        """Return all of them together."""
        return self.input + self.output + self.cache_creation + self.cache_read

    @property
    def prompt(self) -> int:
        """Return the whole prompt, wherever it was read from."""
        return self.input + self.cache_creation + self.cache_read

    def __add__(self, other: "StepUsage") -> "StepUsage":
        """Return the sums; they are counted where one of them is."""
        return StepUsage(
            self.input + other.input,
            self.output + other.output,
            self.cache_creation + other.cache_creation,
            self.cache_read + other.cache_read,
            self.is_counted or other.is_counted,
        )

    def as_openai(self) -> dict[str, Any]:
        """Return OpenAI's usage object; one that is counted here says so under `elbowroom`."""
        prompt = self.input + self.cache_creation + self.cache_read
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": self.output,
            "total_tokens": self.total,
        }
        if self.cache_read:
            usage["prompt_tokens_details"] = {"cached_tokens": self.cache_read}
        return {**usage, "elbowroom": {"counted": True}} if self.is_counted else usage


Status = Literal["streaming", "complete", "interrupted"]
"""`streaming` is being said; what a stopped process leaves so is `interrupted` with the next start."""
PieceKind = Literal["text", "reasoning"]
QueueMode = Literal["steer", "follow_up"]
"""`steer` is taken in at the next step of the running turn, `follow_up` once it has answered."""


@dataclass(frozen=True, slots=True)
class ConversationBegun:
    """A conversation that was not known. `name` is what the client calls it, empty where it does not say."""

    conversation: str
    owner: str
    name: str
    agent: str
    at: float


@dataclass(frozen=True, slots=True)
class Heard:
    """A message as the client sent it; `key` and `parent` are its place in the ledger's chain (`Archived`)."""

    conversation: str
    key: str
    parent: str
    message: Message
    at: float


@dataclass(frozen=True, slots=True)
class TurnBegun:
    """A turn that answers the message with the key `parent`."""

    turn: str
    conversation: str
    parent: str
    agent: str
    at: float


@dataclass(frozen=True, slots=True)
class ReplyBegun:
    """The model begins one message of a turn."""

    turn: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class ReplyGrew:
    """More of a reply, behind what it has already."""

    message: str
    kind: PieceKind
    text: str


@dataclass(frozen=True, slots=True)
class ReplyCalled:
    """A tool that a reply calls, in OpenAI's form."""

    message: str
    call: Message


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """A reply that is whole, or was interrupted."""

    message: str
    status: Status


@dataclass(frozen=True, slots=True)
class Added:
    """A whole message within a turn that no client has sent: a tool's result, or one from the queue.

    A result carries `tool_call_id`; it stands behind the reply that calls the tool.
    """

    turn: str
    message: str
    content: Message
    at: float


@dataclass(frozen=True, slots=True)
class ContextFill:
    """What a step has filled of its window, in tokens; `trigger` and `stop_at` are where it is compacted and cut."""

    tokens: int
    window: int
    trigger: int
    stop_at: int


@dataclass(frozen=True, slots=True)
class StepUsed:
    """What one model call has used; `fill` is None where the window is not managed."""

    turn: str
    model: str
    usage: StepUsage
    fill: ContextFill | None
    at: float


@dataclass(frozen=True, slots=True)
class CompactionDetails:
    """What a compaction took and left: its time, what stays word for word, what is gone, and what stands for that.

    `groups_kept` are messages that belong together, system messages apart; `summary` is empty where nothing was told.
    """

    seconds: float
    groups_kept: int
    messages_kept: int
    messages_removed: int
    summary: str


@dataclass(frozen=True, slots=True)
class CompactionNoted:
    """A compaction; `before` and `after` are sizes of the prompt in tokens, `rung` says how it was done."""

    conversation: str
    before: int
    after: int
    rung: str
    at: float
    details: CompactionDetails | None = None


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn that has ended, with the key of its answer in the ledger's chain, as the client has it."""

    turn: str
    status: Status
    key: str
    at: float


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message of a person that waits in a conversation; `turn` has taken it, empty while it waits."""

    id: str
    conversation: str
    message: Message
    mode: QueueMode
    at: float
    turn: str = ""


@dataclass(frozen=True, slots=True)
class Queued:
    """A message that is put in the queue, behind all others."""

    item: QueuedMessage


@dataclass(frozen=True, slots=True)
class QueueTaken:
    """A turn takes these in. Until it ends they can come back: a process that dies has not delivered them."""

    turn: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueDropped:
    """These leave the queue: a turn that had them has ended, or a person wants them back."""

    ids: tuple[str, ...]


Change = (
    ConversationBegun
    | Heard
    | TurnBegun
    | ReplyBegun
    | ReplyGrew
    | ReplyCalled
    | ReplyEnded
    | Added
    | StepUsed
    | CompactionNoted
    | TurnEnded
    | Queued
    | QueueTaken
    | QueueDropped
)


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
