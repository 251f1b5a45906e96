"""One run of a coding agent, with elbowroom between it and the simulated LM Studio or without, and what it cost."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chatting import MODEL
from coding_agents import Agent, Outcome, Place, run
from coding_task import PROMPT, CodingModel, Task, write_task
from recording_relay import RecordingRelay
from scripted_pruner import is_prune_order
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel, SimulatedTokenizer

if TYPE_CHECKING:
    from pathlib import Path

    from recording_relay import Request

    from elbowroom.demo.journal import RecordedRequest

COMPACTIONS: Final = re.compile(r"^elbowroom_compactions_total\{.*\} (\S+)$", re.MULTILINE)
TOKENIZER: Final = SimulatedTokenizer()
TURN: Final = "<|im_end|>\n"
Body = dict[str, Any]
SECONDS: Final = 110.0
ROUTES: Final = ("/chat/completions", "/responses", "/messages")


@dataclass(frozen=True, slots=True)
class Run:
    """A run that has ended: the task's folder, how the client ended, what it asked and what the engine was asked."""

    task: Task
    outcome: Outcome
    model: CodingModel
    asked: list[Request]
    chats: list[RecordedRequest]
    compactions: int

    @property
    def rounds(self) -> int:
        """Return how many answers the client asked for."""
        return sum(request.path.partition("?")[0].endswith(ROUTES) for request in self.asked)

    @property
    def over_the_window(self) -> int:
        """Return how many prompts were as large as the window or larger."""
        return sum(not chat.fitted for chat in self.chats if chat.counted_tokens is not None)

    @property
    def read_again(self) -> int:
        """Return how many tokens the engine read that were not in its cache and that it had read before.

        The orders of compactions count as well.
        """
        seen: set[str] = set()
        return sum(tokens_again(chat, seen) for chat in self.chats if chat.counted_tokens is not None)

    @property
    def own_compactions(self) -> int:
        """Return how many summaries of the conversation the client asked for by itself."""
        return sum(is_own_compaction(request.json()) for request in self.asked if request.body)


def tokens_again(chat: RecordedRequest, seen: set[str]) -> int:
    """Return the tokens of a request that the engine read although its messages are in `seen`; add the others there."""
    prompt = TOKENIZER.render(chat.body["messages"], chat.body.get("tools"))
    messages = prompt.split(TURN)[:-1]
    place, again = 0, 0
    for number, message in enumerate(messages, start=1):
        size = len(TOKENIZER.split(message + TURN))
        place += size
        is_order = number == len(messages) and is_prune_order(chat.body)
        if place > chat.reused_tokens and (message in seen or is_order):
            again += min(size, place - chat.reused_tokens)
        seen.add(message)
    return again


def is_own_compaction(body: Body) -> bool:
    """Tell whether a client's request asks for a summary of the conversation."""
    messages = body.get("messages") or body.get("input") or [{}]
    return not body.get("tools") and "summar" in json.dumps(messages[-1])


async def coding_run(agent: Agent, installed: Path, folder: Path, window: int, *, directly: bool = False) -> Run:
    """Have an agent do the task in a window of so many tokens."""
    task = write_task(folder / "repository", window)
    model = CodingModel(task)
    loaded = SimulatedModel(MODEL, loaded_context_length=window)
    async with AsyncExitStack() as stack:
        studio = await stack.enter_async_context(SimulatedLMStudio([loaded], on_request=model))
        settings = settings_for(studio.base_url)
        served = None if directly else await stack.enter_async_context(serve(folder, settings))
        relay = await stack.enter_async_context(RecordingRelay(served.url if served else studio.base_url))
        place = Place(folder / "home", task.folder, relay.base_url, window, is_managed=not directly)
        outcome = await run(agent, installed, place, PROMPT, SECONDS)
        compactions = await compactions_of(served) if served else 0
        return Run(task, outcome, model, relay.requests, studio.chats, compactions)


async def compactions_of(served: Served) -> int:
    """Return how often elbowroom has compacted a conversation."""
    async with served.http.get(f"{served.url}/metrics") as response:
        return int(sum(float(number) for number in COMPACTIONS.findall(await response.text())))
