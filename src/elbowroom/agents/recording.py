"""Finds the conversation that a request belongs to, and begins the turn that answers it."""

import asyncio
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Sequence
from typing import Final

from elbowroom.agents.catalog import Target
from elbowroom.agents.live_turn import LiveTurn, Pace
from elbowroom.agents.request import ChatRequest
from elbowroom.context.conversation import Conversations, Known
from elbowroom.context.conversation_changes import Change, ConversationBegun, Heard, TurnBegun
from elbowroom.context.ledger import Archived, Chain, archive_of, is_system
from elbowroom.context.notice_line import without_notices

log = logging.getLogger(__name__)
OPENING_SECONDS: Final = 5.0
"""How long a store that has never answered may take to open: a server that begins again knows its conversations."""
LOOK_UP_SECONDS: Final = 1.0
"""A store that takes longer to say which conversation this is does not keep the person waiting.

What was read in that conversation is not put back then.
"""
ID_BYTES: Final = 12
OWN_ID: Final = re.compile(rf"conv_[0-9a-f]{{{2 * ID_BYTES}}}")
"""An id that this server gives, which clients send back as the name of their conversation."""


class Recording:
    """Begins turns that are kept in `conversations`; where that is None they have ids, and nothing is kept."""

    def __init__(self, conversations: Conversations | None) -> None:
        self.conversations = conversations
        self._pace = Pace()
        self._patience = OPENING_SECONDS

    async def begin(self, target: Target, request: ChatRequest, *, keeps: bool = True) -> LiveTurn:
        """Return the turn that answers a request of a conversation; the request's new messages are noted.

        A conversation with a name of the client's is known by that, one without by what was said in it; its id is as
        good as a name. A store that fails or is slow lets it be a new one. Requests beside a conversation, such as for
        a title, have no turn. One that is not to be kept has an id, and nothing else.
        """
        owner, name = request.caller.keeps_as, request.caller.chat_id
        messages = without_notices(request.messages)
        chain = Chain.of(owner, target.name, messages)
        if self.conversations is None or not keeps:
            return LiveTurn(None, self._pace, new_id(owner, name), owner, target.name, chain)
        nodes = archive_of(chain, messages)
        known = await self._look_up(self.conversations, owner, name, nodes)
        conversation = known.conversation if known is not None else new_id(owner, name)
        kept = known.kept if known is not None else frozenset()
        live = LiveTurn(self.conversations, self._pace, conversation, owner, target.name, chain)
        now = time.time()
        begun = [ConversationBegun(conversation, owner, name, target.name, now)] if known is None else []
        changes: list[Change] = [
            *begun,
            *(Heard(conversation, node.key, node.parent, node.message, now) for node in nodes if node.key not in kept),
            TurnBegun(live.id, conversation, live.parent, target.name, now),
        ]
        self.conversations.note(changes)
        return live

    async def found(self, target: Target, request: ChatRequest) -> LiveTurn | None:
        """Return a turn of the conversation that a request belongs to, in which nobody says anything; nothing is noted.

        None where it is a new one.
        """
        owner, name = request.caller.keeps_as, request.caller.chat_id
        messages = without_notices(request.messages)
        chain = Chain.of(owner, target.name, messages)
        if self.conversations is None:
            return None
        known = await self._look_up(self.conversations, owner, name, archive_of(chain, messages))
        if known is None:
            return None
        return LiveTurn(self.conversations, self._pace, known.conversation, owner, target.name, chain)

    async def _look_up(
        self, conversations: Conversations, owner: str, name: str, nodes: Sequence[Archived]
    ) -> Known | None:
        if not name and not any(node.message.get("role") == "assistant" for node in nodes):
            return None  # a beginning without any answer is no conversation that could be known
        system = [node.key for node in nodes if is_system(node.message)]
        spoken = [node.key for node in nodes if not is_system(node.message)]
        try:
            keys = [*system, *spoken]
            async with asyncio.timeout(self._patience):
                known = await conversations.look_up(owner, name, keys)
                return known or (await _with_id(conversations, owner, name, keys) if OWN_ID.fullmatch(name) else None)
        except Exception as error:  # noqa: BLE001  # an answer must not fail for where it is kept
            log.warning("Which conversation a request belongs to cannot be looked up: %r", error)
            return None
        finally:
            self._patience = LOOK_UP_SECONDS


async def _with_id(conversations: Conversations, owner: str, own_id: str, keys: Sequence[str]) -> Known | None:
    """Find the conversation with this id, which the client has from an answer of ours."""
    if (row := await conversations.find(owner, own_id)) is None:
        return None
    known = await conversations.look_up(owner, row.name, keys)
    return known if known is not None and known.conversation == row.id else Known(row.id, frozenset())


def new_id(owner: str, name: str) -> str:
    """Return an id for a conversation: of one with a name always the same, so that two requests at once agree."""
    if not name:
        return f"conv_{secrets.token_hex(ID_BYTES)}"
    named = json.dumps([owner, name]).encode()
    return f"conv_{hashlib.blake2b(named, digest_size=ID_BYTES).hexdigest()}"
