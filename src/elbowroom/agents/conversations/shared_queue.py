"""The queue of a server that shares its store with others."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from elbowroom.agents.conversations.queue import MOST_WAITING, Accepted, MessageQueue, QueueFull, place_of
from elbowroom.agents.conversations.recording import HIDDEN_SECONDS, TurnRecorder
from elbowroom.agents.running import Running, RunningAnswer
from elbowroom.context.conversation import Queued, QueuedMessage, QueueMode, QueueTaken
from elbowroom.context.transcript import Message
from elbowroom.errors import NotFound
from elbowroom.store import Store, Together
from elbowroom.store.questions import Conversations

UNQUEUE: Final = "unqueue"
"""What another server asks where a person takes messages back that are with this one."""


class SharedQueue(MessageQueue):
    """The waiting messages of the conversations that this server answers; all others are in the database alone.

    There each message is with one server or with none: a server takes those of a conversation when it begins a turn of
    it, and once a second, and gives back what is left when it has ended the last. So no message is handed out twice.
    """

    def __init__(self, store: Store, servers: Together, running: Running) -> None:
        super().__init__(store.conversations)
        self._store = store.conversations
        self._seen = None  # nothing is loaded but what is fetched
        self._servers = servers
        self._running = running
        self._fetching = asyncio.Lock()
        self._late: set[asyncio.Task[None]] = set()
        self._gone: set[str] = set()
        """What has left the queue here, and may still wait in the database."""
        self._doubtful: set[str] = set()
        """What turns had taken when this server may have been taken for dead: others may have it since."""
        operations = {UNQUEUE: self._unqueue}
        servers.offer(
            operations, drain=self._drain, lapse=self._forget, waking=running.wake, busy=running.conversations
        )

    async def add(
        self, conversation: str, message: Message, mode: QueueMode, *, key: str = "", is_kept: bool = True
    ) -> Accepted:
        """Put a message after all others, and have the server that answers the conversation look for it at once.

        The order is that of the database, also where this server answers. What counts as stored was seen there.
        """
        if not is_kept:
            return await super().add(conversation, message, mode, key=key, is_kept=False)
        item = self._made(conversation, message, mode, key)
        if not (key and await self._came_before(item)):
            if len(await self.listed(conversation)) >= MOST_WAITING:
                raise QueueFull
            self._note(Queued(item))
        is_stored = await self.settled()
        if is_stored and not await self._came_before(item):
            raise NotFound("The conversation was deleted before the message was in its queue.")
        if conversation in self._running.conversations():
            await self._fetch([conversation])
        for server in await self._servers.answering(conversation):
            await self._servers.wake(server)
        return Accepted(item.id, place_of(item, await self._servers.waiting(conversation)), is_stored)

    async def ready_for(self, live: TurnRecorder) -> None:
        """Take the messages that wait for this turn from the database; none can wait where it begins a conversation.

        A raw model does not wait long for that. What comes later waits here, and goes back where nobody takes it.
        """
        patience = None if live.is_patient else HIDDEN_SECONDS
        if await live.is_found(is_patient=live.is_patient, seconds=HIDDEN_SECONDS) and not live.is_first:
            fetching = asyncio.create_task(self._fetch([live.conversation]))
            self._late.add(fetching)
            fetching.add_done_callback(self._late.discard)
            await asyncio.wait([fetching], timeout=patience)

    async def listed(self, conversation: str) -> list[QueuedMessage]:
        """Return the waiting messages of a conversation, in order, whichever server has them."""
        await self.settled()
        return await self._servers.waiting(conversation) or self.waiting(conversation)

    async def taken_back(
        self, conversation: str, ids: Collection[str] | None = None
    ) -> tuple[list[QueuedMessage], set[str]]:
        """Remove waiting messages from wherever they are; return them, and the ids of those that turns have taken.

        All servers are asked: one whose answer has just ended may have what waited for it.
        """
        removed, taken = await super().taken_back(conversation, ids)
        chosen = None if ids is None else sorted(ids)
        asked = {"conversation": conversation, "ids": chosen}
        for answer in await self._servers.ask_all(await self._servers.others(), UNQUEUE, asked):
            removed += [QueuedMessage(**item) for item in answer["removed"]]
            taken.update(answer["taken"])
        removed += await self._servers.remove(conversation, chosen)  # also what a server has just given back
        return removed, taken

    def let_go(self, conversation: str, ended: RunningAnswer) -> None:
        """Give back what waits in a conversation that this server does not answer any more."""
        if conversation not in self._running.conversations(but=ended):
            self._release(conversation)

    def take(self, conversation: str, turn: str, modes: Collection[QueueMode]) -> list[QueuedMessage]:
        """Hand messages to a turn, but none that another server may have since this one stood still."""
        self._servers.check_awake()
        return super().take(conversation, turn, modes)

    def give_back(self, turn: str, ids: Collection[str] | None = None) -> None:
        """Put what a turn has taken, and no model has read, back; what others may have since is fetched anew."""
        conversations = {item.conversation for item in self._taken.get(turn, ())}
        super().give_back(turn, ids)
        for conversation in conversations:
            self._let_go(self._cut(conversation, lambda item: item.id in self._doubtful))

    async def _unqueue(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        removed, taken = await super().taken_back(given["conversation"], given["ids"])
        return {"removed": [asdict(item) for item in removed], "taken": sorted(taken)}

    async def _drain(self) -> None:
        answered = self._running.conversations()
        for conversation in self._waiting.keys() - answered:
            self._release(conversation)
        if answered:
            await self._fetch(sorted(answered))

    async def _fetch(self, conversations: Sequence[str]) -> None:
        """Take what waits in the database, one call at a time: what this server does not know it has not handed out.

        That holds where the database has all that this server knows; else a message that was read still waits there,
        with this server, or with none where others have taken it for dead.
        """
        async with self._fetching:
            is_current = await self.settled() and self._noted == self._settled
            if is_current:
                self._gone.clear()
            known = [*self._numbers] if is_current else None
            claimed = await self._servers.claim_queue(conversations, known)
            self._take_in([item for item in claimed if item.id not in self._gone])
            self._set_free([item.id for item in claimed if item.id in self._gone])  # once they have left it, if they do

    def _drop(self, items: list[QueuedMessage]) -> list[QueuedMessage]:
        """Remove messages; what another server may have leaves the database only with an answer that was written."""
        self._gone.update(item.id for item in items)
        super()._drop([item for item in items if item.id not in self._doubtful])
        if doubtful := [item for item in items if item.id in self._doubtful]:
            self._note(QueueTaken("", tuple(item.id for item in doubtful)))
            self._let_go(doubtful)
        return items

    def _release(self, conversation: str) -> None:
        """Give messages back to whichever server answers next, but those that this one hands to nobody."""
        self._let_go(self._cut(conversation, lambda item: item.id not in self._held))

    def _let_go(self, going: Sequence[QueuedMessage]) -> None:
        for item in going:
            del self._numbers[item.id]
        self._set_free([item.id for item in going])

    def _set_free(self, ids: Sequence[str]) -> None:
        if ids:
            self._noted += 1
            self._store.release(ids)

    def _forget(self) -> None:
        """Let go what others may have taken while this server counted as dead; what is left is fetched again."""
        for conversation in [*self._waiting]:
            self._release(conversation)
        self._doubtful = {item.id for items in self._taken.values() for item in items}


def queue_of(store: Store, conversations: Conversations | None, running: Running) -> MessageQueue:
    """Return the queue of a server with this store, in memory alone where `conversations` is None."""
    is_shared_with = store.servers if conversations is not None else None
    if isinstance(is_shared_with, Together):
        return SharedQueue(store, is_shared_with, running)
    return MessageQueue(conversations)
