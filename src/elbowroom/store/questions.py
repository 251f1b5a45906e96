"""What is asked about conversations: each question is a value, which passes through all that may answer it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from elbowroom.context.conversation import (
    LARGEST_PAGE,
    Change,
    Conversation,
    ConversationRow,
    KeptTurn,
    Known,
    MessagePage,
    Overview,
    PageWanted,
    QueuedMessage,
    Savings,
)

Answer = TypeVar("Answer")
Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class TwoPlaces:
    """Where conversations are while changes wait: the `changed` ones in one place, all others as they are `stored`.

    Nothing counts of the `outdated` ones that are stored, by their ids: they are among the changed ones, or deleted.
    """

    changed: "AskedConversations"
    stored: "AskedConversations"
    outdated: Collection[str]

    def is_stored(self, conversation: str) -> bool:
        """Tell whether a stored conversation counts."""
        return conversation not in self.outdated

    def holder(self, conversation: str) -> "AskedConversations":
        """Return where the conversation with this id is."""
        return self.stored if self.is_stored(conversation) else self.changed


class Question(ABC, Generic[Answer]):
    """A question about conversations. `owner` is whose they are: another one's are never found."""

    is_of_turn: ClassVar[bool] = False
    """Whether a turn waits for the answer, and not a person who lists, reads or exports conversations."""

    @abstractmethod
    async def asked_of(self, places: TwoPlaces) -> Answer:
        """Return the answer of two places together."""


class OfOne(Question[Answer]):
    """A question about one conversation, which is answered where that is; `conversation` is its id."""

    conversation: str

    async def asked_of(self, places: TwoPlaces) -> Answer:
        """Return the answer of the place that has the conversation."""
        return await places.holder(self.conversation).ask(self)


class OfAll(Question[Answer]):
    """A question about all conversations, to which two places have a part of the answer each."""

    async def asked_of(self, places: TwoPlaces) -> Answer:
        """Return the joined answer."""
        changed = await places.changed.ask(self)
        stored = await places.stored.ask(self.with_more(len(places.outdated)))
        return self.joined(changed, stored, places.is_stored)

    def with_more(self, count: int) -> Self:
        """Return the question for so many conversations more, where it names a number."""
        _ = count
        return self

    @abstractmethod
    def joined(self, changed: Answer, stored: Answer, is_stored: Callable[[str], bool]) -> Answer:
        """Return the parts of the answer as one."""


@dataclass(frozen=True, slots=True)
class LookUp(OfAll[Known | None]):
    """Which conversation has this name or id, or where that is empty, the longest beginning?

    `keys` are those of a chain. One with a name is found by its name alone. Of several that have the same beginning
    the one that was used last is meant; a beginning without any answer is none. The first `common` keys stand in many
    conversations and find none, except where an interrupted turn has answered them.
    """

    is_of_turn = True
    owner: str
    name: str
    keys: Sequence[str]
    common: int = 0

    def joined(self, changed: Known | None, stored: Known | None, is_stored: Callable[[str], bool]) -> Known | None:
        """Return the one with the longer beginning."""
        if stored is None or not is_stored(stored.conversation):
            return changed
        places = {key: place for place, key in enumerate(self.keys, 1)}
        length, other = (max((places[key] for key in one.kept), default=0) if one else -1 for one in (changed, stored))
        return changed if length >= other else stored


@dataclass(frozen=True, slots=True)
class Turns(OfOne[list[KeptTurn]]):
    """Which turns hold more than a reply and have an answer, or else a parent, with one of these keys?

    By their parents only those are found that were interrupted before their key was known.
    """

    is_of_turn = True
    conversation: str
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class Pins(OfOne[frozenset[str]]):
    """Which keys have the pinned messages of a conversation? One that was said in a turn has the key of the turn."""

    is_of_turn = True
    conversation: str


@dataclass(frozen=True, slots=True)
class Times(OfOne[Mapping[str, float]]):
    """When were the messages with these keys said, in Unix seconds? Those that are not known are left out."""

    is_of_turn = True
    conversation: str
    keys: Sequence[str]


@dataclass(frozen=True, slots=True)
class Queue(OfAll[list[QueuedMessage]]):
    """What waits in all queues, in order, and what has an unfinished turn taken? Asked once, at the start."""

    is_of_turn = True

    def joined(
        self, changed: list[QueuedMessage], stored: list[QueuedMessage], is_stored: Callable[[str], bool]
    ) -> list[QueuedMessage]:
        """Return all, those of stored conversations first."""
        return [item for item in stored if is_stored(item.conversation)] + changed


@dataclass(frozen=True, slots=True)
class Receipt(OfOne[str | None]):
    """What is the fingerprint of the message that was ever put in a conversation's queue under this id?"""

    is_of_turn = True
    conversation: str
    message: str


@dataclass(frozen=True, slots=True)
class Rows(OfAll[list[ConversationRow]]):
    """Which conversations are there, the one used last first, only those used before that moment?

    With `search` only those whose messages, results of tools too, hold this text, in whatever case; with `agent` only
    those that this agent or model has answered last, with `program` those that this program began, and with `model`
    those for which this model was asked.
    """

    owner: str
    search: str = field(default="", kw_only=True)
    agent: str = field(default="", kw_only=True)
    program: str = field(default="", kw_only=True)
    model: str = field(default="", kw_only=True)
    before: float | None = field(default=None, kw_only=True)
    limit: int = field(default=50, kw_only=True)

    @property
    def size(self) -> int:
        """Return how many of them are told at most."""
        return min(max(self.limit, 1), LARGEST_PAGE)

    def with_more(self, count: int) -> Self:
        """Return the question for so many conversations more."""
        return replace(self, limit=self.size + count)

    def joined(
        self, changed: list[ConversationRow], stored: list[ConversationRow], is_stored: Callable[[str], bool]
    ) -> list[ConversationRow]:
        """Return those used last."""
        rows = changed + [row for row in stored if is_stored(row.id)]
        return sorted(rows, key=lambda row: (row.updated, row.id), reverse=True)[: self.size]


@dataclass(frozen=True, slots=True)
class Saved(OfAll[Savings]):
    """What have caching and compaction saved, on each day of a place `zone` minutes east of Greenwich?"""

    owner: str
    zone: int = 0

    def joined(self, changed: Savings, stored: Savings, is_stored: Callable[[str], bool]) -> Savings:
        """Return all."""
        days = tuple(each for each in stored.days if is_stored(each.conversation))
        return Savings(days + changed.days, stored.waits + changed.waits)


@dataclass(frozen=True, slots=True)
class Find(OfAll[ConversationRow | None]):
    """Which conversation has this id, or else this name?"""

    owner: str
    conversation: str

    def joined(
        self, changed: ConversationRow | None, stored: ConversationRow | None, is_stored: Callable[[str], bool]
    ) -> ConversationRow | None:
        """Return the changed one, or else the stored one."""
        return changed or (stored if stored and is_stored(stored.id) else None)


@dataclass(frozen=True, slots=True)
class Holder(OfAll[str | None]):
    """Which conversation, by its id, has the turn with this id?"""

    owner: str
    turn: str

    def joined(self, changed: str | None, stored: str | None, is_stored: Callable[[str], bool]) -> str | None:
        """Return the changed one, or else the stored one."""
        return changed or (stored if stored and is_stored(stored) else None)


@dataclass(frozen=True, slots=True)
class OfNamed(Question[Answer]):
    """A question about the owner's conversation with this id, or else with this name."""

    owner: str
    conversation: str

    async def asked_of(self, places: TwoPlaces) -> Answer:
        """Return the answer of the place that has the conversation."""
        row = await Find(self.owner, self.conversation).asked_of(places)
        if row is None:
            return await places.changed.ask(self)  # which has none of that name either
        return await places.holder(row.id).ask(replace(self, conversation=row.id))


@dataclass(frozen=True, slots=True)
class Read(OfNamed[Conversation | None]):
    """What is all of the conversation?"""


@dataclass(frozen=True, slots=True)
class Look(OfNamed[Overview | None]):
    """What is the conversation, without what was said in it?"""


@dataclass(frozen=True, slots=True)
class Page(OfNamed[MessagePage | None]):
    """What are some messages of the conversation?"""

    wanted: PageWanted


@dataclass(frozen=True, slots=True)
class OneMessage(OfNamed[MessagePage | None]):
    """What is the message with this id? It is alone on its page."""

    message: str


def asked(
    question: Callable[Given, Question[Answer]],
) -> Callable[Concatenate["AskedConversations", Given], Coroutine[Any, Any, Answer]]:
    """Return the method that asks this question."""

    async def ask(conversations: "AskedConversations", /, *args: Given.args, **named: Given.kwargs) -> Answer:
        return await conversations.ask(question(*args, **named))

    return ask


class AskedConversations(ABC):
    """Where questions about conversations are answered; each method asks the question that it is made of."""

    @abstractmethod
    async def ask(self, question: Question[Answer]) -> Answer:
        """Return the answer."""

    look_up = asked(LookUp)
    turns = asked(Turns)
    pins = asked(Pins)
    times = asked(Times)
    queue = asked(Queue)
    receipt = asked(Receipt)
    rows = asked(Rows)
    saved = asked(Saved)
    find = asked(Find)
    holder = asked(Holder)
    read = asked(Read)
    overview = asked(Look)
    page = asked(Page)
    message = asked(OneMessage)


class Conversations(AskedConversations):
    """Where conversations are kept. Every question is answered with all that was noted before. Nothing here raises."""

    @abstractmethod
    def note(self, changes: Sequence[Change]) -> None:
        """Take changes in, to be written soon and in this order; what is no JSON is left out, with a warning."""

    @abstractmethod
    def note_when_writing(self, hand_on: Callable[[], None]) -> None:
        """Call this once, a moment later when changes are written, so that it notes what has come until then."""

    @abstractmethod
    def remembered(self, owner: str, name: str, keys: Sequence[str], common: int) -> Known | None:
        """Answer as `look_up` does, from memory and at once, or with NONE_KNOWN; None where only the store can tell."""

    @property
    @abstractmethod
    def is_opening(self) -> bool:
        """Tell whether the store is being opened, so that only what is new is known."""

    @abstractmethod
    def expect(self, noting: Awaitable[None]) -> None:
        """Let what people ask wait until this task has noted what was said."""

    @abstractmethod
    async def settled(self) -> bool:
        """Wait until all that was noted before is durable, or cannot be made so; tell whether it is."""

    @abstractmethod
    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete one turn with all that was said in it; tells whether it was there."""

    @abstractmethod
    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete one with all that belongs to it; tells whether it was there."""
