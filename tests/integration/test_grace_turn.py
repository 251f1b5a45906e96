"""An agent that was stopped may say in a few words what was done, and what was left undone."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cancelling import ask, assert_kept, assert_nothing_open, cancel, is_answering, last_turn, stopped_when
from chatting import AGENT, RAW_MODEL, chat_body, elbowroom_with_studio, eventually
from own_tools import own_tool
from request_checks import assert_fits, assert_paired
from serving import Served
from spread_variants import spread

from elbowroom.agents.turn import last_words as grace_turn
from elbowroom.agents.turn.last_words import MOST_TOKENS, NO_RESULT, ORDER
from elbowroom.demo import Error, Script, SimulatedLMStudio, ToolCall

LONG = "word " * 4000
WORDS = "I have looked at the pier. The list is not written."


def order_of(studio: SimulatedLMStudio) -> dict[str, Any]:
    """Return the body of the last request, which has to be the one for the last words."""
    chat = studio.chats[-1]
    assert_fits(chat)
    assert_paired(chat.body["messages"])
    assert chat.body["messages"][-1] == ORDER
    body: dict[str, Any] = chat.body
    return body


async def stopped_in_text(served: Served, studio: SimulatedLMStudio, last_words: Any, **fields: Any) -> Any:
    """Stop an answer in the middle of its text, where the model has these last words."""
    studio.tokens_per_second = 200
    studio.enqueue(LONG, last_words)
    return await stopped_when(served, chat_body(**fields), lambda: is_answering(served, studio), grace=True)


@pytest.mark.parametrize(("model", "stream"), spread(["writer", RAW_MODEL], [True, False]))
async def test_behind_the_text(tmp_path: Path, model: str, stream: bool) -> None:
    """One call, short and without tools, in the same answer after a blank line; the answer stays an interrupted one."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        received, answer = await stopped_in_text(served, studio, WORDS, model=model, stream=stream)
        assert (answer["cancelled"], answer["status"]) == (1, "idle")
        assert received.text.startswith("word")
        assert received.text.endswith(f"\n\n{WORDS}")
        assert received.finish == "stop"
        body = order_of(studio)
        assert body["messages"][-2]["content"].split()[0] == "word"
        assert body["max_tokens"] == MOST_TOKENS
        assert "tools" not in body
        assert len(studio.chats) == 2
        await assert_kept(served, received)
        assert {message.status for message in await last_turn(served)} == {"interrupted", "complete"}


async def test_behind_tools(tmp_path: Path) -> None:
    """The model reads what the tools have returned; the one that was stopped has no result."""
    began = asyncio.Event()

    @own_tool
    async def look() -> str:
        """Look at the pier."""
        return "The pier is open."

    @own_tool
    async def write() -> str:
        """Write the list."""
        began.set()
        await asyncio.sleep(60)
        return "written"

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [look, write]) as (served, studio):
        studio.enqueue(Script("I look.", ToolCall("look"), ToolCall("write")), WORDS)
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await began.wait()
        while len(await last_turn(served)) < 2:  # noqa: ASYNC110  # the result is kept, of which nobody is told
            await asyncio.sleep(0.005)
        await cancel(served, grace=True)
        received = await asking
        assert received.text == f"I look.\n\n{WORDS}"
        body = order_of(studio)
        results = [message["content"] for message in body["messages"] if message["role"] == "tool"]
        assert results == ["The pier is open.", NO_RESULT]
        assert "tools" not in body
        assert "tool_choice" not in body


@pytest.mark.fault("odd tool calls", "stop", "not run")
async def test_calls_of_the_model_are_not_run(tmp_path: Path) -> None:
    """A model that calls a tool all the same has said nothing."""
    called: list[int] = []

    @own_tool
    async def look() -> str:
        """Look at the pier."""
        called.append(1)
        return "The pier is open."

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [look]) as (served, studio):
        received, _ = await stopped_in_text(served, studio, Script("Well. ", ToolCall("look")), stream=True)
        assert received.text.endswith("Well. ")
        assert (received.finish, received.calls, called) == ("stop", False, [])


async def test_second_stop_ends_them(tmp_path: Path) -> None:
    """Who has heard enough stops once more."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 100
        studio.enqueue(LONG, "last " * 140)
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await eventually(lambda: is_answering(served, studio), "nothing is said")
        first = asyncio.create_task(cancel(served, grace=True))
        await eventually(lambda: len(studio.chats) == 2 and studio.chats[1].completion_tokens > 30, "no last words")
        assert (await cancel(served))["cancelled"] == 1
        received = await asking
        assert (await first)["status"] == "idle"
        assert 0 < received.text.count("last") < 140
        assert received.finish == "stop"
        await assert_nothing_open(studio)


@pytest.mark.fault("client leaves", "stop", "the last words ended")
async def test_client_leaves_during_them(tmp_path: Path) -> None:
    """Nobody hears them any more: they are ended."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 20
        studio.enqueue(LONG, "last " * 140)
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await eventually(lambda: is_answering(served, studio), "nothing is said")
        stopping = asyncio.create_task(cancel(served, grace=True))
        await eventually(lambda: len(studio.chats) == 2 and studio.chats[1].completion_tokens > 3, "no last words")
        asking.cancel()
        assert (await stopping)["status"] == "idle"
        await assert_nothing_open(studio)
        assert studio.chats[1].completion_tokens < 140


async def test_nothing_to_tell(tmp_path: Path) -> None:
    """Where nothing was said and done the model is not asked for words about it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.prefill_tokens_per_second = 0.1
        received, _ = await stopped_when(
            served,
            chat_body("word " * 20, stream=True),
            lambda: studio.chats and studio.chats[0].phase == "prefill",
            grace=True,
        )
        assert received.text == ""
        assert len(studio.chats) == 1


@pytest.mark.fault("error in the stream", "stop", "ends where it was stopped")
async def test_model_fails(tmp_path: Path) -> None:
    """The answer ends where it was stopped, as if no words had been wanted."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        received, _ = await stopped_in_text(served, studio, Error("no memory left"), stream=True)
        assert set(received.text.split()) == {"word"}
        assert received.finish == "stop"


@pytest.mark.fault(("silence in mid-stream", "endless generation"), "stop", "cut off in time; normal end")
async def test_model_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its words are cut off where the time is over."""
    monkeypatch.setattr(grace_turn, "GRACE_SECONDS", 0.3)
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        received, _ = await stopped_in_text(served, studio, "last " * 140, stream=True)
        assert received.text.count("last") < 140
        assert received.finish == "stop"
        await assert_nothing_open(studio)


async def test_provider_that_manages_its_context_itself(tmp_path: Path) -> None:
    """There it works as well: nothing is counted."""
    agents = f'{AGENT}provider = "openai"\n'
    async with elbowroom_with_studio(tmp_path, agents=agents, kind="openai") as (served, studio):
        received, _ = await stopped_in_text(served, studio, WORDS, stream=True)
        assert received.text.endswith(f"\n\n{WORDS}")
        assert studio.chats[-1].body["messages"][-1] == ORDER
