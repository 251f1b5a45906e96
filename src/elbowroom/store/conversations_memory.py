"""Conversations in memory, within bounds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from elbowroom.context import conversation as kinds
from elbowroom.context.conversation import LARGEST_PAGE, Conversation, ConversationRow, KeptTurn, Known, QueuedMessage
from elbowroom.store.conversations_held import HeldConversation
from elbowroom.store.conversations_sound import Deleted, KeptChange, TurnDeleted, weighed
from elbowroom.store.owner_key import owner_key

MOST_BYTES: Final = 64 * 2**20
APPLIED: Final[dict[type[Any], Callable[[HeldConversation, Any], None]]] = {
    kinds.Heard: HeldConversation.hear,
    kinds.TurnBegun: HeldConversation.begin_turn,
    kinds.ReplyBegun: HeldConversation.begin_reply,
    kinds.ReplyGrew: HeldConversation.grow,
    kinds.ReplyCalled: HeldConversation.call,
    kinds.ReplyEnded: HeldConversation.end_reply,
    kinds.Added: HeldConversation.add,
    kinds.StepUsed: HeldConversation.use,
    kinds.CompactionNoted: HeldConversation.compact,
    kinds.TurnEnded: HeldConversation.end_turn,
    kinds.Queued: HeldConversation.put_in_queue,
}
"""What a conversation does with each kind of change."""


class MemoryConversations:
    """`Conversations` that last as long as this object; beyond the bounds those go that nobody used for longest."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._size = 0
        self._held: dict[str, HeldConversation] = {}
        self._by_turn: dict[str, HeldConversation] = {}
        self._by_reply: dict[str, HeldConversation] = {}
        self._by_queued: dict[str, HeldConversation] = {}

    def note(self, changes: Sequence[KeptChange]) -> None:
        """Take changes in; those are left out that refer to what is not there, and with a warning what is no JSON."""
        for change in changes:
            if (size := weighed(change)) is not None:
                self._take(change, size)
        while self._size > self._most_bytes:
            self._forget(min(self._held.values(), key=lambda held: held.updated))

    async def settled(self) -> bool:
        """Tell that nothing is durable here."""
        return False

    async def look_up(self, owner: str, name: str, keys: Sequence[str]) -> Known | None:
        """Find the conversation with this name, or where that is empty, the one that has the longest beginning."""
        mine = self._of(owner)
        if name:
            found = max((held for held in mine if held.name == name), key=lambda held: held.updated, default=None)
        else:
            known = ((held.known(keys), held.updated, held.id, held) for held in mine)
            length, *_, found = max(known, key=lambda one: one[:3], default=(0, None))
            found = found if length else None
        return Known(found.id, frozenset(found.keys().intersection(keys))) if found else None

    async def turns(self, conversation: str, keys: Sequence[str]) -> list[KeptTurn]:
        """Return the turns that hold more than a reply and whose answer, or else whose parent, has one of the keys."""
        held = self._held.get(conversation)
        wanted = set(keys)
        found = [turn.kept() for turn in held.turns.values() if turn.is_meant(wanted)] if held else []
        return [turn for turn in found if len(turn.messages) > 1]

    async def queue(self) -> list[QueuedMessage]:
        """Return all that waits in the queues of all conversations, in order."""
        ended = {turn for turn, held in self._by_turn.items() if held.turns[turn].status != "streaming"}
        waiting = {item.id: item for held in self._held.values() for item in held.waiting(ended)}
        return [waiting[item] for item in self._by_queued if item in waiting]

    async def rows(
        self, owner: str, *, search: str = "", before: float | None = None, limit: int = 50
    ) -> list[ConversationRow]:
        """Return conversations, the one used last first; with `search` only those that hold this text."""
        found = (
            held for held in self._of(owner) if (before is None or held.updated < before) and held.holds(search.lower())
        )
        page = sorted(found, key=lambda held: (held.updated, held.id), reverse=True)
        return [held.row() for held in page[: page_size(limit)]]

    async def find(self, owner: str, conversation: str) -> ConversationRow | None:
        """Return the conversation with this id, or else with this name."""
        held = self.held(owner, conversation)
        return held.row() if held else None

    async def holder(self, owner: str, turn: str) -> str | None:
        """Return the id of the conversation that has the turn with this id."""
        held = self._by_turn.get(turn)
        return held.id if held and held.owner == owner_key(owner) else None

    async def read(self, owner: str, conversation: str) -> Conversation | None:
        """Return all of the conversation with this id, or else with this name."""
        held = self.held(owner, conversation)
        return held.shown() if held else None

    async def delete(self, owner: str, conversation: str) -> bool:
        """Delete one with all that belongs to it; tells whether it was there."""
        held = self.held(owner, conversation)
        if held:
            self._forget(held)
        return held is not None

    async def delete_turn(self, owner: str, turn: str) -> bool:
        """Delete one turn with all that was said in it; tells whether it was there."""
        is_there = await self.holder(owner, turn) is not None
        if is_there:
            self._forget_turn(turn)
        return is_there

    async def aclose(self) -> None:
        """Forget everything."""
        for held in list(self._held.values()):
            self._forget(held)

    def ids(self) -> set[str]:
        """Return which conversations are held."""
        return set(self._held)

    def put(self, held: HeldConversation) -> None:
        """Hold a conversation that comes from elsewhere."""
        self._held[held.id] = held
        self._size += held.size
        self._by_turn |= dict.fromkeys(held.turns, held)
        self._by_reply |= dict.fromkeys(held.replies, held)
        self._by_queued |= dict.fromkeys(held.queue, held)

    def held(self, owner: str, conversation: str) -> HeldConversation | None:
        """Return the conversation with this id, or else the one used last with this name."""
        mine = self._of(owner)
        if found := next((held for held in mine if held.id == conversation), None):
            return found
        named = (held for held in mine if conversation and held.name == conversation)
        return max(named, key=lambda held: held.updated, default=None)

    def _of(self, owner: str) -> list[HeldConversation]:
        key = owner_key(owner)
        return [held for held in self._held.values() if held.owner == key]

    def _take(self, change: KeptChange, size: int) -> None:
        if isinstance(change, kinds.QueueTaken | kinds.QueueDropped):
            for item in change.ids:
                self._take_from_queue(item, getattr(change, "turn", None))
            return
        if isinstance(change, Deleted):
            if found := self._held.get(change.conversation):
                self._forget(found)
            return
        if isinstance(change, TurnDeleted):
            self._forget_turn(change.turn)
            return
        if isinstance(change, kinds.ConversationBegun):
            self._held.setdefault(change.conversation, HeldConversation.of(change))
        held = self._find(change)
        if held is None:
            return
        is_its_own = self._index(change, held) is held
        if is_its_own and type(change) in APPLIED:
            APPLIED[type(change)](held, change)
        held.used(change.item.at if isinstance(change, kinds.Queued) else getattr(change, "at", held.updated))
        held.size += size
        self._size += size

    def _find(self, change: KeptChange) -> HeldConversation | None:
        match change:
            case kinds.Queued():
                return self._held.get(change.item.conversation)
            case kinds.ReplyBegun() | kinds.Added() | kinds.StepUsed() | kinds.TurnEnded() | TurnDeleted():
                return self._by_turn.get(change.turn)
            case kinds.ReplyGrew() | kinds.ReplyCalled() | kinds.ReplyEnded():
                return self._by_reply.get(change.message)
            case kinds.QueueTaken() | kinds.QueueDropped() | Deleted():
                return None
            case _:
                return self._held.get(change.conversation)

    def _index(self, change: KeptChange, held: HeldConversation) -> HeldConversation:
        """Return the conversation that has what a change begins: the first one that named it, for ids are unique."""
        if isinstance(change, kinds.TurnBegun):
            return self._by_turn.setdefault(change.turn, held)
        if isinstance(change, kinds.ReplyBegun | kinds.Added):
            return self._by_reply.setdefault(change.message, held)
        if isinstance(change, kinds.Queued):
            return self._by_queued.setdefault(change.item.id, held)
        return held

    def _take_from_queue(self, item: str, turn: str | None) -> None:
        if held := self._by_queued.get(item):
            if turn is None:
                del self._by_queued[item], held.queue[item]
            else:
                held.queue[item] = replace(held.queue[item], turn=turn)

    def _forget_turn(self, turn: str) -> None:
        if held := self._by_turn.pop(turn, None):
            for reply in held.forget_turn(turn):
                self._by_reply.pop(reply, None)

    def _forget(self, held: HeldConversation) -> None:
        del self._held[held.id]
        self._size -= held.size
        for index, keys in ((self._by_turn, held.turns), (self._by_reply, held.replies), (self._by_queued, held.queue)):
            for key in keys:
                index.pop(key, None)


def page_size(limit: int) -> int:
    """Return how many conversations a page has where so many are asked for."""
    return min(max(limit, 1), LARGEST_PAGE)
