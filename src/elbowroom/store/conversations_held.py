"""One conversation in memory: it takes changes in and shows what is kept of it."""

from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass, field
from typing import Final

from elbowroom.context.conversation import (
    Added,
    CompactionNoted,
    ContextFill,
    Conversation,
    ConversationBegun,
    ConversationRow,
    Heard,
    KeptCompaction,
    KeptMessage,
    KeptTurn,
    Queued,
    QueuedMessage,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    Status,
    StepUsage,
    StepUsed,
    Totals,
    TurnBegun,
    TurnEnded,
)
from elbowroom.context.transcript import Message, text_of
from elbowroom.store.owner_key import owner_key

TITLE_CHARACTERS: Final = 80


@dataclass(slots=True)
class HeldMessage:
    """A message of a conversation: `whole` as it came, or a reply that grows piece by piece."""

    id: str
    number: int
    turn: str
    key: str
    parent: str
    agent: str
    status: Status
    at: float
    whole: Message | None = None
    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Message] = field(default_factory=list)

    @property
    def message(self) -> Message:
        """Return the message in OpenAI's form."""
        if self.whole is not None:
            return self.whole
        said = {"role": "assistant", "content": "".join(self.text)}
        return {**said, "tool_calls": list(self.calls)} if self.calls else said

    @property
    def is_empty(self) -> bool:
        """Tell whether this is a reply that has said nothing and called nothing."""
        return self.whole is None and not self.calls and not any(self.text)

    def kept(self, key: str) -> KeptMessage:
        """Return it as it is read; `key` is its own or, within a turn, that of the turn's answer."""
        return KeptMessage(
            self.id,
            self.number,
            self.turn,
            key,
            self.parent,
            self.agent,
            self.status,
            self.message,
            "".join(self.reasoning),
            self.at,
        )


@dataclass(slots=True)
class HeldTurn:
    """A turn with its messages in order."""

    id: str
    parent: str
    agent: str
    status: Status = "streaming"
    key: str = ""
    messages: list[HeldMessage] = field(default_factory=list)

    def kept(self) -> KeptTurn:
        """Return it as it is put back: without replies that hold nothing."""
        messages = tuple(message.message for message in self.messages if not message.is_empty)
        return KeptTurn(self.id, self.key, self.parent, self.agent, self.status, messages)

    def ends(self, change: TurnEnded) -> None:
        """Take in its end, which is the end of a reply that is still being said, too."""
        self.status, self.key = change.status, change.key
        for message in self.messages:
            if message.status == "streaming":
                message.status = change.status

    def is_meant(self, keys: Collection[str]) -> bool:
        """Tell whether its answer has one of these keys, or its parent where it was stopped before it had one."""
        if self.key:
            return self.key in keys
        return self.status == "interrupted" and self.parent in keys


@dataclass(slots=True)
class HeldConversation:
    """All that is kept of one conversation."""

    id: str
    owner: str
    name: str
    agent: str
    created: float
    updated: float
    title: str = ""
    usage: StepUsage = field(default_factory=StepUsage)
    steps: int = 0
    fill: ContextFill | None = None
    size: int = 0
    compactions: list[KeptCompaction] = field(default_factory=list)
    messages: list[HeldMessage] = field(default_factory=list)
    heard: dict[str, HeldMessage] = field(default_factory=dict)
    turns: dict[str, HeldTurn] = field(default_factory=dict)
    replies: dict[str, HeldMessage] = field(default_factory=dict)
    queue: dict[str, QueuedMessage] = field(default_factory=dict)

    @classmethod
    def of(cls, change: ConversationBegun) -> "HeldConversation":
        """Return a new one; its owner is known by a hash."""
        return cls(change.conversation, owner_key(change.owner), change.name, change.agent, change.at, change.at)

    def used(self, at: float) -> None:
        """Take it as used at that moment."""
        self.updated = max(self.updated, at)

    def hear(self, change: Heard) -> None:
        """Take in a message of the client, unless it is there; an answer that was kept as a turn is there."""
        if change.key in self.heard or any(turn.key == change.key for turn in self.turns.values()):
            return
        key = change.key
        heard_id, number = heard_message_id(self.id, key), self._next()
        message = HeldMessage(
            heard_id, number, "", key, change.parent, self.agent, "complete", change.at, change.message
        )
        self.heard[key] = message
        self.messages.append(message)
        if not self.title:
            self.title = title_of(change.message)

    def begin_turn(self, change: TurnBegun) -> None:
        """Take in a turn, unless it is there."""
        self.turns.setdefault(change.turn, HeldTurn(change.turn, change.parent, change.agent))

    def begin_reply(self, change: ReplyBegun) -> None:
        """Take in a reply that says nothing yet."""
        self._add(change.turn, change.message, "streaming", change.at, None)

    def grow(self, change: ReplyGrew) -> None:
        """Take in more of a reply."""
        reply = self.replies[change.message]
        (reply.text if change.kind == "text" else reply.reasoning).append(change.text)

    def call(self, change: ReplyCalled) -> None:
        """Take in what a reply calls."""
        self.replies[change.message].calls.append(change.call)

    def end_reply(self, change: ReplyEnded) -> None:
        """Take in that a reply has ended."""
        self.replies[change.message].status = change.status

    def end_turn(self, change: TurnEnded) -> None:
        """Take in that a turn has ended."""
        self.turns[change.turn].ends(change)

    def put_in_queue(self, change: Queued) -> None:
        """Put a message behind all others that wait, unless it is there."""
        self.queue.setdefault(change.item.id, change.item)

    def add(self, change: Added) -> None:
        """Take in a whole message of a turn."""
        self._add(change.turn, change.message, "complete", change.at, change.content)

    def use(self, change: StepUsed) -> None:
        """Add up what a step has used; the fill is that of the last step."""
        self.usage += change.usage
        self.steps += 1
        self.fill = change.fill or self.fill

    def compact(self, change: CompactionNoted) -> None:
        """Take in a compaction."""
        self.compactions.append(KeptCompaction(change.before, change.after, change.rung, change.at, change.details))

    def keys(self) -> set[str]:
        """Return the keys of the messages that it has: of the client's, and of the answers of turns."""
        return {*self.heard, *(turn.key for turn in self.turns.values() if turn.key)}

    def known(self, keys: Sequence[str]) -> int:
        """Return how long the known beginning of a chain is, 0 where no answer is in it."""
        mine = self.keys()
        length = max((place for place, key in enumerate(keys, 1) if key in mine), default=0)
        beginning = set(keys[:length])
        if any(self.heard[key].message.get("role") == "assistant" for key in beginning & self.heard.keys()):
            return length
        goes_on = set(keys[:-1])
        for turn in self.turns.values():
            if turn.key in beginning or (turn.is_meant(goes_on) and turn.parent in beginning):
                return length
        return 0

    def holds(self, text: str) -> bool:
        """Tell whether a message holds a text, which is in lower case."""
        return not text or any(text in text_of(message.message).lower() for message in self.messages)

    def row(self) -> ConversationRow:
        """Return it as a list shows it."""
        totals = Totals(self.usage, self.steps, len(self.compactions))
        return ConversationRow(
            self.id, self.name, self.agent, self.title, self.created, self.updated, totals, self.fill
        )

    def shown(self) -> Conversation:
        """Return all of it."""
        keys = {turn.id: turn.key for turn in self.turns.values()}
        messages = tuple(message.kept(keys.get(message.turn, message.key)) for message in self.messages)
        return Conversation(self.row(), tuple(self.compactions), messages)

    def waiting(self, ended: Container[str]) -> list[QueuedMessage]:
        """Return the queue, as waiting also what was taken from it by turns other than those that have `ended`."""
        return [
            QueuedMessage(item.id, item.conversation, item.message, item.mode, item.at)
            for item in self.queue.values()
            if item.turn not in ended
        ]

    def forget_turn(self, turn: str) -> list[str]:
        """Let a turn go with all that was said in it; return the ids of that."""
        said = [message.id for message in self.turns.pop(turn).messages]
        self.messages = [message for message in self.messages if message.turn != turn]
        for message in said:
            del self.replies[message]
        return said

    def _add(self, turn_id: str, message_id: str, status: Status, at: float, whole: Message | None) -> None:
        turn = self.turns[turn_id]
        if message_id not in self.replies:
            message = HeldMessage(message_id, self._next(), turn_id, "", turn.parent, turn.agent, status, at, whole)
            self.replies[message_id] = message
            self.messages.append(message)
            turn.messages.append(message)

    def _next(self) -> int:
        return self.messages[-1].number + 1 if self.messages else 1


def title_of(message: Message) -> str:
    """Return the beginning of a question, in one line; empty for other messages and such that hold no text."""
    if message.get("role") != "user":
        return ""
    return " ".join(text_of(message)[: TITLE_CHARACTERS * 4].split())[:TITLE_CHARACTERS].rstrip()


def heard_message_id(conversation: str, key: str) -> str:
    """Return the id of a message that a client sent, which is there once in each conversation."""
    return f"{conversation}-{key}"
