"""Many clients say many things to conversations that are being answered: each is read once, in order per client."""

import asyncio
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, RAW_MODEL, elbowroom_with_studio
from own_tools import own_tool
from queueing import chunks, said_by_user, say, waiting
from serving import Served, text_of

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall
from elbowroom.server.state import SHARED

CLIENTS = 10
CONVERSATIONS = {"plans": "writer", "logs": "writer", "trips": RAW_MODEL, "recipes": RAW_MODEL}


def quick_tool(target: Target) -> Sequence[ServerTool]:
    """Give agents a tool that takes a moment."""

    async def look() -> str:
        """Look."""
        await asyncio.sleep(0.002)
        return "Nothing new."

    return [own_tool(look)] if target.agent else []


async def client(served: Served, number: int, messages: int) -> list[str]:
    """Say things to one conversation, one after the other, and return them."""
    said = [f"client {number} message {place}" for place in range(messages)]
    conversation = list(CONVERSATIONS)[number % len(CONVERSATIONS)]
    for text in said:
        added = await say(served, text, "follow_up" if number % 3 else "steer", conversation)
        assert added["position"] >= 1
    return said


async def keep_asking(served: Served, name: str, has_ended: asyncio.Event) -> int:
    """Ask in a conversation as a client that keeps its history, until all was said and read; return how often."""
    history: list[dict[str, Any]] = []
    for asked in count(1):
        is_last = has_ended.is_set() and not await waiting(served, name) if history else False
        history.append({"role": "user", "content": f"{name} {asked}"})
        said = await chunks(served, {"model": CONVERSATIONS[name], "messages": history}, name)
        history.append({"role": "assistant", "content": text_of(said)})
        if is_last:
            return asked
    raise AssertionError


def prompts_of(studio: SimulatedLMStudio, name: str) -> list[list[Any]]:
    """Return what the user says in each request of a conversation."""
    said = (said_by_user(chat.body["messages"]) for chat in studio.chats)
    return [contents for contents in said if f"{name} 1" in contents]


def in_order(texts: Sequence[str], contents: Sequence[Any]) -> bool:
    """Tell whether those of the texts that are there stand there once, and in this order."""
    places = [contents.index(text) for text in texts if text in contents]
    return places == sorted(places) and len(places) == sum(content in texts for content in contents)


@pytest.mark.slow
@pytest.mark.fault("two clients at once", ("streaming", "tool"), "each message read once, in order")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("messages", [5, pytest.param(100, marks=pytest.mark.long)])
async def test_each_message_is_read_once_and_in_order(tmp_path: Path, messages: int) -> None:
    """However turns begin, run tools, answer and end meanwhile: once in the conversation, never twice in a prompt."""
    model = SimulatedModel(MODEL, loaded_context_length=262_144)
    numbers = count()
    async with elbowroom_with_studio(tmp_path, toolbox=quick_tool, model=model) as (served, studio):
        studio.on_request = lambda body: (
            Script(ToolCall("look", {})) if body.get("tools") and next(numbers) % 3 else Script("Yes.")
        )
        has_ended = asyncio.Event()
        for name in CONVERSATIONS:
            await chunks(served, {"model": CONVERSATIONS[name], "messages": [{"role": "user", "content": "Hi"}]}, name)
        asking = [asyncio.create_task(keep_asking(served, name, has_ended)) for name in CONVERSATIONS]
        said = await asyncio.gather(*(client(served, number, messages) for number in range(CLIENTS)))
        has_ended.set()
        assert all(asked > 1 for asked in await asyncio.gather(*asking))
        kept = served.app[SHARED].store.conversations
        for place, name in enumerate(CONVERSATIONS):
            conversation = await kept.read("", name)
            assert conversation is not None
            written = said_by_user([message.message for message in conversation.messages])
            prompts = prompts_of(studio, name)
            for texts in said[place :: len(CONVERSATIONS)]:
                assert [text for text in written if text in texts] == texts
                assert set(texts) <= {content for contents in prompts for content in contents}
                assert all(in_order(texts, contents) for contents in prompts)
