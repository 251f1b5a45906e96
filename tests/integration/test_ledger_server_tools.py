"""Turns with tools of the server that fill the window: what a later turn begins with has each message once."""

from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT_WITHOUT_CACHE, MODEL, stream_bytes
from own_tools import own_tool
from serving import parse_frames, text_of
from small_window import history, orders_of, small_window, turns_of

from elbowroom.demo import Script, ToolCall

CALLS = 9
NOTE = "The boat was half full, the sea was calm and the engine ran well on this crossing. " * 25


@pytest.mark.fault("model lost", "tool", "the step is made anew")
async def test_a_model_that_is_lost_between_two_steps(tmp_path: Path) -> None:
    """The step that was lost has said nothing: the one before it stands once in what the next turn begins with."""
    made = 0

    def model(body: dict[str, Any]) -> Script | str:
        if "Go on" in str(body["messages"][-1]["content"]):
            return "Yes."
        said = () if body["messages"][-1]["role"] == "tool" else ("Looking.",)
        return Script(*said, ToolCall("read_note", {"number": made}))

    @own_tool
    async def read_note(number: int) -> str:
        """Read a note."""
        nonlocal made
        made += 1
        if made == CALLS:
            studio.just_in_time = False
            studio.unload(MODEL)
        return f"Note {number}. {NOTE}"

    compaction = "background = false"
    async with small_window(
        tmp_path,
        model,
        agents=AGENT_WITHOUT_CACHE,
        window=4096,
        compaction=compaction,
        toolbox=lambda target: [read_note],
    ) as (served, studio):
        messages = history(4)
        body = {"model": "writer", "messages": messages, "stream": True}
        said = text_of(parse_frames(await stream_bytes(served, body)))
        assert made == CALLS
        assert orders_of(studio)
        studio.load(MODEL, 4096)
        following = [{"role": "assistant", "content": said}, {"role": "user", "content": "Go on"}]
        await stream_bytes(served, {**body, "messages": [*messages, *following]})
        sent = turns_of(studio)[-1].body["messages"]
    called = sum(len(message.get("tool_calls") or ()) for message in sent)
    results = [message["content"] for message in sent if message["role"] == "tool"]
    assert called == len(results) > 0
    assert all(result.startswith("Note") for result in results)
