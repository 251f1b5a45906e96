"""Finds the conversation that a request names, and takes its lock."""

from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager

from elbowroom.agents.turn import Shared
from elbowroom.server.state import find_conversation


@asynccontextmanager
async def changing(shared: Shared, owner: str, named: str) -> AsyncIterator[str]:
    """Keep answers and other changes of a conversation, named by its id or name, out of the block, which gets its id.

    Waits for changes that are under way. Raises ConversationLocked where the conversation is being answered, and
    StoreOpening. Where there is no such conversation the block gets the name, and nothing is kept out.
    """
    conversation = await find_conversation(shared, owner, named)
    if conversation is None:
        yield named
        return
    async with shared.recording.locks.changing(conversation):
        yield conversation


async def hold(shared: Shared, owner: str, named: str, until: ExitStack) -> None:
    """Let one response alone answer a conversation until the stack is closed. Raises what `changing` raises."""
    conversation = await find_conversation(shared, owner, named)
    if conversation is not None:
        async with shared.recording.locks.changing(conversation):
            until.enter_context(shared.recording.locks.claimed(conversation))
