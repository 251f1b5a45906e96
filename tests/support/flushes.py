"""An agent with a memory in front of a simulated LM Studio with a small window, and what its flushes look like."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from chatting import AGENT, eventually
from own_tools import Given
from scripted_pruner import is_prune_order, text_of
from serving import Served
from small_window import Model, answers, ask_whole, small_window

from elbowroom.agents.turn.flush import ORDER, SILENT
from elbowroom.demo import RecordedRequest, Script, SimulatedLMStudio, ToolCall
from elbowroom.server.state import SHARED, Timing

Body = dict[str, Any]
Message = dict[str, Any]
WINDOW: Final = 4096
NEARLY_FULL: Final = 14
"""Exchanges that pass the threshold of the flush and stay below the trigger."""
FULL: Final = 26
"""Exchanges that pass the trigger and leave room for a flush."""
FACT: Final = "The user calls the ferry Old Marta."
WORDS: Final = "Zephyr words that only a flush has said."
REMEMBERS: Final = f'{AGENT}tools = ["save_memory"]\n'
FOREGROUND: Final = "background = false"
QUICK: Final = Timing(quiet=0.02)


def is_flush(body: Body) -> bool:
    """Tell whether a request belongs to a flush, be it the first or a later one."""
    return any(text_of(message) == ORDER["content"] for message in body["messages"])


def begins_flush(body: Body) -> bool:
    """Tell whether a request is the first of a flush."""
    return bool(text_of(body["messages"][-1]) == ORDER["content"])


def saves(body: Body) -> Script:
    """Save a fact at first, with words beside the call, and end the flush then."""
    return Script(WORDS, ToolCall("save_memory", {"text": FACT})) if begins_flush(body) else Script(SILENT)


@asynccontextmanager
async def remembering(
    folder: Path,
    flush: Model = saves,
    *,
    model: Model = answers,
    memory: str = "",
    compaction: str = FOREGROUND,
    agents: str = REMEMBERS,
    window: int = WINDOW,
    toolbox: Given | None = None,
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both; the model answers flushes as `flush` says. At the end no task may be left."""

    def says(body: Body) -> Script | str:
        return flush(body) if is_flush(body) else model(body)

    before = asyncio.all_tasks()
    agents = f"{agents}\n[memory]\nenabled = true\n{memory}\n"
    async with small_window(
        folder, says, window=window, compaction=compaction, agents=agents, timing=QUICK, toolbox=toolbox
    ) as (served, studio):
        yield served, studio
    await eventually(lambda: not asyncio.all_tasks() - before, "tasks are left running")


def flushes_of(studio: SimulatedLMStudio) -> list[RecordedRequest]:
    """Return the first requests of all flushes."""
    return [chat for chat in studio.chats if begins_flush(chat.body)]


def kinds_of(studio: SimulatedLMStudio) -> list[str]:
    """Return what each request to the model was: `flush`, `prune`, `warm up` or `turn`."""
    return [_kind(chat.body) for chat in studio.chats]


def _kind(body: Body) -> str:
    if is_flush(body):
        return "flush"
    if is_prune_order(body):
        return "prune"
    return "warm up" if body["max_tokens"] == 1 else "turn"


async def saved(served: Served, owner: str = "") -> list[str]:
    """Return what the agent remembers of a person."""
    return [memory.text for memory in await served.app[SHARED].store.memories.all(owner, "writer")]


async def turn(served: Served, messages: list[Message], *, model: str = "writer", conversation: str = "") -> str:
    """Ask the agent, put its answer into the history, and return it."""
    named = {"metadata": {"conversation_id": conversation}} if conversation else {}
    status, answer = await ask_whole(served, {"model": model, "messages": messages, **named})
    assert status == 200, answer
    text = str(answer["choices"][0]["message"]["content"])
    messages.append({"role": "assistant", "content": text})
    return text


async def background_ended(served: Served) -> None:
    """Wait until nothing is left to do behind an answer."""
    background = served.app[SHARED].background
    await eventually(lambda: not background._jobs, "the work behind an answer does not end", seconds=20)


def asked(messages: list[Message], question: str) -> list[Message]:
    """Return a history with another question behind it."""
    return [*messages, {"role": "user", "content": question}]
