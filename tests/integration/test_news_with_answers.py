"""News of the store after a streamed answer: what holds for the answer while its reader is told of them."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chatting import elbowroom_with_studio
from noted_changes import NotedConversations

from elbowroom.agents.answer import Answer, AnswerEvent, Notice
from elbowroom.agents.answering import answer
from elbowroom.agents.request import NOBODY, own_request
from elbowroom.agents.turn import Shared
from elbowroom.context.conversation import ConversationBegun, TurnEnded
from elbowroom.demo import Script, ToolCall
from elbowroom.server.state import CATALOG, SHARED, run_settings_of
from elbowroom.store import Store

CALLS = Script("I look it up. ", ToolCall("weather", {"city": "Rome"}))


@dataclass(slots=True)
class SlowReader:
    """Takes everything at once but the news, for which it needs until `goes_on` is set."""

    is_told: asyncio.Event = field(default_factory=asyncio.Event)
    goes_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, events: Sequence[AnswerEvent]) -> None:
        """Take events."""
        if any(isinstance(event, Notice) and event.kind == "store" for event in events):
            self.is_told.set()
            await self.goes_on.wait()


@asynccontextmanager
async def answered(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Shared, NotedConversations, SlowReader, asyncio.Task[Answer]]]:
    """Yield an answer of a model at the moment when its reader has been told of news."""
    monkeypatch.setattr(Store, "news", lambda store: ["The store works again."])
    async with elbowroom_with_studio(folder) as (served, studio):
        studio.enqueue(CALLS)
        shared, kept, reader = served.app[SHARED], NotedConversations(), SlowReader()
        shared.recording.conversations = kept
        target = await served.app[CATALOG].get().resolve("writer")
        request = own_request("writer", [{"role": "user", "content": "How is the weather?"}])
        answering = asyncio.create_task(answer(target, request, run_settings_of(served.app, NOBODY), reader))
        async with asyncio.timeout(20):
            await reader.is_told.wait()
            yield shared, kept, reader, answering
            await answering


async def test_the_turn_has_ended_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole answer is recorded as such before the news: a slow reader or a crash takes nothing of it."""
    async with answered(tmp_path, monkeypatch) as (_, kept, reader, _):
        [ended] = kept.noted(TurnEnded)
        assert isinstance(ended, TurnEnded)
        assert ended.status == "complete"
        assert ended.key
        reader.goes_on.set()
    assert len(kept.noted(TurnEnded)) == 1


async def test_a_stop_leaves_the_answer_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A person who stops the conversation while its reader is told of news ends the news and nothing else."""
    async with answered(tmp_path, monkeypatch) as (shared, kept, _, answering):
        [begun] = kept.noted(ConversationBegun)
        assert isinstance(begun, ConversationBegun)
        assert await shared.running.cancel(begun.owner, begun.conversation) == 1
        said = await answering
        assert (said.steps, "".join(said.text), said.finish_reason) == (1, "I look it up. ", "tool_calls")
        assert (said.is_interrupted, bool(said.usage)) == (False, True)
