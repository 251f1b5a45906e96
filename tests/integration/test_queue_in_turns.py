"""Messages that reach a turn while it runs: at its next step or behind its answer, and never anywhere else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chatting import (
    MODEL,
    RAW_MODEL,
    calls_of,
    chat_body,
    elbowroom_with_studio,
    eventually,
    finish_of,
    function_spec,
)
from own_tools import own_tool
from queueing import NAME, NAMED, answering, call, chunks, notices_of, said_by_user, say, waiting
from read_conversations import conversations_of
from serving import Served, text_of

from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations.beginning import new_id
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Error, Script, SimulatedLMStudio, ToolCall, WaitFor
from elbowroom.server.state import SHARED

MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
Pair = tuple[Served, SimulatedLMStudio]


class SlowTool:
    """A tool that takes until the test lets it end."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.may_end = asyncio.Event()

    def toolbox(self, target: Target) -> Sequence[ServerTool]:
        """Give it to every agent."""

        async def read_log(month: str) -> str:
            """Read a log."""
            self.calls.append(month)
            await self.may_end.wait()
            return f"The log of {month} is empty."

        return [own_tool(read_log)] if target.agent else []


@pytest.fixture
def tool() -> SlowTool:
    """Return the slow tool."""
    return SlowTool()


@pytest.fixture
async def pair(tmp_path: Path, tool: SlowTool) -> AsyncIterator[Pair]:
    """Run elbowroom with an agent that has the slow tool."""
    async with elbowroom_with_studio(tmp_path, toolbox=tool.toolbox) as pair:
        yield pair


def log_of(month: str) -> Script:
    """Return a reply that calls the slow tool."""
    return Script(ToolCall("read_log", {"month": month}))


async def test_into_a_running_tool_loop(pair: Pair, tool: SlowTool) -> None:
    """What steers is read with the tool's result, behind it, and stays there in all later steps."""
    served, studio = pair
    studio.enqueue(log_of("April"), log_of("May"), "Both are empty.")
    async with answering(served, chat_body("Check the logs.")) as answer:
        await eventually(lambda: tool.calls, "the tool is not called")
        accepted = await say(served, "also check May")
        assert accepted["position"] == 1
        assert accepted["running"] is True
        assert accepted["mode"] == "steer"
        tool.may_end.set()
        said = await answer
    assert notices_of(said) == ["Taken in: also check May"]
    assert text_of(said) == "Both are empty."
    first, second, third = (chat.body["messages"] for chat in studio.chats)
    assert [message["role"] for message in second[len(first) :]] == ["assistant", "tool", "user"]
    assert second[-1] == {"role": "user", "content": "also check May"}
    assert third[: len(second)] == second
    assert [message["role"] for message in third[len(second) :]] == ["assistant", "tool"]


async def test_what_follows_waits_for_the_answer(pair: Pair, tool: SlowTool) -> None:
    """A follow-up is read once the answer has ended, behind it; what steers comes before, also where it came later."""
    served, studio = pair
    studio.enqueue(log_of("April"), "April is empty.", "And so is May.")
    async with answering(served, chat_body("Check the log.")) as answer:
        await eventually(lambda: tool.calls, "the tool is not called")
        await say(served, "Then check May", "follow_up")
        await say(served, "Be brief")
        tool.may_end.set()
        said = await answer
    assert notices_of(said) == ["Taken in: Be brief", "Taken in: Then check May"]
    assert text_of(said) == "April is empty.\n\nAnd so is May."
    assert finish_of(said) == "stop"
    _, second, third = (chat.body["messages"] for chat in studio.chats)
    assert said_by_user(second) == ["Check the log.", "Be brief"]
    assert third == [
        *second,
        {"role": "assistant", "content": "April is empty."},
        {"role": "user", "content": "Then check May"},
    ]


@MODELS
async def test_while_an_answer_streams(pair: Pair, model: str) -> None:
    """An answer ends as it would; what was said meanwhile is answered behind a blank line, as often as it comes."""
    served, studio = pair
    first, second = asyncio.Event(), asyncio.Event()
    studio.enqueue(Script("One. ", WaitFor(first), "Two."), Script("Three.", WaitFor(second)), "Four.")
    async with answering(served, chat_body("Count.", model=model)) as answer:
        await eventually(lambda: studio.chats and studio.chats[0].completion_tokens, "nothing is said")
        await say(served, "Go on")
        first.set()
        await eventually(lambda: len(studio.chats) == 2, "the model is not asked again")
        await say(served, [{"type": "text", "text": "One more"}], "follow_up")
        second.set()
        said = await answer
    assert text_of(said) == "One. Two.\n\nThree.\n\nFour."
    assert notices_of(said) == ["Taken in: Go on", "Taken in: One more"]
    last = studio.chats[2].body["messages"][-5:]
    assert [message["role"] for message in last] == ["user", "assistant", "user", "assistant", "user"]
    assert said_by_user(last) == ["Count.", "Go on", [{"type": "text", "text": "One more"}]]
    assert await waiting(served) == []


@MODELS
async def test_without_streaming_it_is_just_answered(pair: Pair, model: str) -> None:
    """The one text has the answers to all that was said."""
    served, studio = pair
    is_said = asyncio.Event()
    studio.enqueue(Script("One.", WaitFor(is_said)), "Two.")

    async def ask() -> Any:
        async with served.http.post(served.chat_url, json=chat_body(model=model), headers=NAMED) as response:
            return await response.json()

    asking = asyncio.create_task(ask())
    await eventually(lambda: studio.chats, "the model is not asked")
    await say(served, "Go on")
    is_said.set()
    answer = await asking
    assert answer["choices"][0]["message"]["content"] == "One.\n\nTwo."
    assert answer["usage"]["elbowroom"]["steps"] == 2


@MODELS
async def test_an_idle_conversation_reads_it_with_the_next_request(pair: Pair, model: str) -> None:
    """All that waits is read behind the client's new message, in the order in which it came, whatever its mode."""
    served, studio = pair
    studio.enqueue("Hello.", "All of it.")
    await chunks(served, chat_body(model=model))
    for text, mode in (("one", "follow_up"), ("two", "steer"), ("three", "follow_up")):
        assert (await say(served, text, mode))["running"] is False
    assert await waiting(served) == ["one", "two", "three"]
    said = await chunks(served, chat_body("Now?", model=model))
    assert text_of(said) == "All of it."
    assert notices_of(said) == ["Taken in: one", "Taken in: two", "Taken in: three"]
    assert said_by_user(studio.chats[1].body["messages"])[-4:] == ["Now?", "one", "two", "three"]
    assert await waiting(served) == []


@MODELS
async def test_calls_for_the_client_come_first(pair: Pair, model: str) -> None:
    """Where the client is to run tools its request ends, and what waits is read behind their results; then the rest."""
    served, studio = pair
    is_said = asyncio.Event()
    studio.enqueue(Script(WaitFor(is_said), ToolCall("open_file", {"path": "a"})), "Opened.", "Done.")
    body = chat_body("Open a.", model=model, tools=[function_spec("open_file")])
    async with answering(served, body) as answer:
        await eventually(lambda: studio.chats, "the model is not asked")
        await say(served, "and b", "follow_up")
        await say(served, "quickly")
        is_said.set()
        said = await answer
    [made] = calls_of(said)
    assert finish_of(said) == "tool_calls"
    assert notices_of(said) == []
    assert await waiting(served) == ["and b", "quickly"]
    call_made = {"id": made["id"], "type": "function", "function": {"name": "open_file", "arguments": '{"path": "a"}'}}
    body["messages"] += [
        {"role": "assistant", "content": "", "tool_calls": [call_made]},
        {"role": "tool", "tool_call_id": made["id"], "content": "It is open."},
    ]
    said = await chunks(served, body)
    assert text_of(said) == "Opened.\n\nDone."
    assert [message["role"] for message in studio.chats[1].body["messages"][-2:]] == ["tool", "user"]
    assert said_by_user(studio.chats[1].body["messages"]) == ["Open a.", "quickly"]
    assert said_by_user(studio.chats[2].body["messages"]) == ["Open a.", "quickly", "and b"]


@MODELS
async def test_a_failure_before_the_first_word_gives_it_back(pair: Pair, model: str) -> None:
    """What no model has answered waits again, before what came later, and the next request reads it, once."""
    served, studio = pair
    studio.enqueue("Hello.", Script(Error("The engine is broken.")), "All of it.", "Yes?")
    await chunks(served, chat_body(model=model))
    await say(served, "one")
    await say(served, "two")
    async with served.http.post(served.chat_url, json=chat_body(model=model, stream=True), headers=NAMED) as response:
        assert b"error" in await response.read()
    assert await waiting(served) == ["one", "two"]
    await say(served, "three")
    said = await chunks(served, chat_body("Now?", model=model))
    assert text_of(said) == "All of it."
    contents = said_by_user(studio.chats[-1].body["messages"])
    assert contents[-3:] == ["one", "two", "three"]
    assert contents.count("one") == 1
    assert await waiting(served) == []


async def test_a_failure_after_the_first_word_does_not(pair: Pair, tool: SlowTool) -> None:
    """A model that has begun to answer has read it: it stands in the conversation, and does not come again."""
    served, studio = pair
    tool.may_end.set()
    studio.enqueue("Hello.", Script("I will", Error("The engine is broken.")), "Yes.")
    await chunks(served, chat_body())
    await say(served, "one")
    async with served.http.post(served.chat_url, json=chat_body(stream=True), headers=NAMED) as response:
        assert b"error" in await response.read()
    assert await waiting(served) == []
    said = await chunks(served, chat_body("Now?"))
    assert notices_of(said) == []


async def test_the_run_ends_where_its_steps_are_used_up(tmp_path: Path) -> None:
    """Steps that answer the queue count as all others; what is left waits for the next request."""
    agent = '[[agents]]\nid = "writer"\nmodel = "qwen2.5-7b-instruct"\nmax_turns = 2\n'
    async with elbowroom_with_studio(tmp_path, agents=agent) as (served, studio):
        first, second = asyncio.Event(), asyncio.Event()
        studio.enqueue(Script("One.", WaitFor(first)), Script("Two.", WaitFor(second)))
        async with answering(served, chat_body()) as answer:
            await eventually(lambda: studio.chats, "the model is not asked")
            await say(served, "a")
            first.set()
            await eventually(lambda: len(studio.chats) == 2, "the model is not asked again")
            await say(served, "b")
            second.set()
            said = await answer
        assert text_of(said) == "One.\n\nTwo."
        assert await waiting(served) == ["b"]


@MODELS
async def test_an_answer_that_has_to_be_json_stays_one(pair: Pair, model: str) -> None:
    """A second document would break the first: what waits is left to the next request."""
    served, studio = pair
    is_said = asyncio.Event()
    studio.enqueue(Script("{}", WaitFor(is_said)))
    form = {"type": "json_schema", "json_schema": {"name": "anything", "schema": {"type": "object"}}}
    body = chat_body(model=model, response_format=form)
    async with answering(served, body) as answer:
        await eventually(lambda: studio.chats, "the model is not asked")
        await say(served, "Go on")
        is_said.set()
        assert text_of(await answer) == "{}"
    assert await waiting(served) == ["Go on"]


async def test_a_title_does_not_take_what_the_chat_waits_for(pair: Pair) -> None:
    """Requests beside the conversation leave its queue alone."""
    served, studio = pair
    studio.enqueue("Hello.", "A title")
    await chunks(served, chat_body())
    await say(served, "one")
    async with served.http.post(
        served.chat_url, json=chat_body("### Task:\nGenerate a title."), headers={**NAMED, "X-Elbowroom-Task": "title"}
    ) as response:
        assert response.status == 200
    assert await waiting(served) == ["one"]
    assert len((await call(served, "DELETE"))["data"]) == 1


async def test_a_handover_keeps_what_was_taken_in(tmp_path: Path, tool: SlowTool) -> None:
    """The agent that goes on reads it where it was said, and what is said to it then too."""
    agents = (
        f'[[agents]]\nid = "writer"\nname = "The Writer"\nmodel = "{MODEL}"\nhandoffs = ["editor"]\n'
        f'[[agents]]\nid = "editor"\nname = "The Editor"\nmodel = "{MODEL}"\n'
    )
    async with elbowroom_with_studio(tmp_path, agents=agents, toolbox=tool.toolbox) as (served, studio):
        is_said = asyncio.Event()
        studio.enqueue(
            log_of("April"), Script(ToolCall("transfer_to_editor")), Script("Mine.", WaitFor(is_said)), "Yes."
        )
        async with answering(served, chat_body("Check the logs.")) as answer:
            await eventually(lambda: tool.calls, "the tool is not called")
            await say(served, "Be brief")
            tool.may_end.set()
            await eventually(lambda: len(studio.chats) == 3, "the other agent is not asked")
            await say(served, "Really?")
            is_said.set()
            assert text_of(await answer) == "Mine.\n\nYes."
        _, second, third, fourth = (chat.body["messages"] for chat in studio.chats)
        assert [message["role"] for message in third if message["role"] != "system"] == [
            *("user", "assistant", "tool", "user"),
            *("assistant", "tool"),
        ]
        assert said_by_user(second) == said_by_user(third) == ["Check the logs.", "Be brief"]
        assert said_by_user(fourth) == ["Check the logs.", "Be brief", "Really?"]


@pytest.mark.parametrize("model", [RAW_MODEL, "writer"])
async def test_message_for_an_answer_that_waits_for_a_change_is_kept(pair: Pair, model: str) -> None:
    """A change of the conversation is under way as an answer and a message come: what is told as stored is stored."""
    served, studio = pair
    shared, conversation = served.app[SHARED], new_id("", NAME)
    release = asyncio.Event()
    studio.enqueue(Script(WaitFor(release), "Hello."), "Yes.")
    async with shared.recording.locks.beside_answers(conversation):
        asking = asyncio.create_task(chunks(served, chat_body(model=model)))
        await eventually(lambda: shared.running.find("", NAME), "no answer begins")
        saying = asyncio.create_task(say(served, "Too early?"))
        await asyncio.wait([saying], timeout=0.3)
        assert not saying.done(), "it is accepted before anything of its conversation is noted"
    accepted = await saying
    kept = [item.message["content"] for item in await conversations_of(served).queue()]
    assert (accepted["stored"], kept) == (True, ["Too early?"])
    release.set()
    assert text_of(await asking).startswith("Hello.")
