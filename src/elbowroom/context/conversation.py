"""What is kept of conversations: the changes that are noted, what can be read again, and their store's protocol."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self

from elbowroom.context.budget import Budget
from elbowroom.context.transcript import CallState, Message

LARGEST_PAGE: Final = 200  # conversations that one page of a list may have
PRUNING: Final = "pruning_"  # and a conversation's id: the turn that all calls of its pruning agents count to

Status = Literal["streaming", "complete", "interrupted"]
"""A `streaming` reply is still growing; one that a stopped process leaves so is `interrupted` once it starts again."""

PieceKind = Literal["text", "reasoning"]
QueueMode = Literal["steer", "follow_up"]
"""A `steer` message enters the running turn at its next step, a `follow_up` once the turn has answered."""


@dataclass(frozen=True, slots=True)
class StepUsage:
    """Tokens of a model call, each counted once: `input` are those that the engine has read anew.

    `cache_read` are prompt tokens that it had read before, `cache_creation` those that it reports as put in a cache.
    `is_counted` tells that the numbers are counted here, since the upstream reports none.
    """

    input: int = 0
    output: int = 0
    cache_creation: int = 0
    cache_read: int = 0
    is_counted: bool = False

    @property
    def total(self) -> int:
        """Return the sum of all four counts."""
        return self.input + self.output + self.cache_creation + self.cache_read

    @property
    def prompt(self) -> int:
        """Return the size of the whole prompt, read anew or from a cache."""
        return self.input + self.cache_creation + self.cache_read

    def __add__(self, other: "StepUsage") -> "StepUsage":
        """Return the sums; they count as counted here if either operand does."""
        return StepUsage(
            self.input + other.input,
            self.output + other.output,
            self.cache_creation + other.cache_creation,
            self.cache_read + other.cache_read,
            self.is_counted or other.is_counted,
        )

    def as_openai(self) -> dict[str, Any]:
        """Return OpenAI's usage object; `elbowroom` in it says so where the numbers are counted here."""
        usage = {"prompt_tokens": self.prompt, "completion_tokens": self.output, "total_tokens": self.total}
        cached = {"prompt_tokens_details": {"cached_tokens": self.cache_read}} if self.cache_read else {}
        counted = {"elbowroom": {"counted": True}} if self.is_counted else {}
        return {**usage, **cached, **counted}


@dataclass(frozen=True, slots=True)
class ConversationBegun:
    """A new conversation. `name` is the client's name for it, empty where it gives none.

    `metadata` is what is told beside it from the start: the `program` that began it, and the `url` of the chat there.
    """

    conversation: str
    owner: str
    name: str
    agent: str
    at: float
    metadata: Mapping[str, str] = field(default_factory=dict)


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
    """More of a reply, to be appended."""

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
    """The end of a reply, complete or interrupted; `lost` is what the engine had to read again for it, as JSON."""

    message: str
    status: Status
    lost: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Added:
    """A message of a turn that no client has sent: a tool's result, after the reply that calls it, or a queued one.

    `queued` is the id that it has in the queue, which it leaves with the next change; empty for any other. Of several
    servers it is added by the one alone that has it: another one may have taken it from a server that stood still.
    """

    turn: str
    message: str
    content: Message
    at: float
    queued: str = ""


@dataclass(frozen=True, slots=True)
class ContextFill:
    """How many tokens of its window a conversation fills: its next prompt, or while it is answered the step.

    A prompt of `trigger` tokens or more is compacted, an answer is cut from `stop_at` on. `turn` is how many tokens one
    more turn takes, 0 where that is not known.
    """

    tokens: int
    window: int
    trigger: int
    stop_at: int
    turn: int = 0

    @classmethod
    def of(cls, tokens: int, budget: Budget, turn: int = 0) -> Self:
        """Return how full the window of this budget is with so many tokens in it."""
        return cls(tokens, budget.window, budget.compacts_at, budget.stop_at, turn)

    @property
    def turns_left(self) -> int | None:
        """Return how many turns fit before the conversation is compacted; None where that is not known."""
        return max(0, self.trigger - self.tokens) // self.turn if self.turn else None


@dataclass(frozen=True, slots=True)
class StepUsed:
    """The tokens that one model call has used; `fill` is None where the window is not managed."""

    turn: str
    model: str
    usage: StepUsage
    fill: ContextFill | None
    at: float


@dataclass(frozen=True, slots=True)
class Filled:
    """How full the window of a conversation is from now on: a turn has ended, or something was compacted."""

    conversation: str
    fill: ContextFill


@dataclass(frozen=True, slots=True)
class Titled:
    """A title that a client had made for a conversation; one that a person gave it goes before it."""

    conversation: str
    title: str


@dataclass(frozen=True, slots=True)
class CompactionDetails:
    """What a compaction did: how long it took, what stays word for word, how much is removed, and the summary of it.

    `groups_kept` counts messages that belong together as one, system messages apart; `focus` is what a person wanted
    kept or dropped, `verdict` what code found to be kept. All texts may be empty.
    """

    seconds: float
    groups_kept: int
    messages_kept: int
    messages_removed: int
    summary: str
    focus: str = ""
    verdict: str = ""


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
    """A turn that has ended, with the key in the ledger's chain of its answer as the client has it."""

    turn: str
    status: Status
    key: str
    at: float


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """A message of a person that waits in a conversation; `turn` has taken it in, and is empty while it waits."""

    id: str
    conversation: str
    message: Message
    mode: QueueMode
    at: float
    turn: str = ""

    @property
    def fingerprint(self) -> str:
        """Return a hash by which it is known whether the same was asked for again."""
        asked = json.dumps([self.message, self.mode], sort_keys=True).encode()
        return hashlib.blake2b(asked, digest_size=16).hexdigest()


@dataclass(frozen=True, slots=True)
class Queued:
    """A message that is put at the end of the queue, unless one of its id ever was; that it was is kept beside it."""

    item: QueuedMessage


@dataclass(frozen=True, slots=True)
class QueueTaken:
    """A turn takes these messages in. Until it ends they can come back: a process that dies has not delivered them."""

    turn: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueDropped:
    """These messages leave the queue: the turn that took them in has ended, or a person wants them back."""

    ids: tuple[str, ...]


Change = (
    ConversationBegun | Heard | TurnBegun | ReplyBegun | ReplyGrew | ReplyCalled | ReplyEnded | Added | StepUsed
    | Filled | Titled | CompactionNoted | TurnEnded | Queued | QueueTaken | QueueDropped
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """A conversation that a client sends and that is kept already: its id, and which of the keys it has.

    `may_have_hidden` is False where all of its turns are single replies, which the client has seen.
    """

    conversation: str
    kept: frozenset[str]
    may_have_hidden: bool = field(default=True, compare=False)


NONE_KNOWN: Final = Known("", frozenset(), may_have_hidden=False)  # a client sends no conversation that is kept


@dataclass(frozen=True, slots=True)
class KeptTurn:
    """A turn with all its messages in order; `key` is empty where the process died before the answer had ended."""

    id: str
    key: str
    parent: str
    agent: str
    status: Status
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Totals:
    """The tokens of a conversation's model calls; `pruning` are the pruning agent's, None where not asked for."""

    usage: StepUsage
    steps: int
    compactions: int
    pruning: "Totals | None" = None


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """A conversation as a list shows it; `title` is a person's, or begins its first question; `metadata` a client's."""

    id: str
    name: str
    agent: str
    title: str
    created: float
    updated: float
    totals: Totals
    fill: ContextFill | None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SavedTokens:
    """Tokens of a conversation that the engine did not have to read on one day, counted in days since 1970."""

    conversation: str
    day: int
    freed: int = 0
    compactions: int = 0
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Savings:
    """What caching and compaction have saved; `waits` are tokens and seconds before a first word, of late steps."""

    days: tuple[SavedTokens, ...]
    waits: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class KeptCompaction:
    """A compaction; `edited` is the summary as a person has changed it, `undone` when a person took it back."""

    before: int
    after: int
    rung: str
    at: float
    details: CompactionDetails | None = None  # of one that an older version has made
    edited: str | None = None
    undone: float | None = None


@dataclass(frozen=True, slots=True)
class KeptMessage:
    """A message of a conversation: one that a client sent, or one of a turn, which `turn` then names.

    The `key` and `parent` of a client's message are its place in the tree; those of a turn stand between its `parent`
    and its `key`, by `number`, from 1 on. `reasoning` is its thinking, `calls` its calls' states, `lost` as above.
    `turn_ended` is when the turn did, None while it goes on.
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
    turn_status: Status | None = None
    calls: Mapping[str, CallState] = field(default_factory=dict)
    lost: Mapping[str, Any] | None = None
    is_pinned: bool = False
    turn_ended: float | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """One conversation as it is kept, with the messages of all its branches in the order in which they came in."""

    row: ConversationRow
    compactions: tuple[KeptCompaction, ...]
    messages: tuple[KeptMessage, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """What a conversation is, without what was said in it."""

    row: ConversationRow
    compactions: tuple[KeptCompaction, ...]
    message_count: int


@dataclass(frozen=True, slots=True)
class PageWanted:
    """Selects messages: at most `limit` of those after the one with the id `cursor`, or from the first one on.

    With `is_backward` those right before it, or the last ones; `is_latest` leaves other branches out, `with_hidden`
    includes what no client has seen.
    """

    limit: int
    cursor: str = ""
    is_backward: bool = False
    is_latest: bool = True
    with_hidden: bool = True


@dataclass(frozen=True, slots=True)
class MessagePage:
    """Some of the messages of a conversation in order; `hidden` are the ids of those that no client has seen.

    `has_more` tells whether others follow, or come before them where the page was read backward. `is_known` is false
    where the conversation has no message at the cursor.
    """

    messages: tuple[KeptMessage, ...]
    hidden: frozenset[str] = frozenset()
    has_more: bool = False
    is_known: bool = True
