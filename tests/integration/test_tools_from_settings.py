"""What the settings name is enough: an agent with notes, an MCP server, memories and another agent uses all of them."""

import json
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, READERS, chunks_of, stream_bytes
from mcp_sample import stdio_server
from scripted_pruner import text_of as content_of
from serving import Served, serve, settings_for, text_of
from small_window import Body

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall

CALLS = {
    "vault_read": {"path": "Plan"},
    "echo": {"text": "Zürich"},
    "save_memory": {"text": "The user lives by the harbour."},
    "search_memory": {"query": "harbour"},
    "ask_critic": {"request": "Is it good?"},
}
ANSWER = "All of it was used."


def settings_of(folder: Path, url: str) -> str:
    """Return settings with everything that gives agents tools."""
    (folder / "Notes").mkdir()
    (folder / "Notes" / "Plan.md").write_text("# Plan\n\nWater the plants.\n")
    (folder / "journal").touch()
    agents = f"""
[[agents]]
id = "writer"
instructions = "You help with notes."
model = "{MODEL}"
tools = ["vault.read", "save_memory", "search_memory"]
mcp = ["files/echo"]
agent_tools = ["critic"]

[[agents]]
id = "critic"
instructions = "You judge."
model = "{MODEL}"

[vault]
path = '{folder / "Notes"}'

[memory]
enabled = true

{stdio_server("files", folder / "journal")}
"""
    return settings_for(url, agents=agents)


def model(body: Body) -> Script | str:
    """Use each tool once, one after another; as the critic, say that it is good."""
    if "You judge." in content_of(body["messages"][0]):
        return "It is good."
    used = sum(message["role"] == "tool" for message in body["messages"])
    name = list(CALLS)[used] if used < len(CALLS) else None
    return Script(ToolCall(name, CALLS[name])) if name else ANSWER


async def ask(served: Served, messages: list[dict[str, Any]]) -> str:
    """Return the answer to a conversation."""
    return text_of(chunks_of(await stream_bytes(served, {"model": "writer", "messages": messages})))


async def count(served: Served, messages: list[dict[str, Any]]) -> int:
    """Return how large elbowroom says a request is."""
    body = {"model": "writer", "messages": messages}
    async with served.http.post(f"{served.chat_url}/input_tokens", json=body) as response:
        assert response.status == 200, await response.text()
        tokens = (await response.json())["input_tokens"]
    assert isinstance(tokens, int)
    return tokens


@pytest.mark.slow
async def test_everything_at_once(tmp_path: Path) -> None:
    """Each tool is offered, counted, runs, and gives the model what it should; what was saved is told in a new chat."""
    window = SimulatedModel(MODEL, loaded_context_length=16_384)
    async with SimulatedLMStudio([window], on_request=model) as studio:
        async with serve(tmp_path, settings_of(tmp_path, studio.base_url)) as served:
            asked: list[dict[str, Any]] = [{"role": "user", "content": "Use everything."}]
            counted = await count(served, asked)
            assert await ask(served, asked) == ANSWER
            names = [tool["function"]["name"] for tool in studio.chats[0].body["tools"]]
            assert sorted(names) == sorted([*CALLS, *READERS])
            assert counted == studio.chats[0].counted_tokens
            results = {}
            for message in studio.chats[-1].body["messages"]:
                for call in message.get("tool_calls") or ():
                    results[call["id"]] = call["function"]["name"]
                if message["role"] == "tool":
                    results[results.pop(message["tool_call_id"])] = content_of(message)
            assert "Water the plants." in results["vault_read"]
            assert results["echo"] == "Zürich"
            assert "harbour" in results["search_memory"]
            assert results["ask_critic"] == "It is good."
            assert "harbour" not in content_of(studio.chats[-1].body["messages"][0])

            await ask(served, [*asked, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And?"}])
            assert "harbour" not in content_of(studio.chats[-1].body["messages"][0])
            await ask(served, [{"role": "user", "content": "A new day."}])
            system = content_of(studio.chats[-1].body["messages"][0])
            assert system.startswith("You help with notes.\n\n<memories>")
            assert "The user lives by the harbour." in system
        async with serve(tmp_path, served.settings.read_text()) as again:
            await ask(again, [{"role": "user", "content": "After a restart."}])
            assert "harbour" in json.dumps(studio.chats[-1].body["messages"][0])
