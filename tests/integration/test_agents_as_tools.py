"""Agents that others ask as they ask a tool: with a model, a window and tools of their own."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agent_teams import WINDOW, agent, speaker, team, tools_of
from chatting import MODEL, chat_body, chunks_of, elbowroom_with_studio, function_spec, stream_bytes
from own_tools import own_tool
from scripted_pruner import is_prune_order
from serving import text_of

from elbowroom.agents.catalog import Target
from elbowroom.agents.own_tool import OwnTool
from elbowroom.demo import Error, Overflow, Script, SimulatedModel, ToolCall

ASKING = agent("writer", agent_tools=["researcher"])
ASK = ToolCall("ask_researcher", {"request": "Count the words of: a b c"})


@own_tool
async def count(text: str) -> int:
    """Count the words."""
    return len(text.split())


def tools_for(target: Target) -> list[OwnTool]:
    """Give the researcher a tool, and nobody else."""
    return [count] if target.name == "researcher" else []


async def test_agent_as_tool(tmp_path: Path) -> None:
    """It gets the request alone, with instructions, tools and sampling of its own; its answer is the result."""
    other = agent("researcher") + "sampling = { temperature = 0.1 }\n"
    lines = {
        "writer": [Script("Asking. ", ASK), "There are three."],
        "researcher": [Script("Counting. ", ToolCall("count", {"text": "a b c"})), "Three words."],
    }
    async with team(tmp_path, [ASKING, other], lines, toolbox=tools_for) as (served, studio):
        body = chat_body("How many?", response_format={"type": "text"}, temperature=0.9)
        assert text_of(chunks_of(await stream_bytes(served, body))) == "Asking. \n\nThere are three."
        first, asked, counted, last = (chat.body for chat in studio.chats)
        assert tools_of(first) == ["ask_researcher"]
        assert asked["messages"] == [
            {"role": "system", "content": "You are the researcher."},
            {"role": "user", "content": "Count the words of: a b c"},
        ]
        assert tools_of(asked) == ["count"]
        assert "response_format" not in asked
        assert (first["temperature"], asked["temperature"]) == (0.9, 0.1)
        assert counted["messages"][-1]["content"] == "3"
        assert last["messages"][-1]["content"] == "Three words."
