"""A program reads its answer with the `openai` client while a second one says more to the conversation."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, elbowroom_with_studio, eventually
from openai import AsyncOpenAI
from openai_client import client_of, text_in
from own_tools import own_tool
from queueing import NAMED, said_by_user

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Script, ToolCall, WaitFor


async def say(client: AsyncOpenAI, text: str, mode: str) -> Any:
    """Put a message in the queue as a program does that has nothing but the `openai` client."""
    return await client.post("/conversations/notes/queue", body={"content": text, "mode": mode}, cast_to=object)


async def test_a_second_client_steers_a_running_agent(tmp_path: Path) -> None:
    """The first one's stream goes on with what the second one has said, and its next request has it all."""
    is_running, may_end = asyncio.Event(), asyncio.Event()

    def toolbox(target: Target) -> Sequence[ServerTool]:
        async def read_log() -> str:
            """Read the log."""
            is_running.set()
            await may_end.wait()
            return "Empty."

        return [own_tool(read_log)]

    async with (
        elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio),
        client_of(served) as reader,
        client_of(served) as speaker,
    ):
        studio.enqueue(Script(ToolCall("read_log", {})), "It is empty.", "Nothing to do.", "You are welcome.")
        messages: Any = [{"role": "user", "content": "Read the log."}]

        async def read() -> str:
            stream = await reader.chat.completions.create(
                model="writer", messages=messages, stream=True, extra_headers=NAMED
            )
            return text_in([chunk async for chunk in stream])

        reading = asyncio.create_task(read())
        await asyncio.wait_for(is_running.wait(), 60)
        assert (await say(speaker, "Then plan the day.", "follow_up"))["position"] == 1
        assert (await say(speaker, "Be brief.", "steer"))["running"] is True
        may_end.set()
        text = await reading
        assert text == "It is empty.\n\nNothing to do."
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "Thanks."}]
        await read()
        told = said_by_user(studio.chats[-1].body["messages"])
        assert told == ["Read the log.", "Be brief.", "Then plan the day.", "Thanks."]


@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_a_second_client_is_answered_in_the_stream_of_the_first(tmp_path: Path, model: str) -> None:
    """Its words are taken in behind the answer that streams, whatever answers."""
    async with (
        elbowroom_with_studio(tmp_path) as (served, studio),
        client_of(served) as reader,
        client_of(served) as speaker,
    ):
        may_end = asyncio.Event()
        studio.enqueue(Script("One. ", WaitFor(may_end), "Two."), "Three.")
        stream = await reader.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "Count."}], stream=True, extra_headers=NAMED
        )
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens, "nothing is said")
        await say(speaker, "Go on.", "steer")
        may_end.set()
        assert text_in([chunk async for chunk in stream]) == "One. Two.\n\nThree."
