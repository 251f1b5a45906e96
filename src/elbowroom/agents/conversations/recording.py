"""Records turns: notes an answer in its conversation while it comes."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, groupby
from operator import attrgetter
from typing import Any, Final

from elbowroom.agents.answer import Notice, Sink, ToolCall
from elbowroom.context.branch import ConversationTree
from elbowroom.context.conversation import (
    PRUNING,
    Added,
    Change,
    CompactionDetails,
    CompactionNoted,
    ContextFill,
    Filled,
    KeptMessage,
    KeptTurn,
    Known,
    PieceKind,
    QueuedMessage,
    QueueDropped,
    ReplyBegun,
    ReplyCalled,
    ReplyEnded,
    ReplyGrew,
    Status,
    StepUsage,
    StepUsed,
    TurnBegun,
    TurnEnded,
)
from elbowroom.context.ledger import REUSED, Chain
from elbowroom.context.transcript import Message, text_of
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.store.questions import Conversations

log = logging.getLogger(__name__)
MOST_WAITING: Final = 64
"""How many pieces of a reply wait at most before they are noted; the store asks for fewer a few times a second."""
HANDED_OVER: Final = "The conversation was handed over."
"""How the result of a handover begins, which the next agent reads."""
KINDS: Final[Mapping[type[TextDelta | ReasoningDelta], PieceKind]] = {TextDelta: "text", ReasoningDelta: "reasoning"}
HIDDEN_SECONDS: Final = 1.0
"""How long an answer waits for what the client has never seen; it comes without that otherwise."""
TIMES_SECONDS: Final = 0.25
"""How long an answer waits for the times of what comes back unasked."""
BRANCH_SECONDS: Final = 30.0
"""How long all of a conversation may take to be read for a tool."""
MOMENT_SECONDS: Final = 0.005
"""How long an answer waits for its conversation to be found where it can go on without: at its first frame."""
QUIET_SECONDS: Final = 0.3
"""A person is not told of a wait for the store that is no longer."""
OPENING: Final = "Waiting for the database of conversations, which is still being opened."
OPENED: Final = "The database of conversations is open."
MISSED: Final = (
    "The database of conversations did not answer in time: what your program does not send, such as an answer that "
    "broke off, may be missing from what the model reads now."
)


Changes = Sequence[Change] | Callable[[str], Sequence[Change]]
"""Changes of a conversation, or what returns them for its id."""


class TurnRecorder:
    """Records the answer to one request in `conversations` as it comes; where that is None, nothing is kept.

    `chain` is that of the client's messages, for the agent that was asked. A reply without a word or a call is not
    recorded. While the store looks for its conversation, `conversation` is empty, or what it is called most likely,
    and changes wait here in order. What the client has never seen is waited for; for its queue and its compactions
    only an agent, which `is_patient`, waits. `is_first` says that the conversation has begun with this turn. `unread`
    are the messages from the queue that the turn has taken in and no model has read yet. `prompt` is how many tokens
    the last prompt has that was sent, by our count, and 0 before that. A failure of the store is raised by none of its
    methods but `branch`.
    """

    def __init__(
        self,
        conversations: Conversations | None,
        conversation: str,
        owner: str,
        agent: str,
        chain: Chain,
        *,
        is_patient: bool = True,
        turn: str = "",
    ) -> None:
        self.id = turn or f"turn_{secrets.token_hex(12)}"
        self.conversation = conversation
        self.is_patient = is_patient
        self.owner = owner
        self.agent = agent
        self.chain = chain
        self.is_first = False
        self.prompt = 0
        self._conversations = conversations
        self._waiting: list[TextDelta | ReasoningDelta] = []
        self._numbers = count(1)
        self._reply = ""
        self._called: set[str] = set()
        self.unread: Sequence[QueuedMessage] = ()
        self._is_ended = False
        self._finding: asyncio.Task[None] | None = None
        self._unplaced: list[Changes] = []
        self._may_have_hidden = True
        self._tell: Callable[[], object] | None = None
        self.show: Sink = _shown_to_nobody
        """Tells the person where the answer waits for the store, and where that was in vain."""
        self._release: Callable[[], None] = lambda: None
        self._is_missed = False

    def found_by(self, finding: "asyncio.Task[None]") -> None:
        """Let changes wait until this task has told, with `belongs_to`, which conversation they belong to."""
        self._finding = finding

    def belongs_to(self, known: Known, begun: Iterable[Change], release: Callable[[], None]) -> None:
        """Record in this conversation from now on, `begun` first and then all that has waited for it.

        `release` gives back the conversation's lock, with the end of the turn.
        """
        self.conversation, self._may_have_hidden = known.conversation, known.may_have_hidden
        unplaced, self._unplaced, self._finding = self._unplaced, [], None
        self._send([*begun])
        for changes in unplaced:
            self._send(changes)
        self._release = release
        if self._is_ended:
            release()
        if self._tell is not None:
            self._tell()
            self._tell = None  # it knows this recorder

    def not_found_in_time(self) -> None:
        """Note that the store did not tell in time which conversation it is, so that its past is not known."""
        self._is_missed = True

    def tell(self, tell: Callable[[], object]) -> None:
        """Call this now, and again where the conversation is found later."""
        if self._finding is not None:
            self._tell = tell
        tell()

    @property
    def is_placed(self) -> bool:
        """Tell whether the conversation is found, or begun."""
        return self._finding is None

    async def is_found(self, *, is_patient: bool = False, seconds: float = MOMENT_SECONDS) -> bool:
        """Wait a moment for the conversation to be found, or as long as it takes; tell whether it is."""
        if self._finding is not None:
            await asyncio.wait([self._finding], timeout=None if is_patient else seconds)
        return self.is_placed

    @property
    def parent(self) -> str:
        """Return the key of the client's last message, which the turn answers."""
        return self.chain.keys[-1] if self.chain.keys else self.chain.seed

    def step_began(self) -> None:
        """Begin another reply with the next words."""
        self._end_reply("interrupted")

    def said(self, events: Sequence[TextDelta | ReasoningDelta]) -> None:
        """Record words and thoughts of the reply as the client sees them."""
        if not self._waiting and self._conversations is not None:
            self._conversations.note_when_writing(self.hand_on)
        self._waiting += events
        if len(self._waiting) >= MOST_WAITING:
            self.hand_on()

    def called(self, calls: Sequence[ToolCall], lost: Mapping[str, Any] | None = None) -> None:
        """Record the end of a whole reply with its calls, of the server's tools and of the client's.

        `lost` is what the engine had to read again for it.
        """
        self.hand_on()
        if self.unread:
            self._read()
        if calls:
            self._begin_reply()
            self._called.update(map(attrgetter("id"), calls))
            self._note(*[ReplyCalled(self._reply, call.as_openai()) for call in calls])
        self._end_reply("complete", lost)

    def returned(self, call_id: str, text: str) -> None:
        """Record what the model is shown of a tool's result."""
        self.results([{"role": "tool", "tool_call_id": call_id, "content": text}])

    def results(self, appended: Sequence[Message]) -> None:
        """Record the results of calls among these messages, unless they are recorded already."""
        for message in appended:
            if message.get("role") == "tool" and (call_id := message.get("tool_call_id")) in self._called:
                self._called.discard(call_id)
                self.hand_on()
                self._note(Added(self.id, f"{self.id}.{next(self._numbers)}", message, time.time()))

    def took_in(self, messages: Sequence[QueuedMessage]) -> None:
        """Record messages from the queue before the next reply, once that begins: then they leave the queue.

        Until then no model has read them, and they can go back.
        """
        self.unread = (*self.unread, *messages)

    def left_out(self, messages: Sequence[QueuedMessage]) -> None:
        """Leave these messages out of this turn."""
        self.unread = tuple(item for item in self.unread if item not in messages)

    def step_used(self, model: str, usage: StepUsage, fill: ContextFill | None) -> None:
        """Record what a step has used, and how full the window was; steps after the turn's end count too."""
        self.hand_on()
        self._send([StepUsed(self.id, model, usage, fill, time.time())])

    def filled(self, fill: ContextFill) -> None:
        """Record how full the window is from now on, also after the turn's end."""
        self.hand_on()
        self._send(lambda conversation: [Filled(conversation, fill)])

    def pruner_used(self, model: str, usage: StepUsage) -> None:
        """Record what a call of the pruning agent has used, which belongs to no turn of a person."""
        self.hand_on()
        now = time.time()

        def changes(conversation: str) -> Sequence[Change]:
            turn = f"{PRUNING}{conversation}"
            begun = TurnBegun(turn, conversation, "", self.agent, now)
            return [begun, StepUsed(turn, model, usage, None, now), TurnEnded(turn, "complete", "", now)]

        self._send(changes)

    def compacted(self, before: int, after: int, rung: str, details: CompactionDetails | None = None) -> None:
        """Record a compaction of the conversation, which may happen after the turn's end."""
        self.hand_on()
        now = time.time()
        self._send(lambda conversation: [CompactionNoted(conversation, before, after, rung, now, details)])

    def reused(self, before: int, after: int) -> None:
        """Record that a compaction stands for the beginning; noted once, and not where it was made here."""
        self.compacted(before, after, REUSED)

    def ended(self, status: Status, key: str) -> None:
        """Record the end of the turn; later calls do nothing. `key` is the answer's in the chain, empty without one."""
        if self._is_ended:
            return
        self._end_reply(status)
        self._note(TurnEnded(self.id, status, key, time.time()))
        self._is_ended = True
        self._release()

    async def hidden(self, chain: Chain, place: int) -> list[KeptTurn]:
        """Return the turns of this conversation after a place in the chain, -1 for its beginning.

        They hold what the client has never seen. Turns with a handover are left out: the next agent decides anew.
        Returns none where the store fails or takes too long, which the person is told.
        """
        await self.looked_up()
        if self._conversations is None or not self._may_have_hidden:
            return []
        keys = chain.keys[max(place, 0) :]
        try:
            async with asyncio.timeout(HIDDEN_SECONDS):
                turns = await self._conversations.turns(self.conversation, keys)
        except Exception as error:  # noqa: BLE001  # an answer must not fail for its conversation's past
            log.warning("What was done before in %s cannot be read: %r", self.conversation, error)
            self._is_missed = True
            turns = []
        await self._tell_missed()
        after = [turn for turn in turns if place < 0 or turn.key != keys[0]]
        return [turn for turn in after if not any(map(_hands_over, turn.messages))]

    async def looked_up(self) -> None:
        """Wait until the store has told which conversation it is; the person is told where opening it takes long."""
        if self._conversations is None or await self.is_found():
            return
        is_told = self._conversations.is_opening and not await self.is_found(seconds=QUIET_SECONDS)
        if is_told:
            await self.show([Notice("store", OPENING, is_done=False)])
        await self.is_found(is_patient=True)
        if self._is_missed:
            await self._tell_missed()
        elif is_told:
            await self.show([Notice("store", OPENED)])

    async def _tell_missed(self) -> None:
        if self._is_missed:
            self._is_missed = False
            await self.show([Notice("store", MISSED)])

    async def pins(self) -> frozenset[str]:
        """Return the keys of this conversation's pinned messages; none where the store fails or takes too long."""
        if self._conversations is None or not await self.is_found(is_patient=True):
            return frozenset()
        try:
            async with asyncio.timeout(HIDDEN_SECONDS):
                return await self._conversations.pins(self.conversation)
        except Exception as error:  # noqa: BLE001  # an answer must not fail for its pins
            log.warning("What is pinned in %s cannot be read: %r", self.conversation, error)
            return frozenset()

    async def times(self, keys: Sequence[str]) -> Mapping[str, float]:
        """Return when the messages with these keys were said; none where the store fails or takes a moment."""
        if self._conversations is None or not self.is_placed:
            return {}
        try:
            async with asyncio.timeout(TIMES_SECONDS):
                return await self._conversations.times(self.conversation, keys)
        except Exception as error:  # noqa: BLE001  # what was said counts without its time
            log.debug("When something was said in %s cannot be read: %r", self.conversation, error)
            return {}

    async def branch(self) -> list[KeptMessage]:
        """Return all messages of this conversation up to this turn and of it, in order; none where they are not kept.

        Raises TimeoutError where the store takes too long.
        """
        self.hand_on()
        if self._conversations is None or not await self.is_found(is_patient=True):
            return []
        async with asyncio.timeout(BRANCH_SECONDS):
            kept = await self._conversations.read(self.owner, self.conversation)
        return await asyncio.to_thread(_branch_to, self.id, kept.messages) if kept is not None else []

    def hand_on(self) -> None:
        """Note the words that wait."""
        waiting, self._waiting = self._waiting, []
        for kind, run in groupby(waiting, type):  # words with words and thoughts with thoughts
            if text := "".join(map(attrgetter("text"), run)):
                self._begin_reply()
                self._note(ReplyGrew(self._reply, KINDS[kind], text))

    def _begin_reply(self) -> None:
        if self.unread:
            self._read()
        if not self._reply:
            self._reply = f"{self.id}.{next(self._numbers)}"
            self._note(ReplyBegun(self.id, self._reply, time.time()))

    def _read(self) -> None:
        """Record the messages that were taken in; they leave the queue in the same change.

        While the conversation is looked for, they have left it by the time at which this is written.
        """
        read, self.unread = self.unread, ()
        now, is_placed = time.time(), self._finding is None
        names = (f"{self.id}.{number}" for number in self._numbers)
        added = [Added(self.id, next(names), item.message, now, item.id if is_placed else "") for item in read]
        self._note(*added, QueueDropped(tuple(item.id for item in read)))

    def _end_reply(self, status: Status, lost: Mapping[str, Any] | None = None) -> None:
        self.hand_on()
        if self._reply:
            self._note(ReplyEnded(self._reply, status, lost))
            self._reply = ""

    def _note(self, *changes: Change) -> None:
        if not self._is_ended:
            self._send(changes)

    def _send(self, changes: Changes) -> None:
        """Note changes once the conversation is found."""
        if self._finding is not None:
            self._unplaced.append(changes)
        elif self._conversations is not None:
            self._conversations.note(changes(self.conversation) if callable(changes) else changes)


async def _shown_to_nobody(_: Sequence[object]) -> None:
    """Tell nobody."""


def _branch_to(turn: str, messages: Sequence[KeptMessage]) -> list[KeptMessage]:
    tree = ConversationTree.of(messages)
    own = next((node for node in tree.nodes if node.last.turn == turn), None)
    return tree.branch_to(own, with_unfinished=False) if own is not None else []


def _hands_over(message: Message) -> bool:
    return message.get("role") == "tool" and text_of(message).startswith(HANDED_OVER)
