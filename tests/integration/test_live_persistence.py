"""What a turn leaves of itself, however it ends: every message, in the order in which a model reads them."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from chatting import RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, eventually, function_spec, stream_bytes
from own_tools import own_tool
from read_conversations import all_kept, kept_of, of_turns, once_kept, told
from serving import Served, text_of
from spread_variants import spread

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.context.conversation import Conversation
from elbowroom.demo import Cut, Error, Reasoning, Reply, Script, SimulatedLMStudio, ToolCall, WaitFor
from elbowroom.demo.journal import RecordedRequest
from elbowroom.server.state import SHARED

MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
SYSTEM = {"role": "system", "content": "Be kind."}
gate = asyncio.Event()


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"The note {path} says: water the plants."


@own_tool
async def wait_long() -> str:
    """Wait until the test says so."""
    await gate.wait()
    return "Waited."


def toolbox(target: Target) -> Sequence[ServerTool]:
    """Give every agent the same tools."""
    return [read_note, wait_long] if target.agent else []


@pytest.fixture(autouse=True)
def _closed_gate() -> None:
    gate.clear()


def tooled(folder: Path, **options: Any) -> AbstractAsyncContextManager[tuple[Served, SimulatedLMStudio]]:
    """Run elbowroom with these tools in front of a simulated LM Studio."""
    return elbowroom_with_studio(folder, toolbox=toolbox, **options)


def prompt_of(chat: RecordedRequest) -> int:
    """Return how many tokens the engine has read."""
    assert chat.prompt_tokens is not None
    return chat.prompt_tokens


def statuses(conversation: Conversation) -> list[str]:
    """Return how each message of a turn has ended."""
    return [kept.status for kept in of_turns(conversation)]


async def ask(served: Served, *messages: Any, model: str = "writer", **fields: Any) -> str:
    """Ask for a stream and return its text."""
    body = {"model": model, "messages": list(messages), **fields}
    return text_of(chunks_of(await stream_bytes(served, body)))


def user(text: str) -> dict[str, str]:
    """Return what a person says."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    """Return what an assistant says."""
    return {"role": "assistant", "content": text}


async def test_a_turn_with_tools_of_the_server(tmp_path: Path) -> None:
    """Replies, thoughts, calls and results are kept as the model has them in its next prompt."""
    async with tooled(tmp_path) as (served, studio):
        calls = [ToolCall("read_note", {"path": "a"}), ToolCall("read_note", {"path": "b"})]
        studio.enqueue(Script(Reasoning("Hm."), "Reading.", *calls), Script(ToolCall("no_such_tool")), "Done.")
        assert await ask(served, SYSTEM, user("Go.")) == "Reading.\n\nDone."
        kept = await kept_of(served)
        sent = studio.chats[-1].body["messages"]
        assert [message.message for message in kept.messages[:2]] == [SYSTEM, user("Go.")]
        of_turn = of_turns(kept)
        assert {message.message.get("tool_call_id") for message in of_turn[1:3]} == {
            call["id"] for call in of_turn[0].message["tool_calls"]
        }
        by_id = {message.get("tool_call_id"): message for message in sent}
        for message in of_turn[:-1]:
            if message.message["role"] == "tool":
                assert message.message["content"] == by_id[message.message["tool_call_id"]]["content"]
        assert [message.message["role"] for message in of_turn] == [
            "assistant",
            "tool",
            "tool",
            "assistant",
            "tool",
            "assistant",
        ]
        assert [message.message["content"] for message in of_turn if message.message["role"] == "assistant"] == [
            "Reading.",
            "",
            "Done.",
        ]
        assert of_turn[0].reasoning == "Hm."
        assert statuses(kept) == ["complete"] * 6


OF_A_MESSAGE = 16  # what a message of one word takes, and the beginning of an answer to it


@MODELS
async def test_usage_adds_up(tmp_path: Path, model: str) -> None:
    """The totals are the sums of what the engine has reported of each step; the fill is that of the next prompt."""
    async with tooled(tmp_path) as (served, studio):
        if model == "writer":
            studio.enqueue(Script(ToolCall("read_note", {"path": "a"})))
        studio.enqueue("Done.", "Again.")
        said = await ask(served, user("Go."), model=model)
        await ask(served, user("Go."), assistant(said), user("And again."), model=model)
        kept = await kept_of(served)
        totals, fill = kept.row.totals, kept.row.fill
        assert totals.steps == len(studio.chats)
        assert not totals.usage.is_counted
        assert totals.usage.total == sum(map(prompt_of, studio.chats)) + sum(
            chat.completion_tokens for chat in studio.chats
        )
        assert totals.usage.output == sum(chat.completion_tokens for chat in studio.chats)
        assert fill is not None
        last = studio.chats[-1]
        assert abs(fill.tokens - prompt_of(last) - last.completion_tokens) <= OF_A_MESSAGE
        assert fill.window == 32_768
        assert fill.trigger < fill.stop_at < fill.window


@pytest.mark.fault("wrong usage", ("streaming", "tool"), "counted here")
@MODELS
async def test_usage_is_counted_where_none_is_reported(tmp_path: Path, model: str) -> None:
    """An engine that says nothing, or cannot mean what it says, costs no number."""
    async with tooled(tmp_path) as (served, studio):
        studio.enqueue(Script("One two three.", usage=None), Script("Four.", usage={"prompt_tokens": -4}))
        said = await ask(served, user("Go."), model=model)
        await ask(served, user("Go."), assistant(said), user("And again."), model=model)
        usage = (await kept_of(served)).row.totals.usage
        assert usage.is_counted
        prompts = sum(map(prompt_of, studio.chats))
        assert abs(usage.input - prompts) <= prompts // 4
        assert 4 <= usage.output <= 12


@pytest.mark.fault("client leaves", "streaming", "words kept as interrupted")
@MODELS
async def test_a_client_that_leaves(tmp_path: Path, model: str) -> None:
    """What was said until then is kept as interrupted, also the words that were still on their way."""
    async with tooled(tmp_path) as (served, studio):
        held = asyncio.Event()
        studio.enqueue(Script("The first words.", WaitFor(held), "Never said."))
        body = {**chat_body("Go.", model=model), "stream": True}
        async with aiohttp.ClientSession() as http:
            response = await http.post(served.chat_url, json=body)
            received = b""
            while b"words" not in received:
                received += await response.content.readany()
            response.close()
        await eventually(lambda: studio.open_requests == 0, "the upstream is not closed")
        kept = await kept_of(served)
        assert told(kept) == [("user", "Go."), ("assistant", "The first words.")]
        assert statuses(kept) == ["interrupted"]
        held.set()


async def test_a_client_that_leaves_in_a_tool(tmp_path: Path) -> None:
    """The call is kept, and no result of it; the text before it is whole."""
    async with tooled(tmp_path) as (served, studio):
        studio.enqueue(Script("Waiting.", ToolCall("wait_long")))
        asking = asyncio.create_task(ask(served, user("Go.")))
        await eventually(lambda: studio.chats and not studio.open_requests, "the model has not called")
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.wait([asking])
        gate.set()
        kept = await kept_of(served)
        assert told(kept) == [("user", "Go."), ("assistant", "Waiting.")]
        assert len(of_turns(kept)[0].message["tool_calls"]) == 1


@pytest.mark.parametrize(("model", "end"), spread(["writer", RAW_MODEL], [Error("out of memory"), Cut()]))
async def test_an_engine_that_fails_in_mid_stream(tmp_path: Path, model: str, end: Error | Cut) -> None:
    """The words that the client has got are kept, as interrupted."""
    async with tooled(tmp_path) as (served, studio):
        await served.app[SHARED].store.ready()  # words that wait for it to open are lost when the connection breaks
        studio.enqueue(Script("The first words.", end))
        received = await stream_bytes(served, chat_body("Go.", model=model))
        assert b"error" in received
        kept = await kept_of(served)
        assert told(kept) == [("user", "Go."), ("assistant", "The first words.")]
        assert statuses(kept) == ["interrupted"]
        assert kept.row.totals.usage.is_counted
        assert kept.row.totals.usage.output > 0


@MODELS
async def test_a_request_that_is_refused(tmp_path: Path, model: str) -> None:
    """Nothing was said: there is the question, and no empty answer."""
    async with tooled(tmp_path) as (served, studio):
        studio.enqueue(Script(Reply(400, {"error": "No."})), when=lambda body: True, repeat=True)
        await served.chat(model, "Go.")
        kept = await kept_of(served)
        assert told(kept) == [("user", "Go.")]
        assert kept.row.totals.steps == 0


async def test_tools_of_the_client(tmp_path: Path) -> None:
    """A call that the client runs ends the turn; its results come with the next one, and nothing stands twice."""
    async with tooled(tmp_path) as (served, studio):
        tools = [function_spec("open_file")]
        studio.enqueue(Script("Opening.", ToolCall("open_file", {"path": "a"})), "It is empty.")
        answer = await served.chat("writer", "Go.", tools=tools)
        said = answer["choices"][0]["message"]
        result = {"role": "tool", "tool_call_id": said["tool_calls"][0]["id"], "content": ""}
        await ask(served, user("Go."), said, result, tools=tools)
        kept = await kept_of(served)
        assert told(kept) == [("user", "Go."), ("assistant", "Opening."), ("tool", ""), ("assistant", "It is empty.")]
        assert [bool(message.turn) for message in kept.messages] == [False, True, False, True]
        assert statuses(kept) == ["complete", "complete"]


async def test_retries_and_edits(tmp_path: Path) -> None:
    """Asked again the conversation has one more answer; an edited question is one more question."""
    async with tooled(tmp_path) as (served, studio):
        studio.enqueue("One.", "Two.", "Three.", "Four.")
        await ask(served, SYSTEM, user("First."))
        before = [SYSTEM, user("First."), assistant("One.")]
        for question in ("Second.", "Second.", "Second, edited."):
            await ask(served, *before, user(question))
        kept = await kept_of(served)
        assert told(kept) == [
            ("system", "Be kind."),
            ("user", "First."),
            ("assistant", "One."),
            ("user", "Second."),
            ("assistant", "Two."),
            ("assistant", "Three."),
            ("user", "Second, edited."),
            ("assistant", "Four."),
        ]


async def test_tasks_are_no_conversation(tmp_path: Path) -> None:
    """A request for a title leaves nothing."""
    async with tooled(tmp_path) as (served, studio):
        studio.enqueue("A title")
        await stream_bytes(served, chat_body("Give it a title."), **{"X-Elbowroom-Task": "title"})
        assert await all_kept(served) == []


async def test_a_server_that_stops(tmp_path: Path) -> None:
    """The answer that it ends is kept as far as it has come."""
    async with tooled(tmp_path) as (served, studio):
        held = asyncio.Event()
        studio.enqueue(Script("The first words.", WaitFor(held)))
        asking = asyncio.create_task(stream_bytes(served, chat_body("Go.")))
        await once_kept(served, lambda kept: told(kept)[-1] == ("assistant", "The first words."))
        await served.app.shutdown()
        assert b"server_stopping" in await asking
        kept = await kept_of(served)
        assert told(kept) == [("user", "Go."), ("assistant", "The first words.")]
        assert statuses(kept) == ["interrupted"]
        held.set()


async def test_words_are_kept_while_the_model_pauses(tmp_path: Path) -> None:
    """All that was said before a long pause can be read in it, and is marked as being said."""
    async with tooled(tmp_path) as (served, studio):
        held = asyncio.Event()
        words = "word " * 100
        studio.enqueue(Script(words, WaitFor(held), "End."))
        asking = asyncio.create_task(ask(served, user("Go.")))
        kept = await once_kept(served, lambda kept: told(kept)[-1] == ("assistant", words))
        assert statuses(kept) == ["streaming"]
        held.set()
        assert await asking == f"{words}End."
        assert told(await kept_of(served))[-1] == ("assistant", f"{words}End.")
