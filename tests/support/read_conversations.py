"""What a served elbowroom has kept of its conversations."""

import asyncio
from collections.abc import Callable
from typing import Any

from serving import Served

from elbowroom.context.conversation import Conversation, KeptMessage
from elbowroom.server.state import SHARED
from elbowroom.store.questions import Conversations


def conversations_of(served: Served) -> Conversations:
    """Return where they are kept."""
    kept = served.app[SHARED].recording.conversations
    assert kept is not None
    return kept


async def all_kept(served: Served, owner: str = "") -> list[Conversation]:
    """Return all conversations of an owner, the one used last first."""
    conversations = conversations_of(served)
    found = [await conversations.read(owner, row.id) for row in await conversations.rows(owner, limit=200)]
    return [conversation for conversation in found if conversation is not None]


async def kept_of(served: Served, owner: str = "") -> Conversation:
    """Return the only conversation."""
    [conversation] = await all_kept(served, owner)
    return conversation


async def once_kept(served: Served, holds: Callable[[Conversation], object]) -> Conversation:
    """Wait until something holds for the only conversation, and return it."""
    for _ in range(1000):
        if (found := await all_kept(served)) and holds(found[0]):
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError("what was waited for is not kept")


def told(conversation: Conversation) -> list[tuple[str, Any]]:
    """Return role and content of each message, in order."""
    return [(kept.message["role"], kept.message.get("content")) for kept in conversation.messages]


def of_turns(conversation: Conversation) -> list[KeptMessage]:
    """Return the messages that no client has sent."""
    return [kept for kept in conversation.messages if kept.turn]
