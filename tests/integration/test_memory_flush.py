"""Before a compaction takes a conversation away, the agent may save what must last; nobody ever sees it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import AGENT, eventually
from patient_counting import wait_for_counts
from scripted_pruner import is_prune_order, text_of
from serving import Served
from small_window import ANSWER, Model, answers, ask_whole, history, small_window

from elbowroom.agents.memory_flush import ORDER, SILENT
from elbowroom.demo import RecordedRequest, Script, SimulatedLMStudio, ToolCall
from elbowroom.server.keys import SHARED, Timing

Body = dict[str, Any]
Message = dict[str, Any]
WINDOW: Final = 2048
FACT: Final = "The user calls the ferry Old Marta."
WORDS: Final = "Zephyr words that only a flush has said."
REMEMBERS: Final = f'{AGENT}tools = ["save_memory"]\n'
QUICK: Final = Timing(quiet=0.02)


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def is_flush(body: Body) -> bool:
    """Tell whether a request is a flush, be it the first of its calls or a later one."""
    return any(text_of(message) == ORDER["content"] for message in body["messages"])


def is_first(body: Body) -> bool:
    """Tell whether a request is the first of a flush."""
    return text_of(body["messages"][-1]) == ORDER["content"]


def saves(body: Body) -> Script:
    """Save a fact in the first call of a flush, with words beside it, and end it in the second."""
    return Script(WORDS, ToolCall("save_memory", {"text": FACT})) if is_first(body) else Script(SILENT)


@asynccontextmanager
async def remembering(
    folder: Path,
    flush: Model = saves,
    *,
    model: Model = answers,
    memory: str = "",
    compaction: str = "background = false",
    agents: str = REMEMBERS,
    window: int = WINDOW,
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run an agent with memory; the model answers flushes as `flush` says."""

    def says(body: Body) -> Script | str:
        return flush(body) if is_flush(body) else model(body)

    agents = f"{agents}[memory]\nenabled = true\n{memory}\n"
    before = asyncio.all_tasks()
    async with small_window(folder, says, window=window, compaction=compaction, agents=agents, timing=QUICK) as (
        served,
        studio,
    ):
        yield served, studio
    await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left running")


def flushes_of(studio: SimulatedLMStudio) -> list[RecordedRequest]:
    """Return the first requests of all flushes."""
    return [chat for chat in studio.chats if is_first(chat.body)]


async def saved(served: Served) -> list[str]:
    """Return what the agent remembers of the only user."""
    memories = await served.app[SHARED].store.memories.all("", "writer")
    return [memory.text for memory in memories]


async def turn(served: Served, messages: list[Message]) -> str:
    """Ask the agent and put its answer into the history."""
    status, answer = await ask_whole(served, {"model": "writer", "messages": messages})
    assert status == 200, answer
    text = str(answer["choices"][0]["message"]["content"])
    messages.append({"role": "assistant", "content": text})
    return text


async def test_it_comes_before_the_compaction(tmp_path: Path) -> None:
    """It has what is about to go, the fact is saved, and from then on it is told; of the flush nothing is."""
    sent = history(17)
    async with remembering(tmp_path) as (served, studio):
        assert await turn(served, [*sent]) == ANSWER
        [flush] = flushes_of(studio)
        kinds = ["flush" if is_flush(c.body) else "order" if is_prune_order(c.body) else "turn" for c in studio.chats]
        assert kinds == ["flush", "flush", "order", "turn"]
        assert flush.body["messages"][1:-1] == sent[1:]
        assert await saved(served) == [FACT]
        told = text_of(studio.chats[-1].body["messages"][0])
        assert FACT in told
        assert FACT not in text_of(flush.body["messages"][0])
