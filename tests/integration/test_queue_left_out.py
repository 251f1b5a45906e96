"""Messages that no model can be given: they wait in the queue, and the conversation goes on without them."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chat_body, elbowroom_with_studio, eventually
from queueing import NAMED, answering, chunks, notices_of, said_by_user, say, waiting
from serving import text_of
from small_window import small_window

from elbowroom.demo import Reply, Script, WaitFor

MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])
LARGE = "The log of May, line after line. " * 400


def left_out(chunks: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what a stream tells of messages that were left out."""
    told = [chunk for chunk in chunks if chunk.get("elbowroom", {}).get("kind") == "left out"]
    return [chunk["event"]["data"]["description"] for chunk in told]


@MODELS
async def test_a_message_larger_than_the_window_stops_nothing(tmp_path: Path, model: str) -> None:
    """With compaction off it waits on, the person is told once, and all else is read and answered, now and later."""

    def echo(body: Mapping[str, Any]) -> str:
        return str(said_by_user(body["messages"])[-1])

    async with small_window(tmp_path, echo, compaction="enabled = false") as (served, studio):
        await chunks(served, chat_body("Hello", model=model))
        for text in ("one", "two", LARGE):
            await say(served, text, "follow_up")
        said = await chunks(served, chat_body("Now?", model=model))
        [told] = left_out(said)
        assert told.startswith("Left in the queue, since the model's window has no room for it: The log of May")
        assert text_of(said).split("\n\n")[-1] == "two"
        assert "one" in said_by_user(studio.chats[-1].body["messages"])
        assert await waiting(served) == [LARGE]
        again = await chunks(served, chat_body("And now?", model=model))
        assert text_of(again) == "And now?"
        assert left_out(again) == notices_of(again) == []
        assert await waiting(served) == [LARGE]


@MODELS
async def test_behind_an_answer_it_leaves_the_answer_whole(tmp_path: Path, model: str) -> None:
    """The answer ends as it would have."""
    is_said = asyncio.Event()
    says = Script("Yes.", WaitFor(is_said))
    async with small_window(tmp_path, lambda body: says, compaction="enabled = false") as (served, studio):
        async with answering(served, chat_body("Hello", model=model)) as answer:
            await eventually(lambda: studio.chats, "the model is not asked")
            await say(served, LARGE)
            is_said.set()
            said = await answer
        assert text_of(said) == "Yes."
        assert len(left_out(said)) == 1
        assert await waiting(served) == [LARGE]
        assert len(studio.chats) == 1


@MODELS
async def test_what_an_upstream_refuses_is_left_out_too(tmp_path: Path, model: str) -> None:
    """An image for a model that sees none, for example."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue("Hello.", Script(Reply(400, {"error": {"message": "No images, please."}})), "Yes.", "And yes.")
        await chunks(served, chat_body(model=model))
        await say(served, "an odd one")
        said = await chunks(served, chat_body("Now?", model=model))
        assert text_of(said) == "Yes."
        assert left_out(said) == ["Left in the queue, since the model does not take it: an odd one"]
        assert left_out(await chunks(served, chat_body("Now?", model=model))) == []
        assert await waiting(served) == ["an odd one"]


@MODELS
async def test_a_failure_that_is_not_its_own_holds_nothing(tmp_path: Path, model: str) -> None:
    """Where the client's own request fails as well, the message is read with the next one."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        refusal = Script(Reply(400, {"error": {"message": "No."}}))
        studio.enqueue("Hello.", refusal, refusal, "Yes.")
        await chunks(served, chat_body(model=model))
        await say(served, "one")
        body = chat_body(model=model, stream=True)
        async with served.http.post(served.chat_url, json=body, headers=NAMED) as response:
            assert b"error" in await response.read()
        assert await waiting(served) == ["one"]
        assert notices_of(await chunks(served, chat_body("Now?", model=model))) == ["Taken in: one"]
