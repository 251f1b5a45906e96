"""The setting `client_tools`: what of a client's tools the model gets to see, for agents and raw models."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, RAW_MODEL, calls_of, chat_body, chunks_of, finish_of, stream_bytes
from serving import text_of
from small_window import ANSWER, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import Script, ToolCall

OVERFLOW_WORDS = (
    r"prompt is too long",
    r"too many tokens",
    r"too large",
    r"exceed",
    r"context[_ ]?(length|window|size)",
    r"maximum",
    r"reduce the length",
    r"token limit",
    r"input is too long",
)
"""What opencode, Cline, Claude Code, goose and LangChain take for a conversation that is too long."""
WORDY = (
    "Reads a note from the vault. Use it whenever the person speaks of a note, of a page or of a file, and read the "
    "whole of it before you answer, because the person expects that you know what is in it."
)
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "read_note",
        "description": WORDY,
        "parameters": {
            "type": "object",
            "properties": {
                "path": {"type": "string", "title": "Path", "description": WORDY},
                "part": {"type": "string", "enum": ["head", "body"]},
            },
            "required": ["path"],
        },
    },
}
TOOLS = [TOOL]


def settings(who: str, choice: str) -> tuple[str, str]:
    """Return the lines that choose this for the agent or for raw models, and something else for the other."""
    other = "pass" if choice == "drop" else "drop"
    of_agent, of_raw_models = (choice, other) if who == "writer" else (other, choice)
    return f'{AGENT}client_tools = "{of_agent}"\n', f'client_tools = "{of_raw_models}"'


def calls_if_it_can(body: dict[str, Any]) -> Script | str:
    """Call the tool where there is one, else answer."""
    return Script(ToolCall("read_note", {"path": "a.md"})) if body.get("tools") else ANSWER


def assert_slim(tool: dict[str, Any]) -> None:
    """Check that a tool takes the same calls as the whole one, in fewer words."""
    function, whole = tool["function"], TOOL["function"]
    assert function["name"] == whole["name"]
    assert function["description"] == "Reads a note from the vault."
    parameters = function["parameters"]
    assert parameters["required"] == ["path"]
    assert parameters["properties"]["part"] == whole["parameters"]["properties"]["part"]
    path = parameters["properties"]["path"]
    assert path["type"] == "string"
    assert "title" not in path
    assert len(path["description"]) <= 40


def many(count: int) -> list[dict[str, Any]]:
    """Return so many tools, whose descriptions take about half of their tokens."""
    return [{**TOOL, "function": {**TOOL["function"], "name": f"read_{number}"}} for number in range(count)]


@pytest.mark.parametrize("who", ["writer", RAW_MODEL])
async def test_auto_keeps_tools_whole_where_there_is_room(tmp_path: Path, who: str) -> None:
    """In a large window the model gets the tools as they came, and nobody is told."""
    async with small_window(tmp_path, window=8192) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, chat_body(model=who, tools=many(5))))
        assert studio.chats[0].body["tools"] == many(5)
        assert "described in short" not in str(chunks)


@pytest.mark.parametrize("who", ["writer", RAW_MODEL])
async def test_auto_shortens_tools_where_there_is_none(tmp_path: Path, who: str) -> None:
    """In a small one it gets short tools, the same in each turn; the first answer says what that saves."""
    async with small_window(tmp_path, window=1500) as (served, studio):
        body = chat_body(model=who, tools=many(5))
        counted = await served.http.post(f"{served.chat_url}/input_tokens", json=body)
        first = chunks_of(await stream_bytes(served, body))
        [chat] = studio.chats
        for tool in chat.body["tools"]:
            assert_slim({"function": {**tool["function"], "name": "read_note"}})
        assert "The 5 tools of your program are described in short" in str(first)
        saved = re.search(r"([\d,]+) tokens instead of ([\d,]+), which saves ([\d,]+)\.", str(first))
        assert saved is not None
        told, whole, fewer = (int(number.replace(",", "")) for number in saved.groups())
        assert fewer == whole - told > 0
        assert (await counted.json())["input_tokens"] == chat.prompt_tokens
        said = {"role": "assistant", "content": ANSWER}
        again = {**body, "messages": [*body["messages"], said, {"role": "user", "content": "And then?"}]}
        second = chunks_of(await stream_bytes(served, again))
        assert "described in short" not in str(second)
        assert studio.chats[-1].body["tools"] == chat.body["tools"]


@pytest.mark.slow
async def test_short_tools_stay_the_same(tmp_path: Path) -> None:
    """They have the same bytes through compactions and after a restart; a tool that comes or goes changes no other."""
    said: list[dict[str, Any]] = []
    seen: list[str] = []

    async def ask(tools: list[dict[str, Any]]) -> None:
        async with small_window(tmp_path, window=1500) as (served, studio):
            for number in range(3):
                said.extend(history(4 + number)[1:])
                status, answer = await ask_whole(served, {"model": "writer", "messages": said, "tools": tools})
                assert status == 200, answer
                said.append({"role": "assistant", "content": ANSWER})
            seen.extend(json.dumps(turn.body["tools"]) for turn in turns_of(studio))
            compacted.append(len(orders_of(studio)))

    compacted: list[int] = []
    await ask(many(5))
    await ask(many(5))
    assert sum(compacted) >= 2
    assert len(seen) >= 6
    assert len(set(seen)) == 1
    [first] = set(seen)
    seen.clear()
    await ask([*many(7)[1:4], *many(7)[5:]])
    [second] = set(seen)
    assert [tool for tool in json.loads(second) if tool in json.loads(first)] == json.loads(first)[1:4]


@pytest.mark.parametrize(
    ("path", "stream"), spread(["/v1/chat/completions", "/v1/messages", "/v1/responses"], [False, True])
)
async def test_a_window_too_small_for_the_tools(tmp_path: Path, path: str, *, stream: bool) -> None:
    """Not even short tools fit: the error names the window that would do, in no words that mean "make it shorter"."""
    async with small_window(tmp_path, window=512) as (served, studio):
        body = asking(path, many(30), max_tokens=100, stream=stream)
        async with served.http.post(f"{served.url}{path}", json=body) as response:
            assert response.status == 400
            error = (await response.json())["error"]
        assert not studio.chats
        if path != "/v1/messages":
            assert (error["code"], error["param"]) == ("window_too_small", "tools")
        assert error["message"].startswith("Load the model with 12,288 tokens or more, ")
        assert "30 tools (the largest: read_" in error["message"]
        assert [words for words in OVERFLOW_WORDS if re.search(words, error["message"], re.IGNORECASE)] == []


async def test_the_window_that_would_do(tmp_path: Path) -> None:
    """In the window that the error names, the same request is answered, and the chat has room."""
    async with small_window(tmp_path, window=12_288) as (served, studio):
        status, answer = await ask_whole(served, chat_body(model="writer", tools=many(30)))
        assert status == 200, answer
        [chat] = studio.chats
        assert chat.counted_tokens is not None
        assert chat.counted_tokens < 12_288 // 2
        assert_slim({"function": {**chat.body["tools"][0]["function"], "name": "read_note"}})


def asking(path: str, tools: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """Return a request that offers these tools, as this route takes it."""
    functions = [tool["function"] for tool in tools]
    if path == "/v1/chat/completions":
        return chat_body(model="writer", tools=tools, **fields)
    if path == "/v1/responses":
        flat = [{"type": "function", **function} for function in functions]
        return {"model": "writer", "input": "Hello", "tools": flat, "stream": fields["stream"]}
    described = [
        {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]} for one in functions
    ]
    return {"model": "writer", "messages": [{"role": "user", "content": "Hello"}], "tools": described, **fields}


@pytest.mark.parametrize(("choice", "who"), spread(["pass", "slim", "drop"], ["writer", RAW_MODEL]))
async def test_what_the_model_sees(tmp_path: Path, who: str, choice: str) -> None:
    """`pass` sends the tools as they are, `slim` fewer words, `drop` nothing of them; calls come back all the same."""
    agents, server = settings(who, choice)
    async with small_window(tmp_path, calls_if_it_can, agents=agents, server=server) as (served, studio):
        sent = copy.deepcopy(TOOLS)
        chunks = chunks_of(await stream_bytes(served, chat_body(model=who, tools=sent, tool_choice="auto")))
        [chat] = studio.chats
        if choice == "drop":
            assert "tools" not in chat.body
            assert "tool_choice" not in chat.body
            assert text_of(chunks) == ANSWER
            assert finish_of(chunks) == "stop"
            return
        assert chat.body["tool_choice"] == "auto"
        [tool] = chat.body["tools"]
        if choice == "pass":
            assert tool == TOOL
        else:
            assert_slim(tool)
        [call] = calls_of(chunks)
        assert (call["name"], call["arguments"]) == ("read_note", '{"path": "a.md"}')
        assert finish_of(chunks) == "tool_calls"


async def test_pass_is_the_default(tmp_path: Path) -> None:
    """Without the setting nothing is changed, for agents and raw models."""
    async with small_window(tmp_path) as (served, studio):
        for model in ("writer", RAW_MODEL):
            await ask_whole(served, chat_body(model=model, tools=TOOLS))
        assert [chat.body["tools"] for chat in studio.chats] == [TOOLS, TOOLS]


@pytest.mark.parametrize(("choice", "status"), [("pass", 400), ("slim", 200), ("drop", 200)])
async def test_tools_that_only_fit_when_slim(tmp_path: Path, choice: str, status: int) -> None:
    """Tools that are larger than the window as they are can be used when they are slim."""
    wordy = copy.deepcopy(TOOL)
    wordy["function"]["description"] = WORDY * 40
    async with small_window(tmp_path, server=f'client_tools = "{choice}"') as (served, studio):
        answered, body = await ask_whole(served, chat_body(model=RAW_MODEL, tools=[wordy]))
        assert answered == status, body
        assert len(studio.chats) == (status == 200)
        if status == 400:
            assert "the tool read_note" in body["error"]["message"]
            assert 'client_tools = "slim" (saves about ' in body["error"]["message"]
        else:
            assert body["choices"][0]["message"]["content"] == ANSWER
