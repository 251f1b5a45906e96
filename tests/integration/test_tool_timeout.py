"""`agents.tool_timeout`: how long one call of a tool may take."""

import asyncio
from pathlib import Path

import pytest
from agent_teams import agent, results_of, team
from chatting import AGENT, chat_body, chunks_of, elbowroom_with_studio, stream_bytes
from own_tools import own_tool
from serving import text_of

from elbowroom.agents.offered import offered_unasked
from elbowroom.agents.request import NOBODY, own_request
from elbowroom.demo import Pause, Script, ToolCall
from elbowroom.server.state import CATALOG, run_settings_of

SETTINGS = """
[[agents]]
id = "critic"
model = "qwen2.5-7b-instruct"
[memory]
enabled = true
"""


@own_tool
async def hang() -> str:
    """Work for ever."""
    await asyncio.Event().wait()
    return "too late"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_a_tool_that_takes_longer_is_stopped(tmp_path: Path, stream: bool) -> None:
    """The model reads after so many seconds that the tool did not answer, and the answer goes on."""
    agents = f"{AGENT}tool_timeout = 0.05\n"
    async with elbowroom_with_studio(tmp_path, agents=agents, toolbox=lambda target: [hang]) as (served, studio):
        studio.enqueue(Script(ToolCall("hang", {})), "It hangs.")
        async with asyncio.timeout(20):
            if stream:
                assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "It hangs."
            else:
                assert (await served.chat("writer"))["choices"][0]["message"]["content"] == "It hangs."
        assert "hang did not answer within 0.05 seconds and was stopped." in results_of(studio.chats[-1].body)[0]


async def test_a_change_counts_from_the_next_request_on(tmp_path: Path) -> None:
    """Nobody has to restart the server for another limit."""
    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [hang]) as (served, studio):
        async with served.http.patch(f"{served.url}/api/agents/writer", json={"tool_timeout": 0.04}) as response:
            assert response.status == 200
        studio.enqueue(Script(ToolCall("hang", {})), "It hangs.")
        async with asyncio.timeout(20):
            await stream_bytes(served, chat_body())
        assert "within 0.04 seconds" in results_of(studio.chats[-1].body)[0]


async def test_each_agent_has_its_own(tmp_path: Path) -> None:
    """An agent that is asked as a tool takes the time it needs; the limit for its tools is that of its own settings."""
    agents = [agent("writer", agent_tools=["researcher"], tool_timeout=0.01), agent("researcher", tool_timeout=0.05)]
    lines = {
        "writer": [Script(ToolCall("ask_researcher", {"request": "Look."})), "Nothing is there."],
        "researcher": [Script(ToolCall("hang", {})), Script(Pause(0.1), "It does not answer.")],
    }
    async with team(tmp_path, agents, lines, toolbox=lambda target: [hang]) as (served, studio):
        async with asyncio.timeout(20):
            assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Nothing is there."
        assert results_of(studio.chats[-1].body) == ["It does not answer."]
        assert "hang did not answer within 0.05 seconds" in results_of(studio.chats[-2].body)[0]


async def test_it_bounds_all_tools_of_the_server(tmp_path: Path) -> None:
    """Tools of the vault, of memory and of kept results keep to it; agents have no limit, MCP servers one of theirs."""
    (tmp_path / "Notes").mkdir()
    tools = 'tools = ["vault", "save_memory", "search_memory"]\nagent_tools = ["critic"]\n'
    agents = f"{AGENT}{tools}{SETTINGS}[vault]\npath = '{tmp_path / 'Notes'}'\n"
    async with elbowroom_with_studio(tmp_path, agents=agents) as (served, _):
        target = served.app[CATALOG].get().of_agent("writer")
        assert target is not None
        offered = await offered_unasked(target, own_request("writer", []), run_settings_of(served.app, NOBODY))
        assert {"vault_read", "save_memory", "tool_output_cache", "ask_critic"} <= set(offered.own_names)
        assert [tool.name for tool in offered.tools if tool.limits_itself] == ["ask_critic"]
