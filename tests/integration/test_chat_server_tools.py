"""Tools that the server runs: several steps, and steps that call the client's tools too."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path

import pair_fixtures
import pytest
import pytest_asyncio
from agent_teams import results_of
from chatting import (
    READERS,
    calls_of,
    chat_body,
    chunks_of,
    elbowroom_with_studio,
    finish_of,
    function_spec,
    split_frames,
    stream_bytes,
)
from own_tools import own_tool
from pair_fixtures import Pair
from serving import text_of
from spread_variants import spread

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Error, Pause, Reasoning, Script, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
pair = pair_fixtures.pair
ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    ran.append(path)
    return f"The note {path} says: water the plants."


@own_tool
async def fail(reason: str) -> str:
    """Fail."""
    raise ValueError(reason)


@partial(own_tool, name="vault.list")
async def list_vault() -> list[str]:
    """List notes."""
    ran.append("list")
    return ["a.md", "b.md"]


def toolbox(target: Target) -> Sequence[ServerTool]:
    """Give every agent the same tools."""
    return [read_note, fail, list_vault] if target.agent else []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom with these tools in front of a simulated LM Studio."""
    async with elbowroom_with_studio(tmp_path_factory.mktemp("tools"), toolbox=toolbox) as both:
        yield both


async def test_tool_loop(pair: Pair) -> None:
    """The model's call is run on the server; its result goes back with the call, under one fresh id."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", {"path": "a.md"})), "Water them.")
    chunks = chunks_of(await stream_bytes(served, chat_body()))
    assert text_of(chunks) == "Water them."
    assert calls_of(chunks) == []
    assert finish_of(chunks) == "stop"
    assert ran == ["a.md"]
    first, second = studio.chats
    call, result = second.body["messages"][len(first.body["messages"]) :]
    [made] = call["tool_calls"]
    assert made["function"] == {"name": "read_note", "arguments": '{"path": "a.md"}'}
    assert result["role"] == "tool"
    assert result["tool_call_id"] == made["id"]
    assert result["content"] == "The note a.md says: water the plants."
    assert len(made["id"]) == 9


async def test_every_step_sends_the_same_beginning(pair: Pair) -> None:
    """One upstream request per step; each repeats the one before it byte by byte and adds to it, tools included."""
    served, studio = pair
    steps = [Script(Reasoning("Hm."), "Reading. ", ToolCall("read_note", {"path": str(n)})) for n in range(4)]
    studio.enqueue(*steps, "Done.")
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Go."}]
    await stream_bytes(served, {"model": "writer", "messages": messages, "tools": [function_spec("client")]})
    assert len(studio.chats) == 5
    for before, after in zip(studio.chats, studio.chats[1:], strict=False):
        count = len(before.body["messages"])
        assert json.dumps(after.body["messages"][:count]) == json.dumps(before.body["messages"])
        assert len(after.body["messages"]) == count + 2
        assert after.body["tools"] == before.body["tools"]
    names = [tool["function"]["name"] for tool in studio.chats[0].body["tools"]]
    assert names == ["read_note", "fail", "vault.list", *READERS, "client"]


async def test_text_calls_and_thoughts_of_a_step_are_one_message(pair: Pair) -> None:
    """What the model said goes back with its calls in one message: two in a row break chat templates."""
    served, studio = pair
    calls = [ToolCall("read_note", {"path": "a"}), ToolCall("read_note", {"path": "b"})]
    studio.enqueue(Script(Reasoning("Hm."), "Reading.", *calls), "Done.")
    await stream_bytes(served, chat_body())
    *_, said, first, second = studio.chats[1].body["messages"]
    assert said["role"] == "assistant"
    assert said["content"] == "Reading."
    assert [call["id"] for call in said["tool_calls"]] == [first["tool_call_id"], second["tool_call_id"]]
    assert "note a says" in first["content"]
    assert "note b says" in second["content"]


async def test_text_of_later_steps_begins_after_a_blank_line(pair: Pair) -> None:
    """Sentences and thoughts of two steps do not run into each other, streamed or not."""
    served, studio = pair
    steps = (Script(Reasoning("Look."), "Reading.", ToolCall("vault.list")), Script(Reasoning("So."), "Done."))
    studio.enqueue(*steps, *steps)
    chunks = chunks_of(await stream_bytes(served, chat_body()))
    assert text_of(chunks) == "Reading.\n\nDone."
    thoughts = [chunk["choices"][0]["delta"].get("reasoning_content", "") for chunk in chunks]
    assert "".join(thoughts) == "Look.\n\nSo."
    message = (await served.chat("writer"))["choices"][0]["message"]
    assert message["content"] == "Reading.\n\nDone."
    assert message["reasoning_content"] == "Look.\n\nSo."


@pytest.mark.fault("odd tool calls", "tool", "pairs stay pairs")
@pytest.mark.parametrize("call_id", ["call_0", "0", ""])
async def test_upstream_ids_that_restart_in_every_step(pair: Pair, call_id: str) -> None:
    """`call_0` in each step and in the client's history: all pairs stay pairs, and no result is lost."""
    old = {"id": "call_0", "type": "function", "function": {"name": "read_note", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Earlier."},
        {"role": "assistant", "content": None, "tool_calls": [old]},
        {"role": "tool", "tool_call_id": "call_0", "content": "old result"},
        {"role": "user", "content": "Now."},
    ]
    served, studio = pair
    studio.enqueue(*(Script(ToolCall("read_note", {"path": name}, id=call_id)) for name in "ab"), "Done.")
    await stream_bytes(served, {"model": "writer", "messages": history})
    assert ran == ["a", "b"]
    messages = studio.chats[2].body["messages"]
    assert messages[1:5] == history
    first_call, first, second_call, second = messages[5:]
    assert first_call["tool_calls"][0]["id"] == first["tool_call_id"]
    assert second_call["tool_calls"][0]["id"] == second["tool_call_id"]
    assert len({first["tool_call_id"], second["tool_call_id"], "call_0"}) == 3
    assert "note a says" in first["content"]
    assert "note b says" in second["content"]


async def test_tool_that_raises(pair: Pair) -> None:
    """A tool's error is text for the model, and the run goes on."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("fail", {"reason": "the disk is full"})), "It is full.")
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "It is full."
    said = studio.chats[1].body["messages"][-1]["content"]
    assert said == "Error: fail failed: the disk is full. The same call would fail again."


async def test_unknown_tool_name(pair: Pair) -> None:
    """A tool that the model invented is answered with an error for the model, not with the end of the run."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("invented")), "I see.")
    chunks = chunks_of(await stream_bytes(served, chat_body()))
    assert text_of(chunks) == "I see."
    assert calls_of(chunks) == []
    assert "invented" in studio.chats[1].body["messages"][-1]["content"]


@pytest.mark.fault("bad arguments of a tool", "tool", "an error for the model")
@pytest.mark.parametrize("arguments", ['{"path": ', '{"path": "a', "", "[]", '{"path": 7}', "{'path': 7,}"])
async def test_arguments_that_do_not_fit(pair: Pair, arguments: str) -> None:
    """Arguments that have no end or are not what the tool takes become an error for the model, and the run goes on."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", arguments)), "Sorry.")
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Sorry."
    assert (results_of(studio.chats[1].body)[0].startswith("Error: "), ran) == (True, [])


@pytest.mark.parametrize("arguments", ["{'path': 'a'}", '{"path": "a",}', '{"path": "a"'])
async def test_arguments_that_are_repaired(pair: Pair, arguments: str) -> None:
    """A tool runs with arguments whose meaning is plain, and the model reads its call as it was repaired."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", arguments)), "Done.")
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Done."
    call, result = studio.chats[1].body["messages"][-2:]
    assert call["tool_calls"][0]["function"]["arguments"] == '{"path": "a"}'
    assert (result["content"], ran) == ("The note a says: water the plants.", ["a"])


@pytest.mark.parametrize(
    ("written", "times", "is_closed"),
    spread(["[", '{"path": [', '{"path": "a", "more": [', '{"path":{'], [100, 400, 5000], [True, False]),
)
async def test_arguments_that_never_stop_opening_brackets(
    pair: Pair, written: str, times: int, is_closed: bool
) -> None:
    """A model that repeats itself for ever reads that the arguments do not fit, and the answer goes on."""
    head, last = written[:-1], written[-1]
    arguments = head + last * times + ("]" * times if is_closed and last == "[" else "")
    arguments += "}" * head.startswith("{") * is_closed
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", arguments, pieces=in_pieces(arguments))), "Sorry.")
    assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Sorry."
    assert (results_of(studio.chats[-1].body)[0].startswith("Error: "), ran) == (True, [])


def in_pieces(arguments: str) -> list[str]:
    """Return arguments as an engine sends them that is faster than its client: forty characters at a time."""
    return [arguments[start : start + 40] for start in range(0, len(arguments), 40)]


async def test_brackets_within_a_text_are_no_nesting(tmp_path: Path) -> None:
    """A tool gets a long text with many of them as the model wrote it; behind the answer all that is compacted."""
    path = "[{" * 5000 + '"\\"'
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        called = ToolCall("read_note", pieces=in_pieces(json.dumps({"path": path})))
        studio.enqueue(Script(called), "Done.")
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "Done."
        assert ran == [path]


async def test_a_tool_that_cancels_itself_has_failed(tmp_path: Path) -> None:
    """The model is told as of any other failure, which counts, and the answer goes on."""

    @own_tool
    async def give_up() -> str:
        """Give up."""
        raise asyncio.CancelledError

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [give_up]) as (served, studio):
        studio.enqueue(*[Script(ToolCall("give_up", {}))] * 6)
        told = text_of(chunks_of(await stream_bytes(served, chat_body())))
        assert "the same call of give_up has failed 6 times" in told
        first, *_, last = results_of(studio.chats[-1].body)
        assert first == "Error: give_up was cancelled before it was done. It is not known what it has done."
        assert "This very call has failed 5 times now." in last


async def test_name_that_lm_studio_normalised(pair: Pair) -> None:
    """LM Studio writes `vault.list` as `vault_list`; the tool is found all the same."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("vault.list")), "Two notes.")
    await stream_bytes(served, chat_body())
    assert ran == ["list"]
    call, result = studio.chats[1].body["messages"][-2:]
    assert call["tool_calls"][0]["function"]["name"] == "vault.list"
    assert "a.md" in result["content"]


async def test_server_and_client_tools_in_one_step(pair: Pair) -> None:
    """The server's tool runs, the client's calls are handed back with indices of their own, and the run ends."""
    served, studio = pair
    calls = [ToolCall("client_a"), ToolCall("read_note", {"path": "a"}), ToolCall("client_b")]
    studio.enqueue(Script("Both.", *calls))
    tools = [function_spec("client_a"), function_spec("client_b")]
    chunks = chunks_of(await stream_bytes(served, chat_body(tools=tools)))
    assert [call["name"] for call in calls_of(chunks)] == ["client_a", "client_b"]
    assert finish_of(chunks) == "tool_calls"
    assert ran == ["a"]
    assert len(studio.chats) == 1


async def test_client_tool_after_server_tools(pair: Pair) -> None:
    """A client's call in a later step ends the run there; no token of what follows is asked for."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("read_note", {"path": "a"})), Script("Now you.", ToolCall("client_a")))
    chunks = chunks_of(await stream_bytes(served, chat_body(tools=[function_spec("client_a")])))
    assert text_of(chunks) == "Now you."
    assert [call["name"] for call in calls_of(chunks)] == ["client_a"]
    assert finish_of(chunks) == "tool_calls"
    assert len(studio.chats) == 2


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", ["read_note", "vault_list"])
async def test_client_tool_named_like_a_server_tool(pair: Pair, stream: bool, name: str) -> None:
    """Whose tool would run could not be told, so the request is refused; LM Studio writes `vault.list` so too."""
    served, studio = pair
    answer = await served.chat("writer", tools=[function_spec(name)], stream=stream)
    assert name in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"
    assert answer["error"]["param"] == "tools"
    assert studio.chats == []


async def test_forced_tool_choice_is_obeyed_once(pair: Pair) -> None:
    """`tool_choice: required` forces the first step only, else no answer could ever come."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("vault.list")), "Two.")
    await stream_bytes(served, chat_body(tool_choice="required"))
    assert [chat.body.get("tool_choice") for chat in studio.chats] == ["required", None]


@pytest.mark.fault("error in the stream", "tool", "words kept, error frame")
async def test_error_after_text_of_an_earlier_step(pair: Pair) -> None:
    """When a later step fails, what was said stays and one error frame follows."""
    served, studio = pair
    studio.enqueue(Script("Reading.", ToolCall("vault.list")), Script("Two", Pause(0.02), Error("Out of memory.")))
    *chunks, last = [json.loads(frame) for frame in split_frames(await stream_bytes(served, chat_body()))]
    assert text_of(chunks) == "Reading.\n\nTwo"
    assert "Out of memory." in last["error"]["message"]
    assert sum("error" in chunk for chunk in chunks) == 0


@pytest.mark.fault("empty answer", "tool", "no failure: the words before stand")
async def test_nothing_to_add_after_a_tool(pair: Pair) -> None:
    """A model that said its text before its tool ran may end with nothing: that is no failure."""
    served, studio = pair
    studio.enqueue(Script("I tidied up.", ToolCall("vault.list")), Script())
    chunks = chunks_of(await stream_bytes(served, chat_body()))
    assert text_of(chunks) == "I tidied up."
    assert finish_of(chunks) == "stop"


async def test_finish_of_the_last_step_counts(pair: Pair) -> None:
    """The finish_reason is that of the step that ended the run."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("vault.list")), Script("Two", finish_reason="length"))
    assert finish_of(chunks_of(await stream_bytes(served, chat_body()))) == "length"


async def test_usage_over_several_steps(pair: Pair) -> None:
    """Usage is the last step's, which is what fills the window; the sums over all steps stand beside it."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("vault.list")), "Two notes there are.")
    chunks = chunks_of(await stream_bytes(served, chat_body(stream_options={"include_usage": True})))
    [usage] = [chunk["usage"] for chunk in chunks if "usage" in chunk]
    first, last = studio.chats
    assert usage["prompt_tokens"] == last.prompt_tokens
    assert usage["completion_tokens"] == last.completion_tokens
    assert usage["elbowroom"] == {
        "steps": 2,
        "prompt_tokens": (first.prompt_tokens or 0) + (last.prompt_tokens or 0),
        "completion_tokens": first.completion_tokens + last.completion_tokens,
    }


async def test_parallel_tools_run_side_by_side(tmp_path: Path) -> None:
    """The calls of one step run at the same time."""
    meeting = asyncio.Barrier(2)

    @own_tool
    async def meet(name: str) -> str:
        """Wait for the other."""
        async with asyncio.timeout(60), meeting:
            return f"{name} met the other"

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [meet]) as (served, studio):
        studio.enqueue(Script(ToolCall("meet", {"name": "a"}), ToolCall("meet", {"name": "b"})), "Met.")
        await stream_bytes(served, chat_body())
        results = [message["content"] for message in studio.chats[1].body["messages"][-2:]]
        assert results == ["a met the other", "b met the other"]
