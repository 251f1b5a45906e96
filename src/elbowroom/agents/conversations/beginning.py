"""Begins the recording of turns: finds a request's conversation, from memory wherever that can tell."""

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from operator import methodcaller
from typing import Final

from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations.locks import ConversationLocks
from elbowroom.agents.conversations.recording import TurnRecorder
from elbowroom.agents.request import ChatRequest
from elbowroom.context.conversation import NONE_KNOWN, Change, ConversationBegun, Heard, Known, TurnBegun
from elbowroom.context.ledger import RAW, Archived, Chain, archive_of
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import Message
from elbowroom.store.questions import Conversations
from elbowroom.tokens.count import MOST_LETTERS, VALUE_LETTERS, left_of

log = logging.getLogger(__name__)
OPENING_SECONDS: Final = 30.0
"""How long a request waits for a store that has not answered yet: a restarted server knows its conversations then."""
LOOK_UP_SECONDS: Final = 1.0
"""How long a store that has answered before may take to find a conversation; then the request begins a new one.

What the client does not send of the old one is not put back then, and the person is told.
"""
CLOSING_SECONDS: Final = 5.0
"""How long the end of the server waits for conversations that are being looked for."""
AT_ONCE: Final = 500
"""New messages that are noted at once; between so many others have their turn."""
ID_BYTES: Final = 12
OWN_ID: Final = re.compile(rf"conv_[0-9a-f]{{{2 * ID_BYTES}}}")
"""An id that this server gives; clients send it back as the name of their conversation."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as its conversation is looked for: whose it is, the client's name for it, and what was said.

    `keys` are the keys of all messages, and the first `common` of them are those that many conversations have: of
    system messages and of the first one after them. `has_answer` tells whether something was answered in it. `origin`
    is the program that asks, and where the chat is there.
    """

    owner: str
    name: str
    agent: str
    chain: Chain
    nodes: Sequence[Archived]
    keys: Sequence[str]
    common: int
    has_answer: bool
    origin: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        owner: str,
        name: str,
        agent: str,
        messages: Sequence[Message],
        origin: Mapping[str, str] | None = None,
        *,
        of_one_model: bool = False,
    ) -> "Asked":
        """Return what there is to know of a client's messages to an agent or a model; `Chain.of` tells the last."""
        messages = without_notices(messages)
        chain = Chain.of(owner, agent, messages, of_one_model=of_one_model)
        nodes = archive_of(chain, messages)
        spoken = {*chain.keys}
        system = [node.key for node in nodes if node.key not in spoken] if len(nodes) > len(spoken) else []
        has_answer = "assistant" in map(methodcaller("get", "role"), messages)
        keys, common = [*system, *chain.keys], len(system) + 1
        return cls(owner, name, agent, chain, nodes, keys, common, has_answer, origin or {})

    @property
    def first_answer(self) -> int | None:
        """Return how many messages there are up to the first by which a conversation is found; a greeting is none."""
        later = self.chain.ends[1:]
        return next((end for end in later if self.nodes[end - 1].message.get("role") == "assistant"), None)

    def goes_on_in(self, known: Known) -> bool:
        """Tell whether a conversation has some of what was said, by these keys."""
        return not known.kept.isdisjoint(self.chain.keys)

    def may_be_of_one_model(self, known: Known) -> bool:
        """Tell whether it may go on with a conversation that has other keys, since it was begun with one raw model."""
        return self.has_answer and RAW in self.agent and not self.goes_on_in(known)

    def with_one_model(self, most: int | None = None) -> "Asked":
        """Return it with the keys that it has in such a conversation, or so many messages of its beginning."""
        said = [node.message for node in self.nodes[:most]]
        return Asked.of(self.owner, self.name, self.agent, said, self.origin, of_one_model=True)


@dataclass(frozen=True, slots=True)
class Placed(Known):
    """The conversation that a turn belongs to, which `is_new` where none was known."""

    is_new: bool = False


class Recording:
    """Begins the recording of turns in `conversations`; where that is None, turns have ids and nothing is kept.

    A turn that is kept holds the lock of its conversation from its first change to its end.
    """

    def __init__(self, conversations: Conversations | None) -> None:
        self.conversations = conversations
        self.locks = ConversationLocks()
        self._patience = OPENING_SECONDS
        self._finding: dict[asyncio.Task[None], TurnRecorder] = {}
        """The tasks that look for conversations, each with the recorder of its turn."""

    async def asked(self, target: Target, request: ChatRequest) -> Asked:
        """Return a request as its conversation is looked for; the loop goes on while much that is new is read."""
        said = request.caller.keeps_as, request.caller.chat_id, target.name, request.messages, request.caller.origin
        new, known = Chain.new_in(request.caller.keeps_as, target.name, request.messages), len(request.messages)
        if left_of(MOST_LETTERS - VALUE_LETTERS * known, new) > 0:
            return Asked.of(*said)
        return await asyncio.to_thread(Asked.of, *said)

    def begin(self, asked: Asked, *, is_patient: bool = False, keeps: bool = True, turn: str = "") -> TurnRecorder:
        """Return the recorder of the turn that answers a request, whose new messages are noted.

        A conversation is found by the client's name for it, by its id, or else by what was said in it. Where only the
        store can tell, that is asked in the background, and the changes of the turn wait. Where it fails or is slow,
        the request begins a new conversation. With `keeps` False, only an id is given and nothing is kept. An
        agent `is_patient`, as its recorder tells. `turn` is the id of the turn, where it has one already.
        """
        if self.conversations is None or not keeps:
            conversation = new_id(asked.owner, asked.name)
            return TurnRecorder(None, conversation, asked.owner, asked.agent, asked.chain)
        likely = new_id(asked.owner, asked.name) if asked.name and not OWN_ID.fullmatch(asked.name) else ""
        live = TurnRecorder(
            self.conversations, likely, asked.owner, asked.agent, asked.chain, is_patient=is_patient, turn=turn
        )
        pending = self._finding
        before = [task for task, other in pending.items() if other.parent in asked.keys] if pending else []
        known = None if before else _remembered(self.conversations, asked)
        placed = None if known is None or asked.may_be_of_one_model(known) else _placed(asked, known)
        is_short = placed is not None and len(asked.nodes) - len(placed.kept) <= AT_ONCE
        if placed is not None and is_short and not self.locks.is_changing(placed.conversation):
            live.belongs_to(placed, _begun(live, asked, placed), self.locks.answering(placed.conversation))
        else:
            noted = _expected(self.conversations)
            finding = asyncio.create_task(self._find(self.conversations, live, asked, placed, noted, before))
            self._finding[finding] = live
            finding.add_done_callback(self._finding.pop)
            live.found_by(finding)
        return live

    async def found(self, target: Target, request: ChatRequest) -> TurnRecorder | None:
        """Return a recorder for the conversation that a request belongs to, without beginning a turn.

        None where the conversation is a new one.
        """
        asked = await self.asked(target, request)
        if self.conversations is None:
            return None
        asked, known = await self._known(self.conversations, asked)
        if known is None or not known.conversation:
            return None
        return TurnRecorder(self.conversations, known.conversation, asked.owner, asked.agent, asked.chain)

    async def add(self, owner: str, conversation: str, agent: str, messages: Sequence[Message]) -> None:
        """Note messages that a conversation has without a turn; `messages` are all of it, the known ones first."""
        if self.conversations is None:
            return
        asked = await asyncio.to_thread(Asked.of, owner, conversation, agent, messages)
        asked, known = await self._known(self.conversations, asked)
        here = replace(known or NONE_KNOWN, conversation=conversation)
        self.conversations.note([*_heard(asked, here, time.time())])

    def is_sought(self, conversation: str) -> bool:
        """Tell whether a turn that most likely belongs to this conversation is not noted in any yet."""
        return any(live.conversation == conversation for live in self._finding.values())

    async def found_out(self, conversation: str) -> None:
        """Wait until every such turn is noted, in this conversation or in another one."""
        if sought := [task for task, live in self._finding.items() if live.conversation == conversation]:
            await asyncio.wait(sought)

    async def aclose(self) -> None:
        """Wait until the conversations of all turns are found, so that what they have noted is written."""
        if self._finding:
            await asyncio.wait(self._finding, timeout=CLOSING_SECONDS)

    async def _find(
        self,
        conversations: Conversations,
        live: TurnRecorder,
        asked: Asked,
        placed: Placed | None,
        noted: "asyncio.Future[None]",
        before: Sequence["asyncio.Task[None]"],
    ) -> None:
        """Find the conversation of a turn, unless it is known, and note what is new in it, some messages at a time.

        Another request that was quicker may have begun it meanwhile; turns `before` this one, with whose answers it
        goes on, are noted first. A change of it is waited for. Nobody waits for any of that who waits until this has
        `noted` what was said.
        """
        try:
            if before:
                noted.set_result(None)
                await asyncio.wait(before)
                noted = _expected(conversations)
                known = _remembered(conversations, asked)
                placed = None if known is None or asked.may_be_of_one_model(known) else _placed(asked, known)
            while placed is None or self.locks.is_changing(placed.conversation):
                if placed is not None:
                    noted.set_result(None)
                    await self.locks.changed(placed.conversation)
                    noted = _expected(conversations)
                asked, known = await self._known(conversations, asked)
                if known is None:
                    live.not_found_in_time()
                placed = _placed(asked, known or NONE_KNOWN)
            live.chain = asked.chain
            await self._note(conversations, live, asked, placed)
        finally:
            noted.set_result(None)

    async def _known(self, conversations: Conversations, asked: Asked) -> tuple[Asked, Known | None]:
        """Return what is known of a request's conversation, with the request as it is known there.

        None where the store fails or does not tell in time.
        """
        known = await self._known_by_its_keys(conversations, asked)
        if known is not None and asked.may_be_of_one_model(known):
            begun = asked.with_one_model(asked.first_answer)  # what has any of its keys has those before it
            found = await self._known_by_its_keys(conversations, begun)
            if found is not None and begun.goes_on_in(found):
                earlier = await asyncio.to_thread(asked.with_one_model)
                found = await self._known_by_its_keys(conversations, earlier)
                if found is not None and earlier.goes_on_in(found):  # it may have been deleted meanwhile
                    return earlier, found
        return asked, known

    async def _known_by_its_keys(self, conversations: Conversations, asked: Asked) -> Known | None:
        if (known := _remembered(conversations, asked)) is not None:
            return known
        known = await self._look_up(conversations, asked)
        is_known = known is not None and bool(known.conversation)
        return known if is_known else _remembered(conversations, asked) or known  # one may have been begun meanwhile

    async def _note(self, conversations: Conversations, live: TurnRecorder, asked: Asked, placed: Placed) -> None:
        release = self.locks.answering(placed.conversation)
        live.conversation = placed.conversation
        changes = _begun(live, asked, placed)
        some = list(islice(changes, AT_ONCE))
        while more := list(islice(changes, AT_ONCE)):
            conversations.note(some)
            await asyncio.sleep(0)
            some = more
        live.belongs_to(placed, some, release)

    async def _look_up(self, conversations: Conversations, asked: Asked) -> Known | None:
        """Return what the store knows of a request's conversation; None where it fails, or does not tell in time."""
        try:
            async with asyncio.timeout(self._patience):
                known = await conversations.look_up(asked.owner, asked.name, asked.keys, asked.common)
        except Exception as error:  # noqa: BLE001  # an answer must not fail for its record
            log.warning("Which conversation a request belongs to cannot be looked up: %r", error)
            return None
        self._patience = LOOK_UP_SECONDS
        return known or NONE_KNOWN


def _expected(conversations: Conversations) -> "asyncio.Future[None]":
    """Let what people ask wait until the result of this is set."""
    noted = asyncio.get_running_loop().create_future()
    conversations.expect(noted)
    return noted


def _remembered(conversations: Conversations, asked: Asked) -> Known | None:
    """Return the conversation of a request, NONE_KNOWN for a new one; None where only the store can tell.

    Without a name and without an answer none can be meant.
    """
    if not (asked.name or asked.has_answer):
        return NONE_KNOWN
    return conversations.remembered(asked.owner, asked.name, asked.keys, asked.common)


def _placed(asked: Asked, known: Known) -> Placed:
    """Return the conversation that a request belongs to, a new one where none is known."""
    is_new = not known.conversation
    conversation = new_id(asked.owner, asked.name) if is_new else known.conversation
    return Placed(conversation, known.kept, known.may_have_hidden, is_new)


def _begun(live: TurnRecorder, asked: Asked, placed: Placed) -> Iterator[Change]:
    """Return what is new with a turn: its conversation, its messages, and itself."""
    now, conversation = time.time(), placed.conversation
    live.is_first = placed.is_new
    new = ConversationBegun(conversation, asked.owner, asked.name, asked.agent, now, asked.origin)
    begun = [new] if placed.is_new else []
    turn = TurnBegun(live.id, conversation, live.parent, asked.agent, now)
    return chain(begun, _heard(asked, placed, now), [turn])


def _heard(asked: Asked, known: Known, now: float) -> Iterator[Change]:
    """Yield what is new in a request."""
    for node in asked.nodes:
        if node.key not in known.kept:
            yield Heard(known.conversation, node.key, node.parent, node.message, now)


def new_id(owner: str, name: str, kind: str = "conv") -> str:
    """Return an id; the same name of the same owner gives the same, so that two requests and servers agree."""
    named = hashlib.blake2b(json.dumps([owner, name]).encode(), digest_size=ID_BYTES)
    return f"{kind}_{named.hexdigest() if name else secrets.token_hex(ID_BYTES)}"
