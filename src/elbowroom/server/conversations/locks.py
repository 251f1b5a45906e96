"""Lets one request at a time change a conversation, so that no answer is given to what is being changed meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from weakref import WeakValueDictionary

from aiohttp import web

from elbowroom.agents.turn import Shared
from elbowroom.errors import Conflict
from elbowroom.server.state import find_conversation


class ConversationLocked(Conflict):
    """The conversation is being answered, and another request would change it.

    OpenAI sends a 400 with this code; a 409 is what its libraries send again by themselves.
    """

    code = "conversation_locked"
    param = "conversation"

    def __init__(self, conversation: str) -> None:
        super().__init__(
            f"The conversation {conversation!r} is being answered, and takes one request at a time. Wait for the end "
            f"of that answer, or stop it with POST /v1/conversations/{conversation}/cancel, and ask again."
        )


class ConversationLocks:
    """One lock for each conversation: short changes wait for each other, and an answer refuses what comes meanwhile."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._changed: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.answered: set[tuple[str, str]] = set()
        """The owners and ids of the conversations for which a response has begun that has not ended."""

    @asynccontextmanager
    async def changing(self, owner: str, named: str) -> AsyncIterator[str]:
        """Keep other changes of a conversation, named by its id or name, out of the block, which gets its id.

        Waits for changes that are under way. Raises ConversationLocked where the conversation is being answered, and
        StoreOpening. Where there is no such conversation the block gets the name, and nothing is kept out.
        """
        conversation = await find_conversation(self._shared, owner, named)
        if conversation is None:
            yield named
            return
        self._refuse_answered(owner, conversation)
        async with self._changed.setdefault((owner, conversation), asyncio.Lock()):
            self._refuse_answered(owner, conversation)  # its answer may have begun meanwhile
            yield conversation

    async def hold(self, owner: str, named: str, until: ExitStack) -> None:
        """Refuse all that would change a conversation until the stack is closed. Raises what `changing` raises."""
        async with self.changing(owner, named) as conversation:
            self.answered.add((owner, conversation))
            until.callback(self.answered.discard, (owner, conversation))

    def _refuse_answered(self, owner: str, conversation: str) -> None:
        if (owner, conversation) in self.answered or self._shared.running.of(owner, conversation):
            raise ConversationLocked(conversation)


LOCKS: web.AppKey[ConversationLocks] = web.AppKey("LOCKS", ConversationLocks)
