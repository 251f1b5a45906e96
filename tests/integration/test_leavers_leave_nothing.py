"""Clients that leave at any moment leave no task whose failure nobody reads, and get nothing that is not theirs."""

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_teams import agent, team
from chatting import RAW_MODEL, chunks_of, delta_frame, elbowroom_with_studio, stream_bytes
from own_tools import own_tool
from serving import Served, text_of

from elbowroom.demo import Pause, Raw, Reasoning, Script, ToolCall


@pytest.fixture
async def reported() -> Any:
    """Collect what the event loop reports because nobody else has read it."""
    found: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: found.append(f"{context['message']}: {context.get('exception')!r}"))
    yield found
    for _ in range(3):
        gc.collect()
        await asyncio.sleep(0)
    loop.set_exception_handler(None)
    assert not found


@own_tool
async def look(path: str) -> str:
    """Look, and take a while."""
    for _ in range(20):
        await asyncio.sleep(0.005)
    return path


SLOWLY = tuple(part for number in range(12) for part in (f"word{number} ", Pause(0.008)))
LINES: dict[str, Any] = {
    "boss": [
        Script(Reasoning("Hm."), Pause(0.02), "I look. ", ToolCall("look", {"path": "a"})),
        Script("I ask. ", ToolCall("ask_helper", {"task": "help"}), ToolCall("look", {"path": "b"})),
        Script(ToolCall("transfer_to_editor")),
    ],
    "helper": [Script(*SLOWLY, ToolCall("look", {"path": "c"})), Script(*SLOWLY)],
    "editor": [Script(*SLOWLY)],
}


async def left_after(served: Served, seconds: float) -> None:
    """Ask the boss, read what comes, and leave after so long, without reading the rest."""
    body = {"model": "boss", "messages": [{"role": "user", "content": "Go."}], "stream": True}
    try:
        async with asyncio.timeout(seconds), served.http.post(served.chat_url, json=body) as response:
            await response.read()
    except TimeoutError:
        pass


def steps() -> Iterator[float]:
    """Yield moments from before the first word to after the last."""
    yield from (number * 0.03 for number in range(24))


@pytest.mark.slow
async def test_no_failure_of_a_leaver_is_left_unread(tmp_path: Path, reported: list[str]) -> None:
    """While thinking, answering, in a tool, in an agent that serves as one, and after a handover."""
    agents = [agent("boss", agent_tools=["helper"], handoffs=["editor"]), agent("helper"), agent("editor")]
    async with team(tmp_path, agents, LINES, toolbox=lambda target: [look]) as (served, _):
        await asyncio.gather(*(left_after(served, seconds) for seconds in steps()))
    assert not reported


@pytest.mark.fault("text after the end", "streaming", "left out")
async def test_nothing_after_the_end_and_no_half_characters_reach_the_client(tmp_path: Path) -> None:
    """What an engine writes after `[DONE]` is not part of the answer."""
    half = Raw(delta_frame({"content": "Hi \ud83d"}) + delta_frame({"content": " there\udc00"}))
    end = Raw(delta_frame({}, "stop") + b"data: [DONE]\n\n" + delta_frame({"content": "more"}) + b"data: [DONE]\n\n")
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script(half, end))
        body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": "Go."}]}
        assert text_of(chunks_of(await stream_bytes(served, body))) == "Hi \ufffd there\ufffd"
