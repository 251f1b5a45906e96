"""Tools of the Responses API that are no functions, as Codex sends them, by the `openai` Python client."""

import json
from typing import Any

import openai_client
import pytest
from chatting import RAW_MODEL
from openai.types.responses import Response
from openai_client import Trio

from elbowroom.demo import Script, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
lasting, trio = openai_client.lasting, openai_client.trio
PATCH: Any = {
    "type": "custom",
    "name": "apply",
    "description": "Applies a patch.",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
}
SPACE: Any = {
    "type": "namespace",
    "name": "mcp__files",
    "description": "Files.",
    "tools": [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {}}}],
}
SHELL: Any = {"type": "local_shell"}
EDIT: Any = {"type": "apply_patch"}
TOOLS = [PATCH, SPACE, SHELL, EDIT, {"type": "web_search"}, {"type": "image_generation"}]
CASES: list[tuple[ToolCall, dict[str, Any], Any]] = [
    (
        ToolCall("apply", {"input": "*** Begin Patch"}),
        {"type": "custom_tool_call", "name": "apply", "input": "*** Begin Patch"},
        "done",
    ),
    (
        ToolCall("mcp__files__read", {"path": "a"}),
        {"type": "function_call", "name": "read", "namespace": "mcp__files", "arguments": '{"path": "a"}'},
        "oats",
    ),
    (
        ToolCall("local_shell", {"command": ["ls"]}),
        {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
        "a.txt",
    ),
    (
        ToolCall("apply_patch", {"type": "delete_file", "path": "a"}),
        {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
        None,
    ),
]
IDS = [item["type"] for _, item, _ in CASES]


@pytest.mark.parametrize(("call", "expected", "output"), CASES, ids=IDS)
async def test_calls_go_out_and_come_back(
    trio: Trio, call: ToolCall, expected: dict[str, Any], output: str | None
) -> None:
    """The client gets the call in its form, and the model reads its own call again when the result comes."""
    client, studio, _ = trio
    studio.enqueue(Script(call), "Good.")
    first = await client.responses.create(model=RAW_MODEL, input="Go on", tools=TOOLS, store=False)
    [item] = [one.model_dump(exclude_none=True) for one in first.output]
    assert {name: item[name] for name in expected} == expected
    result: dict[str, Any] = {"type": f"{item['type']}_output", "call_id": item["call_id"], "id": "x"}
    result |= {"status": "completed"} if output is None else {"output": output}
    again: Any = [{"role": "user", "content": "Go on"}, item, result]
    await client.responses.create(model=RAW_MODEL, input=again, tools=TOOLS, store=False)
    calling, answered = studio.chats[1].body["messages"][-2:]
    [said] = calling["tool_calls"]
    assert (said["function"]["name"], json.loads(said["function"]["arguments"])) == (call.name, call.arguments)
    assert (answered["role"], answered["content"]) == ("tool", output or "completed")


@pytest.mark.parametrize(("call", "expected", "output"), CASES, ids=IDS)
async def test_streamed(trio: Trio, call: ToolCall, expected: dict[str, Any], output: str | None) -> None:
    """A stream has the same item at its end, and no event that the client does not know."""
    client, studio, _ = trio
    studio.enqueue(Script(call))
    stream: Any = await client.responses.create(model=RAW_MODEL, input="Go", tools=TOOLS, stream=True)
    events = [event async for event in stream]
    response: Response = events[-1].response
    [item] = [one.model_dump(exclude_none=True) for one in response.output]
    assert {name: item[name] for name in expected} == expected
    deltas = "".join(event.delta for event in events if event.type.endswith(".delta"))
    assert deltas == expected.get("input", expected.get("arguments", ""))


async def test_what_the_model_is_told(trio: Trio) -> None:
    """The model gets a function for each tool that the client runs, and is told the grammar of a text."""
    client, studio, served = trio
    studio.enqueue("Good.")
    body = {"model": RAW_MODEL, "input": "Go", "tools": TOOLS, "stream": True, "tool_choice": "auto"}
    async with served.http.post(f"{served.url}/v1/responses", json=body) as response:
        wire = await response.text()
    functions = {tool["function"]["name"]: tool["function"] for tool in studio.chats[0].body["tools"]}
    assert list(functions) == ["apply", "mcp__files__read", "local_shell", "apply_patch"]
    assert 'start: "*** Begin Patch"' in functions["apply"]["description"]
    assert ": The model is not told of tools that only OpenAI's servers run: web_search, image_generation." in wire
    assert client is not None
