"""Records turns: finds the conversation of a request, and notes its answer there while it comes."""

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Final

from elbowroom.agents.answer import ToolCall
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest
from elbowroom.context.conversation import (
    Added,
    Change,
    CompactionDetails,
    CompactionNoted,
    ContextFill,
    ConversationBegun,
    Conversations,
    Heard,
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
from elbowroom.context.ledger import Archived, Chain, archive_of, is_system
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import Message, text_of
from elbowroom.providers.base import ReasoningDelta, TextDelta

log = logging.getLogger(__name__)
MOST_WAITING: Final = 64
"""How many pieces of a reply wait at most before they are noted; the store asks for fewer a few times a second."""
HANDED_OVER: Final = "The conversation was handed over."
"""How the result of a handover begins, which the next agent reads."""
KINDS: Final[Mapping[type[TextDelta | ReasoningDelta], PieceKind]] = {TextDelta: "text", ReasoningDelta: "reasoning"}
HIDDEN_SECONDS: Final = 1.0
"""How long an answer waits for what the client has never seen; it comes without that otherwise."""
OPENING_SECONDS: Final = 5.0
"""How long a store may take for its first answer, so that a restarted server knows its conversations."""
LOOK_UP_SECONDS: Final = 1.0
"""How long a store may take to find a request's conversation; after that the request begins a new one.

What was read in the old conversation is not put back then.
"""
ID_BYTES: Final = 12
OWN_ID: Final = re.compile(rf"conv_[0-9a-f]{{{2 * ID_BYTES}}}")
"""An id that this server gives; clients send it back as the name of their conversation."""


class TurnRecorder:
    """Records the answer to one request in `conversations` as it comes; where that is None, nothing is kept.

    `chain` is that of the client's messages, for the agent that was asked. A reply without a word or a call is not
    recorded. Only `hidden` waits for anything, and no method raises.
    """

    def __init__(
        self, conversations: Conversations | None, conversation: str, owner: str, agent: str, chain: Chain
    ) -> None:
        self.id = f"turn_{secrets.token_hex(12)}"
        self.conversation = conversation
        self.owner = owner
        self.agent = agent
        self.chain = chain
        self._conversations = conversations
        self._waiting: list[TextDelta | ReasoningDelta] = []
        self._messages = 0
        self._reply = ""
        self._called: set[str] = set()
        self._unread: list[QueuedMessage] = []
        self._is_ended = False

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
            self._conversations.note_soon(self.hand_on)
        self._waiting += events
        if len(self._waiting) >= MOST_WAITING:
            self.hand_on()

    def called(self, calls: Sequence[ToolCall]) -> None:
        """Record the end of a whole reply with its calls, of the server's tools and of the client's."""
        self.hand_on()
        self._read()
        if calls:
            self._begin_reply()
            self._called.update(call.id for call in calls)
            self._note(*(ReplyCalled(self._reply, call.as_openai()) for call in calls))
        self._end_reply("complete")

    def returned(self, call_id: str, text: str) -> None:
        """Record what the model is shown of a tool's result."""
        if call_id in self._called:
            self._called.discard(call_id)
            self._add({"role": "tool", "tool_call_id": call_id, "content": text})

    def results(self, appended: Sequence[Message]) -> None:
        """Record the results of calls that the SDK has answered itself."""
        for message in appended:
            if message.get("role") == "tool" and (call_id := message.get("tool_call_id")) in self._called:
                self._called.discard(call_id)
                self._add(message)

    def took_in(self, messages: Sequence[QueuedMessage]) -> None:
        """Record messages from the queue before the next reply, once that begins: then they leave the queue.

        Until then no model has read them, and they can go back.
        """
        self._unread += messages

    @property
    def unread(self) -> list[QueuedMessage]:
        """Return the messages from the queue that this turn has taken in and no model has read yet."""
        return list(self._unread)

    def left_out(self, messages: Sequence[QueuedMessage]) -> None:
        """Leave these messages out of this turn."""
        self._unread = [item for item in self._unread if item not in messages]

    def step_used(self, model: str, usage: StepUsage, fill: ContextFill | None) -> None:
        """Record what a step has used, and how full the window was; steps after the turn's end count too."""
        self.hand_on()
        self._send([StepUsed(self.id, model, usage, fill, time.time())])

    def compacted(self, before: int, after: int, rung: str, details: CompactionDetails | None = None) -> None:
        """Record a compaction of the conversation, which may happen after the turn's end."""
        self.hand_on()
        self._send([CompactionNoted(self.conversation, before, after, rung, time.time(), details)])

    def ended(self, status: Status, key: str) -> None:
        """Record the end of the turn; later calls do nothing. `key` is the answer's in the chain, empty without one."""
        if self._is_ended:
            return
        self._end_reply(status)
        self._note(TurnEnded(self.id, status, key, time.time()))
        self._is_ended = True

    async def hidden(self, chain: Chain, place: int) -> list[KeptTurn]:
        """Return the turns of this conversation after a place in the chain, -1 for its beginning.

        They hold what the client has never seen. Turns with a handover are left out: the next agent decides anew.
        Returns none where the store fails or takes too long.
        """
        if self._conversations is None:
            return []
        keys = chain.keys[max(place, 0) :]
        try:
            async with asyncio.timeout(HIDDEN_SECONDS):
                turns = await self._conversations.turns(self.conversation, keys)
        except Exception as error:  # noqa: BLE001  # an answer must not fail for its conversation's past
            log.warning("What was done before in %s cannot be read: %r", self.conversation, error)
            return []
        after = [turn for turn in turns if place < 0 or turn.key != keys[0]]
        return [turn for turn in after if not any(map(_hands_over, turn.messages))]

    def hand_on(self) -> None:
        """Note the words that wait."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        grown = [(kind, text) for kind, text in _joined(waiting) if text]
        if grown:
            self._begin_reply()
            self._note(*(ReplyGrew(self._reply, kind, text) for kind, text in grown))

    def _begin_reply(self) -> None:
        self._read()
        if not self._reply:
            self._reply = self._new_message()
            self._note(ReplyBegun(self.id, self._reply, time.time()))

    def _read(self) -> None:
        """Record the messages that were taken in; they leave the queue in the same change."""
        read, self._unread = self._unread, []
        if read:
            added = [Added(self.id, self._new_message(), item.message, time.time()) for item in read]
            self._note(*added, QueueDropped(tuple(item.id for item in read)))

    def _end_reply(self, status: Status) -> None:
        self.hand_on()
        if self._reply:
            self._note(ReplyEnded(self._reply, status))
            self._reply = ""

    def _add(self, content: Message) -> None:
        self.hand_on()
        self._note(Added(self.id, self._new_message(), content, time.time()))

    def _new_message(self) -> str:
        self._messages += 1
        return f"{self.id}.{self._messages}"

    def _note(self, *changes: Change) -> None:
        if not self._is_ended:
            self._send(changes)

    def _send(self, changes: Iterable[Change]) -> None:
        if self._conversations is not None:
            self._conversations.note([*changes])


def _hands_over(message: Message) -> bool:
    return message.get("role") == "tool" and text_of(message).startswith(HANDED_OVER)


def _joined(events: Sequence[TextDelta | ReasoningDelta]) -> list[tuple[PieceKind, str]]:
    """Join words with words and thoughts with thoughts, as far as they follow each other."""
    if len(set(map(type, events))) == 1:  # nearly always, and every word of a model passes here
        return [(KINDS[type(events[0])], "".join([event.text for event in events]))]
    return [(KINDS[kind], "".join([event.text for event in run])) for kind, run in groupby(events, type)]


class Recording:
    """Begins the recording of turns in `conversations`; where that is None, turns have ids and nothing is kept."""

    def __init__(self, conversations: Conversations | None) -> None:
        self.conversations = conversations
        self._patience = OPENING_SECONDS

    async def begin(self, target: Target, request: ChatRequest, *, keeps: bool = True) -> TurnRecorder:
        """Return the recorder of the turn that answers a request, whose new messages are noted.

        A conversation is found by the client's name for it, by its id, or else by what was said in it. Where the store
        fails or is slow, the request begins a new one. With `keeps` False, only an id is given and nothing is kept.
        """
        owner, name = request.caller.keeps_as, request.caller.chat_id
        messages = without_notices(request.messages)
        chain = Chain.of(owner, target.name, messages)
        if self.conversations is None or not keeps:
            return TurnRecorder(None, new_id(owner, name), owner, target.name, chain)
        nodes = archive_of(chain, messages)
        known = await self._look_up(self.conversations, owner, name, nodes)
        conversation = known.conversation if known is not None else new_id(owner, name)
        kept = known.kept if known is not None else frozenset()
        live = TurnRecorder(self.conversations, conversation, owner, target.name, chain)
        now = time.time()
        begun = [ConversationBegun(conversation, owner, name, target.name, now)] if known is None else []
        changes: list[Change] = [
            *begun,
            *(Heard(conversation, node.key, node.parent, node.message, now) for node in nodes if node.key not in kept),
            TurnBegun(live.id, conversation, live.parent, target.name, now),
        ]
        self.conversations.note(changes)
        return live

    async def found(self, target: Target, request: ChatRequest) -> TurnRecorder | None:
        """Return a recorder for the conversation that a request belongs to, without beginning a turn.

        None where the conversation is a new one.
        """
        owner, name = request.caller.keeps_as, request.caller.chat_id
        messages = without_notices(request.messages)
        chain = Chain.of(owner, target.name, messages)
        if self.conversations is None:
            return None
        known = await self._look_up(self.conversations, owner, name, archive_of(chain, messages))
        if known is None:
            return None
        return TurnRecorder(self.conversations, known.conversation, owner, target.name, chain)

    async def _look_up(
        self, conversations: Conversations, owner: str, name: str, nodes: Sequence[Archived]
    ) -> Known | None:
        if not name and not any(node.message.get("role") == "assistant" for node in nodes):
            return None  # a conversation without an answer cannot be known
        system = [node.key for node in nodes if is_system(node.message)]
        spoken = [node.key for node in nodes if not is_system(node.message)]
        try:
            keys = [*system, *spoken]
            async with asyncio.timeout(self._patience):
                known = await conversations.look_up(owner, name, keys)
                return known or (await _with_id(conversations, owner, name, keys) if OWN_ID.fullmatch(name) else None)
        except Exception as error:  # noqa: BLE001  # an answer must not fail for its record
            log.warning("Which conversation a request belongs to cannot be looked up: %r", error)
            return None
        finally:
            self._patience = LOOK_UP_SECONDS


async def _with_id(conversations: Conversations, owner: str, own_id: str, keys: Sequence[str]) -> Known | None:
    """Find the conversation with this id, which the client has from an earlier answer."""
    if (row := await conversations.find(owner, own_id)) is None:
        return None
    known = await conversations.look_up(owner, row.name, keys)
    return known if known is not None and known.conversation == row.id else Known(row.id, frozenset())


def new_id(owner: str, name: str) -> str:
    """Return an id for a conversation; the same name gives the same id, so that two requests at once agree."""
    if not name:
        return f"conv_{secrets.token_hex(ID_BYTES)}"
    named = json.dumps([owner, name]).encode()
    return f"conv_{hashlib.blake2b(named, digest_size=ID_BYTES).hexdigest()}"
