"""Runs whose model would call tools for ever: they end with what there is, and say so."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from chatting import (
    AGENT,
    AGENT_WITHOUT_CACHE,
    calls_of,
    chat_body,
    chunks_of,
    elbowroom_with_studio,
    finish_of,
    function_spec,
    stream_bytes,
)
from own_tools import own_tool
from serving import text_of
from small_window import orders_of, small_window, turns_of

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Script, SimulatedLMStudio, ToolCall
from elbowroom.errors import ElbowroomError

THREE = f"{AGENT}max_turns = 3\n"
LOOK = ToolCall("look", {"path": "a.md"})
FAIL = ToolCall("fail", {"reason": "locked"})


@partial(own_tool, kind="read")
async def look(path: str) -> str:
    """Look at something."""
    return f"{path} is there."


@own_tool
async def fail(reason: str) -> str:
    """Fail."""
    raise ElbowroomError(f"It is {reason}.")


def toolbox(target: Target) -> Sequence[ServerTool]:
    """Give everybody a tool that works and one that does not."""
    return [look, fail]


def last_result(studio: SimulatedLMStudio) -> str:
    """Return what the last tool call gave, as the model got it."""
    content = studio.chats[-1].body["messages"][-1]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
async def test_max_turns(tmp_path: Path, stream: bool) -> None:
    """The text so far stays, a paragraph behind it says what was done and how to go on, and `length` is the reason."""
    async with elbowroom_with_studio(tmp_path, agents=THREE, toolbox=toolbox) as (served, studio):
        studio.enqueue(Script("Again.", LOOK), repeat=True)
        if stream:
            chunks = chunks_of(await stream_bytes(served, chat_body()))
            text, finish = text_of(chunks), finish_of(chunks)
        else:
            [choice] = (await served.chat("writer"))["choices"]
            text, finish = choice["message"]["content"], choice["finish_reason"]
        assert text == (
            "Again.\n\nAgain.\n\nAgain.\n\n[Stopped after 3 model calls without finishing. "
            "Done so far: read 1 file: a.md. Ask me to go on, or raise max_turns of the agent writer.]"
        )
        assert finish == "length"
        assert len(studio.chats) == 3


async def test_max_turns_of_one(tmp_path: Path) -> None:
    """With one call that says nothing but runs tools, the paragraph is the whole answer."""
    async with elbowroom_with_studio(tmp_path, agents=f"{AGENT}max_turns = 1\n", toolbox=toolbox) as (served, studio):
        studio.enqueue(Script(LOOK, FAIL, LOOK))
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert text_of(chunks).startswith("[Stopped after 1 model call without finishing. Done so far: read 1 file: ")
        assert "1 of these failed" in text_of(chunks)
        assert len(studio.chats) == 1


async def test_answer_in_the_last_turn(tmp_path: Path) -> None:
    """A run that has finished by its last turn is whole: nothing is added to it."""
    async with elbowroom_with_studio(tmp_path, agents=THREE, toolbox=toolbox) as (served, studio):
        studio.enqueue(Script(LOOK), Script(LOOK), "It is there.")
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert text_of(chunks) == "It is there."
        assert finish_of(chunks) == "stop"


async def test_client_call_in_the_last_turn(tmp_path: Path) -> None:
    """A client's tool called in the last turn is handed to the client."""
    async with elbowroom_with_studio(tmp_path, agents=f"{AGENT}max_turns = 1\n", toolbox=toolbox) as (served, studio):
        studio.enqueue(Script(ToolCall("of_client", {})))
        chunks = chunks_of(await stream_bytes(served, chat_body(tools=[function_spec("of_client")])))
        assert [call["name"] for call in calls_of(chunks)] == ["of_client"]
        assert finish_of(chunks) == "tool_calls"


async def test_usage_counts_the_models_steps_only(tmp_path: Path) -> None:
    """The paragraph is no step of the model."""
    async with elbowroom_with_studio(tmp_path, agents=THREE, toolbox=toolbox) as (served, studio):
        studio.enqueue(Script(LOOK), repeat=True)
        usage = (await served.chat("writer"))["usage"]
        assert usage["elbowroom"]["steps"] == 3
        assert usage["prompt_tokens"] == studio.chats[-1].prompt_tokens


@pytest.mark.fault("bad arguments of a tool", "tool", "six repetitions at most")
async def test_the_same_failing_call(tmp_path: Path) -> None:
    """From the third time on its error says that it fails again and again; after the sixth the run ends."""
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        studio.enqueue(Script("Once more.", FAIL, FAIL), repeat=True)
        chunks = chunks_of(await stream_bytes(served, chat_body()))
        assert len(studio.chats) == 6
        results = [message["content"] for message in studio.chats[-1].body["messages"] if message["role"] == "tool"]
        assert results[3] == "Error: It is locked."
        assert "has failed 3 times" in results[4]
        assert "has failed 5 times" in results[9]
        assert "[Stopped: the same call of fail has failed 6 times. Done so far: 12 " in text_of(chunks)
        assert finish_of(chunks) == "length"


@pytest.mark.parametrize("call", [ToolCall("look", '{"at": '), ToolCall("invented", {})], ids=["broken", "unknown"])
async def test_calls_that_cannot_be_made(tmp_path: Path, call: ToolCall) -> None:
    """Arguments that are no JSON, and tools that do not exist, are failures as well."""
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        studio.enqueue(Script(call), repeat=True)
        assert f"the same call of {call.name} has failed 6 times" in text_of(
            chunks_of(await stream_bytes(served, chat_body()))
        )
        assert len(studio.chats) == 6


async def test_failures_with_work_in_between(tmp_path: Path) -> None:
    """A call that fails again after something else has worked is tried anew: tests are run until they pass."""
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        studio.enqueue(*[Script(FAIL), Script(LOOK)] * 7, "It passes.")
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "It passes."
        assert all("times" not in str(chat.body["messages"]) for chat in studio.chats)


async def test_other_arguments_are_another_call(tmp_path: Path) -> None:
    """A model that looks for a way through its failures is not stopped."""
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox) as (served, studio):
        tries = [Script(ToolCall("fail", {"reason": f"locked by {number}"})) for number in range(8)]
        studio.enqueue(*tries, "I give up.")
        assert text_of(chunks_of(await stream_bytes(served, chat_body()))) == "I give up."
        assert last_result(studio) == "Error: It is locked by 7."


@pytest.mark.slow
async def test_going_on_after_a_stop(tmp_path: Path) -> None:
    """What was compacted on the way is there when the person says "go on", each call with its result."""

    @own_tool
    async def read_note(number: int) -> str:
        """Read a long note."""
        return f"Note {number}. " + "The boat was half full, the sea was calm and the engine ran well. " * 25

    def model(body: dict[str, Any]) -> Script | str:
        if body["messages"][-1]["content"] == "Go on.":
            return "Everything is read."
        number = sum(message["role"] == "tool" for message in body["messages"])
        return Script("Reading.", ToolCall("read_note", {"number": number}))

    agents, compaction = f"{AGENT_WITHOUT_CACHE}max_turns = 9\n", "background = false"
    async with small_window(
        tmp_path, model, window=4096, agents=agents, compaction=compaction, toolbox=lambda target: [read_note]
    ) as (served, studio):
        body = chat_body("Read all notes.")
        said = text_of(chunks_of(await stream_bytes(served, body)))
        assert "[Stopped after 9 model calls" in said
        assert orders_of(studio)
        asked = [*body["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "Go on."}]
        assert text_of(chunks_of(await stream_bytes(served, {**body, "messages": asked}))) == "Everything is read."
        sent = turns_of(studio)[-1].body["messages"]
        assert sent != asked
        called = [call["id"] for message in sent for call in message.get("tool_calls") or ()]
        assert called == [message["tool_call_id"] for message in sent if message["role"] == "tool"]
        assert called
        assert "[Stopped after 9 model calls" in sent[-2]["content"]
        assert sent[-1] == asked[-1]
