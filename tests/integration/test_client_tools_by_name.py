"""`client_tools = "search"`: the model is told of a client's tools by name, and looks up what it needs."""

import copy
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builtin_tools import builtin_tools, tool_of, tools_of_mcp_servers
from chatting import AGENT, RAW_MODEL, calls_of, chat_body, chunks_of, finish_of, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from serving import text_of
from small_window import ANSWER, Message, Model, ask_whole, small_window
from spread_variants import sample, spread

from elbowroom.demo import Script, ToolCall
from elbowroom.demo.script import Body

WINDOW = 8192
BY_NAME = 'client_tools = "search"'
TOOLS = builtin_tools()
WANTED = {"query": "ferry"}
EVERYBODY = pytest.mark.parametrize("who", ["writer", RAW_MODEL])


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def look_up(*names: str) -> ToolCall:
    """Return the call that asks for the whole description of tools."""
    return ToolCall("use_tool", {"name": ", ".join(names)})


def settings(choice: str = BY_NAME) -> dict[str, Any]:
    """Return the settings of a server whose agents and raw models have this choice."""
    return {"window": WINDOW, "server": choice, "agents": f"{AGENT}{choice}\n"}


def after_each(*replies: Script | str) -> Model:
    """Give the replies in their order, by how many calls were answered since the person spoke; then the answer."""

    def says(body: Body) -> Script | str:
        results = 0
        for message in body["messages"]:
            results = 0 if message["role"] == "user" else results + (message["role"] == "tool")
        return replies[results] if results < len(replies) else ANSWER

    return says


def followed(messages: list[Message], chunks: list[dict[str, Any]], result: str = "Nine.") -> list[Message]:
    """Return the history with what the client has got, and a result for each of its calls."""
    calls = [
        {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
        for call in calls_of(chunks)
    ]
    said = {"role": "assistant", "content": text_of(chunks), **({"tool_calls": calls} if calls else {})}
    return [*messages, said, *({"role": "tool", "tool_call_id": call["id"], "content": result} for call in calls)]


@EVERYBODY
async def test_what_many_tools_take(tmp_path: Path, who: str) -> None:
    """Thirty-six tools take half of a window of 8,192, and with five MCP servers at most 15 % of it by name."""
    (whole_folder := tmp_path / "whole").mkdir()
    async with small_window(whole_folder, window=32_768, server='client_tools = "pass"') as (served, studio):
        await ask_whole(served, chat_body(model=RAW_MODEL, tools=TOOLS))
        await ask_whole(served, chat_body(model=RAW_MODEL))
        whole, nothing = (chat.counted_tokens or 0 for chat in studio.chats)
        assert whole - nothing > WINDOW // 2
    async with small_window(tmp_path, **settings()) as (served, studio):
        for tools in (None, TOOLS, [*TOOLS, *tools_of_mcp_servers()]):
            body = chat_body(model=who, **({"tools": tools} if tools else {}))
            counted = await served.http.post(f"{served.chat_url}/input_tokens", json=body)
            status, answer = await ask_whole(served, body)
            assert status == 200, answer
            assert (await counted.json())["input_tokens"] == studio.chats[-1].prompt_tokens
        without, *told = (chat.counted_tokens or 0 for chat in studio.chats)
        assert max(told) - without <= 0.15 * WINDOW
        [listed] = studio.chats[-1].body["tools"]
        for tool in [*TOOLS, *tools_of_mcp_servers()]:
            assert f"\n{tool['function']['name']}" in listed["function"]["description"]


CALLS: dict[str, tuple[Script | str, ...]] = {
    "looked up first": (Script(look_up("search_notes")), Script(ToolCall("search_notes", WANTED))),
    "by name at once": (Script(ToolCall("search_notes", WANTED)),),
    "through the tool": (Script(ToolCall("use_tool", {"name": "search_notes", "arguments": WANTED})),),
    "arguments as a text": (Script(ToolCall("use_tool", {"name": "search_notes", "arguments": json.dumps(WANTED)})),),
    "wrong at first": (Script(ToolCall("search_notes", {"text": "ferry"})), Script(ToolCall("search_notes", WANTED))),
    "no JSON at first": (Script(ToolCall("search_notes", "ferry")), Script(ToolCall("search_notes", WANTED))),
    "an unknown tool": (Script(look_up("find_notes")), Script(ToolCall("search_notes", WANTED))),
}


@pytest.mark.parametrize(("way", "who"), spread(CALLS, ["writer", RAW_MODEL]))
async def test_the_client_sees_its_own_tools_called(tmp_path: Path, who: str, way: str) -> None:
    """However the model comes to a call, the client gets the one that it gets with whole tools, and nothing else."""
    body = chat_body(model=who, tools=copy.deepcopy(TOOLS))
    async with small_window(tmp_path, after_each(*CALLS[way]), **settings()) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, body))
        [call] = calls_of(chunks)
        assert (call["name"], json.loads(call["arguments"])) == ("search_notes", WANTED)
        assert (text_of(chunks), finish_of(chunks)) == ("", "tool_calls")
        assert "use_tool" not in str(chunks)
        done = chunks_of(await stream_bytes(served, {**body, "messages": followed(body["messages"], chunks)}))
        assert (text_of(done), finish_of(done)) == (ANSWER, "stop")
        if way in ("looked up first", "wrong at first", "no JSON at first"):
            results = [message["content"] for message in studio.chats[1].body["messages"] if message["role"] == "tool"]
            assert json.dumps(TOOLS[20]["function"]["parameters"]) in results[-1]
        for chat in studio.chats:
            assert_fits(chat)


@EVERYBODY
async def test_what_was_looked_up_stays(tmp_path: Path, who: str) -> None:
    """Later requests, after a restart too, begin with every byte of the prompts before."""
    model = after_each(
        Script(look_up("search_notes", "view_note")),
        Script(ToolCall("search_notes", WANTED), ToolCall("view_note", WANTED)),
    )
    body = chat_body(model=who, tools=TOOLS)
    sent: list[dict[str, Any]] = []
    chunks: list[dict[str, Any]] = []
    for question in ("And the first ferry?", "And now?"):
        async with small_window(tmp_path, model, **settings()) as (served, studio):
            for _ in range(2):
                chunks = chunks_of(await stream_bytes(served, body))
                body = {**body, "messages": followed(body["messages"], chunks)}
            assert text_of(chunks) == ANSWER
            body = {**body, "messages": [*body["messages"], {"role": "user", "content": question}]}
            sent += [chat.body for chat in studio.chats]
    assert len(sent) == 6
    for before, after in pairwise(sent):
        assert after["tools"] == before["tools"]
        assert after["messages"][: len(before["messages"])] == before["messages"]
    assert str(sent[-1]["messages"]).count("'name': 'use_tool'") == 2


async def test_calls_beside_each_other(tmp_path: Path) -> None:
    """A look-up and a call in one reply: the client gets its call, and the model later has both."""
    both = Script(look_up("view_note"), ToolCall("search_notes", WANTED))
    body = chat_body(model=RAW_MODEL, tools=TOOLS)
    async with small_window(tmp_path, after_each(both), **settings()) as (served, studio):
        chunks = chunks_of(await stream_bytes(served, body))
        assert [call["name"] for call in calls_of(chunks)] == ["search_notes"]
        await stream_bytes(served, {**body, "messages": followed(body["messages"], chunks)})
        results = [message["content"] for message in studio.chats[-1].body["messages"] if message["role"] == "tool"]
        assert results[-1] == "Nine."


@pytest.mark.parametrize("choice", ["auto", "required", "none"])
async def test_the_choice_of_tools(tmp_path: Path, choice: str) -> None:
    """It holds for the tool that stands for the client's; a call that is demanded is not done by looking up."""
    model = after_each(Script(look_up("search_notes")), Script(ToolCall("search_notes", WANTED)))
    async with small_window(tmp_path, model, **settings()) as (served, studio):
        await stream_bytes(served, chat_body(model=RAW_MODEL, tools=TOOLS, tool_choice=choice))
        assert {chat.body.get("tool_choice") for chat in studio.chats} == {choice}


async def test_a_choice_that_names_a_tool(tmp_path: Path) -> None:
    """Then that tool alone is offered, whole."""
    chosen = {"type": "function", "function": {"name": "search_notes"}}
    async with small_window(tmp_path, **settings()) as (served, studio):
        await stream_bytes(served, chat_body(model=RAW_MODEL, tools=TOOLS, tool_choice=chosen))
        assert studio.chats[0].body["tools"] == [tool_of("search_notes")]


async def test_few_tools_stay_as_they_are(tmp_path: Path) -> None:
    """A tool that is shorter than what would be told instead of it is sent whole, to a model without tools of ours."""
    async with small_window(tmp_path, **settings()) as (served, studio):
        tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
        await stream_bytes(served, chat_body(model=RAW_MODEL, tools=[tool]))
        assert studio.chats[0].body["tools"] == [tool]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_other_dialects(tmp_path: Path, path: str) -> None:
    """Clients of both other APIs get the call of their own tool as well."""
    functions = [tool["function"] for tool in TOOLS]
    body: dict[str, Any]
    if path == "/v1/responses":
        flat = [{"type": "function", **function} for function in functions]
        body = {"model": RAW_MODEL, "input": "Hello", "tools": flat}
    else:
        described = [
            {"name": one["name"], "description": one["description"], "input_schema": one["parameters"]}
            for one in functions
        ]
        asked = [{"role": "user", "content": "Hello"}]
        body = {"model": RAW_MODEL, "messages": asked, "max_tokens": 100, "tools": described}
    async with small_window(tmp_path, after_each(*CALLS["looked up first"]), **settings()) as (served, studio):
        async with served.http.post(f"{served.url}{path}", json=body) as response:
            answer = await response.json()
        [call] = [item for item in answer.get("output") or answer["content"] if item["type"] in CALL_TYPES]
        assert call["name"] == "search_notes"
        assert json.loads(call["arguments"]) if "arguments" in call else call["input"] == WANTED
        assert len(studio.chats) == 2


CALL_TYPES = ("function_call", "tool_use")
Call = tuple[str, dict[str, Any]]
TASKS: dict[str, tuple[tuple[Call, ...], ...]] = {
    "What time is it?": ((("get_current_timestamp", {"query": "now"}),),),
    "Write down what my notes say of the ferry.": (
        (("search_notes", {"query": "ferry", "count": 3}),),
        (("view_note", {"query": "<1>"}),),
        (("write_note", {"query": 'The "last" ferry: <2>'}),),
    ),
    "Move Monday to Tuesday, and tell my tasks.": (
        (("search_calendar_events", {"query": "Monday"}), ("search_calendar_events", {"query": "Tuesday"})),
        (
            ("update_calendar_event", {"query": "<1> \u2192 <2>"}),
            ("create_tasks", {"query": "d\u00e9m\u00e9nager \u4e8c"}),
        ),
        (("update_task", {"query": "<4>", "count": 0}),),
    ),
    "Look in everything that I have.": tuple(
        ((name, {"query": "ferry"}),)
        for name in ("search_chats", "search_memories", "query_knowledge_bases", "search_notes", "search_chats")
    ),
    "Read two issues and what is in the file.": (
        (("github_list_issues", {"query": "open"}), ("files_read_file", {"query": "a.txt"})),
        (("github_get_file", {"query": "<1>"}), ("sql_query", {"query": "select 1", "count": 7})),
    ),
    "Say hello, without a tool.": (),
}
"""What a task is done with: the calls of each round. `<2>` stands for the result of the second call."""
VARIED = tuple(task for task in TASKS if task.startswith(("Write", "Move", "Say")))
"""One call after another with what came before, several at once, and none."""


def does_tasks(body: Body) -> Script | str:
    """Do the task that is asked with the calls that it takes, looking up each tool first of which no more is known."""
    [task] = [message["content"] for message in body["messages"] if message["role"] == "user"]
    results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
    got = [text for text in results if text.startswith("Result of ")]
    rounds, done = TASKS[task], 0
    while done < len(rounds) and len(got) >= sum(len(calls) for calls in rounds[: done + 1]):
        done += 1
    if done == len(rounds):
        return f"Done: {' '.join(got)}"
    described = json.dumps([body.get("tools"), results])
    unknown = [name for name, _ in rounds[done] if tool_of(name)["function"]["description"] not in described]
    if unknown:
        return Script(look_up(*unknown))
    return Script(*(ToolCall(name, json.dumps(filled(given, got))) for name, given in rounds[done]))


def filled(given: dict[str, Any], got: list[str]) -> dict[str, Any]:
    """Return arguments with the results that they need."""
    for number, text in enumerate(got, 1):
        given = {key: v.replace(f"<{number}>", text) if isinstance(v, str) else v for key, v in given.items()}
    return given


async def task_done(folder: Path, who: str, task: str, choice: str, window: int) -> tuple[list[list[Call]], str, int]:
    """Do a task as a client; return the calls that it gets in each round, the answer, and the largest prompt."""
    tools = [*TOOLS, *tools_of_mcp_servers()]
    messages: list[Message] = [{"role": "user", "content": task}]
    rounds: list[list[Call]] = []
    async with small_window(folder, does_tasks, **{**settings(choice), "window": window}) as (served, studio):
        while True:
            chunks = chunks_of(await stream_bytes(served, chat_body(model=who, tools=tools, messages=messages)))
            if finish_of(chunks) == "stop":
                return rounds, text_of(chunks), max(chat.counted_tokens or 0 for chat in studio.chats)
            rounds.append([(call["name"], json.loads(call["arguments"])) for call in calls_of(chunks)])
            messages = followed(messages, chunks)
            for number, (name, given) in enumerate(reversed(rounds[-1]), 1):
                messages[-number]["content"] = f"Result of {name}({given['query']})"


@pytest.mark.slow
@pytest.mark.parametrize("who", ["writer", pytest.param(RAW_MODEL, marks=pytest.mark.long)])
@pytest.mark.parametrize("task", sample(TASKS, *VARIED))
async def test_the_same_tasks_with_whole_tools_and_by_name(tmp_path: Path, who: str, task: str) -> None:
    """Beside each other, the client gets the same calls in the same rounds, and the same answer, in a small window."""
    (whole := tmp_path / "whole").mkdir()
    rounds, answer, most = await task_done(whole, who, task, 'client_tools = "pass"', 4 * WINDOW)
    by_name, same, least = await task_done(tmp_path, who, task, BY_NAME, WINDOW)
    assert [[name for name, _ in calls] for calls in rounds] == [[name for name, _ in calls] for calls in TASKS[task]]
    assert (by_name, same) == (rounds, answer)
    assert least < most / 4


async def test_the_error_says_where_to_switch_it_on(tmp_path: Path) -> None:
    """Tools that do not fit are refused with the setting that makes them fit, and with that they do."""
    body = chat_body(model=RAW_MODEL, tools=TOOLS)
    async with small_window(tmp_path, window=2048) as (served, _):
        status, answer = await ask_whole(served, body)
        assert status == 400
        assert 'set client_tools = "search" under [server] of the settings' in answer["error"]["message"]
        assert "`elbowroom connect open-webui --tools off`" in answer["error"]["message"]
    async with small_window(tmp_path, window=2048, server=BY_NAME) as (served, _):
        status, answer = await ask_whole(served, body)
        assert status == 200, answer
