"""A kept response: it is read from the turn of its conversation."""

import asyncio
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby
from typing import Any, Final, Literal

from elbowroom.agents.turn import Shared
from elbowroom.context.branch import ConversationTree, Node
from elbowroom.context.conversation import Conversation, KeptMessage
from elbowroom.context.transcript import Message
from elbowroom.server.conversations import branch_used_last, events_of, history_of, writer_elsewhere
from elbowroom.server.responses.body import NOTHING_REPEATED
from elbowroom.server.responses.encode import BACKGROUND_END, Event, OutputItems, described, response_id_of, turn_of
from elbowroom.server.responses.input import items_of

UNFINISHED: Final[Mapping[bool, Literal["cancelled", "incomplete"]]] = {False: "cancelled", True: "incomplete"}
"""What is told of a response that has no end, by whether it was answered in the background, where nobody saw why."""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that is kept as a turn of its conversation, `node` of the `tree`."""

    conversation: Conversation
    tree: ConversationTree
    node: Node
    is_running: bool

    @property
    def id(self) -> str:
        """Return the id of the response."""
        return response_id_of(self.node.last.turn)

    @property
    def is_last(self) -> bool:
        """Tell whether nothing was said after it."""
        return not self.tree.goes_on_after(self.node)

    @property
    def is_alone(self) -> bool:
        """Tell whether its conversation has no other answer."""
        return {kept.turn for kept in self.conversation.messages} <= {"", self.node.last.turn}

    def history(self) -> list[Message]:
        """Return the messages up to it, as the client has them, without the `instructions` that were sent."""
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        return history_of(kept for kept in branch if not _instructs(kept))

    def items(self) -> list[dict[str, Any]]:
        """Return its output items."""
        items = OutputItems(self.id)
        for _ in _told(items, self.node.messages):
            pass
        return items.done

    def events(self) -> Iterator[Event]:
        """Yield the events of its output items, each of which comes in one piece."""
        return _told(OutputItems(self.id), self.node.messages)

    def input_items(self) -> list[dict[str, Any]]:
        """Return what was said before it as items, the oldest first, without the `instructions` that were sent."""
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        said = _items(kept for kept in branch if kept.turn != self.node.last.turn)
        return [item for _, items in said for item in items]

    def described(self) -> dict[str, Any]:
        """Return the response without the fields that only its request had."""
        first = self.node.messages[0]
        ended = UNFINISHED[self.id.endswith(BACKGROUND_END)] if self.node.is_unfinished else "completed"
        status = "in_progress" if self.is_running else ended
        known = described(self.id, first.agent, int(first.at), status, self.items())
        if status == "completed" and first.turn_ended is not None:
            known["completed_at"] = int(first.turn_ended)
        return {**known, **NOTHING_REPEATED, "previous_response_id": self._previous(), "store": True}

    def _previous(self) -> str | None:
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        turns = [kept.turn for kept in branch if kept.turn and kept.turn != self.node.last.turn]
        return response_id_of(turns[-1]) if turns else None


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """A conversation that is kept, of which the branch that was used last is what was said."""

    conversation: Conversation
    tree: ConversationTree

    @property
    def agent(self) -> str:
        """Return who has answered last; empty where nobody has."""
        return next((kept.agent for kept in reversed(self._branch()) if kept.turn), self.conversation.row.agent)

    def history(self) -> list[Message]:
        """Return the messages, as a client has them, without the `instructions` that were sent."""
        return history_of(kept for kept in self._branch() if not _instructs(kept))

    def items(self) -> list[tuple[Sequence[KeptMessage], list[dict[str, Any]]]]:
        """Return what was said as items, by the messages that they stand for, the oldest first."""
        return list(_items(self._branch()))

    def item(self, item_id: str) -> tuple[Sequence[KeptMessage], list[dict[str, Any]]] | None:
        """Return the item with this id, of any branch, with the other items and the messages that it stands with."""
        for said, items in (*_items(self._branch()), *_items(self.conversation.messages)):
            if any(item["id"] == item_id for item in items):
                return said, items
        return None

    def is_last(self, said: Sequence[KeptMessage]) -> bool:
        """Tell whether nothing was said after these messages of one turn."""
        nodes = (node for node in self.tree.nodes if node.last.id == said[-1].id)
        return not any(map(self.tree.goes_on_after, nodes))

    def copies_of(self, wanted: KeptMessage) -> list[KeptMessage]:
        """Return a message of a client with what stands for it in other branches, as each agent has its own.

        The same words said twice in the branch that was used last are two messages.
        """
        branch = {kept.id: kept for kept in self._branch()}
        same = [kept for kept in self.conversation.messages if not kept.turn and kept.message == wanted.message]
        there = [kept for kept in same if kept.id in branch]
        meant = [branch[wanted.id]] if wanted.id in branch else there[:1]
        return [*meant, *(kept for kept in same if kept.id not in branch)]

    def _branch(self) -> list[KeptMessage]:
        return branch_used_last(self.conversation, self.tree)


async def read_conversation(shared: Shared, owner: str, named: str) -> KeptConversation | None:
    """Return the owner's conversation with this id or name. Raises StoreOpening and StoreAway."""
    await shared.store.ready()
    conversation = await shared.store.conversations.read(owner, named)
    if conversation is None:
        shared.store.check_reachable()
        return None
    return KeptConversation(conversation, await asyncio.to_thread(ConversationTree.of, conversation.messages))


async def is_being_given(shared: Shared, owner: str, turn: str) -> bool:
    """Tell whether this server or another one writes the owner's turn now."""
    return shared.running.is_running(owner, turn) or await writer_elsewhere(shared, owner, turn) is not None


async def find_response(shared: Shared, owner: str, response_id: str) -> KeptResponse | None:
    """Return the owner's response with this id; None where there is none, or it has said nothing yet."""
    found = await find_responses(shared, owner, [response_id])
    return found[0] if found else None


async def find_responses(shared: Shared, owner: str, response_ids: Iterable[str]) -> list[KeptResponse]:
    """Return the owner's responses with these ids as far as they have said something; read a conversation once.

    Raises StoreOpening and StoreAway.
    """
    kept, found = shared.store.conversations, list[KeptResponse]()
    read: dict[str, tuple[Conversation, ConversationTree]] = {}
    turns = list(map(turn_of, response_ids))
    if turns:
        await shared.store.ready()
    for turn in turns:
        is_running = await is_being_given(shared, owner, turn)
        holder = await kept.holder(owner, turn)
        if holder is None:
            shared.store.check_reachable()
        if holder is not None and holder not in read and (conversation := await kept.read(owner, holder)) is not None:
            read[holder] = conversation, await asyncio.to_thread(ConversationTree.of, conversation.messages)
        if holder is not None and holder in read:
            conversation, tree = read[holder]
            nodes = (node for node in tree.nodes if node.last.turn == turn)
            found += [KeptResponse(conversation, tree, node, is_running) for node in nodes]
    return found


def unkept(response_id: str, status: str) -> dict[str, Any]:
    """Return a response that is not kept, with its status."""
    return {**described(response_id, "", int(time.time()), status, ()), **NOTHING_REPEATED, "store": False}


def _told(items: OutputItems, said: Sequence[KeptMessage]) -> Iterator[Event]:
    """Yield the events of what was said, and close the items."""
    for event in events_of(said):
        yield from items.take(event)
    yield from items.close()


def _items(branch: Iterable[KeptMessage]) -> Iterator[tuple[Sequence[KeptMessage], list[dict[str, Any]]]]:
    """Yield the messages of each turn, and each message of a client, with the items that they make."""
    for turn, said in groupby(branch, key=lambda kept: kept.turn):
        sent = list(said)
        if turn:
            output = OutputItems(response_id_of(turn))
            for _ in _told(output, sent):
                pass
            yield sent, output.done
        else:
            for kept in sent:
                if not _instructs(kept):
                    yield [kept], items_of(kept.message, _item_key(kept))


def _item_key(kept: KeptMessage) -> str:
    """Return what tells a client's message from others; without an underscore, which ids of answers have."""
    return blake2b(kept.id.encode(), digest_size=12).hexdigest()


def _instructs(kept: KeptMessage) -> bool:
    """Tell whether this was sent as `instructions`; a system message of an `input` is a list of parts."""
    return not kept.turn and kept.message.get("role") == "system" and isinstance(kept.message.get("content"), str)
