"""What happens to a conversation, change by change, as it is noted to be kept."""

from dataclasses import dataclass
from typing import Literal

from elbowroom.context.step_usage import StepUsage
from elbowroom.context.transcript import Message

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
