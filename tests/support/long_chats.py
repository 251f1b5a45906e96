"""Chats of a hundred turns in simulated time, with elbowroom or in a window without a bottom, and how long they wait.

The engine reads 300 tokens a second and writes 20, and keeps in its cache what it has read and written last. The person
reads each answer for 20 to 60 seconds.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from chatting import MODEL, RAW_MODEL
from coding_runs import READING_SPEED, TOKENIZER, WRITING_SPEED
from coding_task import usual_plan
from long_conversations import Kind, conversation
from scripted_pruner import KnowsByHeart, in_deltas, is_prune_order
from serving import serve, settings_for
from stateless_client import StatelessClient, openai_client

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, Text, ToolCall

if TYPE_CHECKING:
    from pathlib import Path

    from elbowroom.demo.journal import RecordedRequest
    from elbowroom.demo.residency import Instance

Body = dict[str, Any]
TURNS: Final = 100
PAUSE: Final = (20.0, 60.0)
"""Seconds for which the person reads an answer, from and to."""
SIZED_FOR: Final = 8192
"""The messages take a fiftieth of this window on average, whatever window they are in."""
BOTTOMLESS: Final = 2**20
DELTA: Final = 40
"""Characters that the engine sends at once."""
OPENING: Final = "<|im_start|>assistant\n"


@dataclass(frozen=True, slots=True)
class Talk:
    """A kind of chat, and its window in tokens."""

    window: int
    kind: Kind = "plain"

    @property
    def name(self) -> str:
        """Return it in words."""
        return f"{self.window:,}{', with tools' if self.kind == 'tools' else ''}"


TALKS: Final = (Talk(8192), Talk(16_384), Talk(8192, "tools"))


@dataclass(frozen=True, slots=True)
class ChatRun:
    """A chat that has ended: for how many seconds the person sat before an answer that did not go on.

    `over` is how many prompts were over the window. Of the `plans` that were asked for, `early` ones ended before the
    person went on.
    """

    waiting: float
    over: int
    plans: int
    early: int


@dataclass(slots=True)
class CachingEngine:
    """An `on_request` for the simulated LM Studio that sends what `known` says piece by piece.

    As real engines do, it keeps an answer behind its prompt in the cache of the `instances`.
    """

    known: KnowsByHeart
    instances: list[Instance] = field(default_factory=list)
    _answered: str = ""

    def __call__(self, body: Body) -> Script:
        """Return the answer to a request."""
        for instance in self.instances if self._answered else ():
            instance.last_prompt = self._answered
        said = self.known(body) or "."  # to a message of which only the reading is wanted
        script = in_deltas(said, lambda: DELTA) if isinstance(said, str) else said
        self._answered = with_answer(body, script) if body.get("max_tokens") != 1 else ""
        return script


def with_answer(body: Body, script: Script) -> str:
    """Return a prompt with its answer behind it."""
    text = "".join(step.text for step in script.steps if isinstance(step, Text))
    calls = [step for step in script.steps if isinstance(step, ToolCall)]
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    answer = {"role": "assistant", "content": text, "tool_calls": [{"function": each} for each in functions]}
    return TOKENIZER.render([*body["messages"], answer], body.get("tools")).removesuffix(OPENING)


async def chat_run(folder: Path, talk: Talk, *, directly: bool = False, turns: int = TURNS) -> ChatRun:
    """Talk for so many turns, where wanted `directly` with an engine whose window has no bottom.

    This has to run in simulated time.
    """
    said = conversation(talk.kind, turns, SIZED_FOR, lambda text: len(TOKENIZER.split(text)))
    engine = CachingEngine(KnowsByHeart(said, lambda body: in_deltas(usual_plan(body), lambda: DELTA)))
    async with AsyncExitStack() as stack:
        studio = await stack.enter_async_context(home_computer(BOTTOMLESS if directly else talk.window, engine))
        engine.instances = studio.residency.ready
        url = studio.base_url
        if not directly:
            url = (await stack.enter_async_context(serve(folder, settings_for(url)))).url
        api = await stack.enter_async_context(openai_client(url))
        client = StatelessClient(api, MODEL if directly else RAW_MODEL, said)
        clock, chance, spans = asyncio.get_running_loop(), random.Random(turns), list[tuple[float, float]]()
        for exchange in said.exchanges:
            began = clock.time()
            await client.exchange(exchange)
            spans.append((began, clock.time()))
            await asyncio.sleep(chance.uniform(*PAUSE))
        return told_of(studio.chats, spans)


def home_computer(window: int, engine: CachingEngine) -> SimulatedLMStudio:
    """Return an LM Studio with a model that reads and writes as slowly as there."""
    return SimulatedLMStudio(
        [SimulatedModel(MODEL, max_context_length=window, loaded_context_length=window, parallel=1)],
        on_request=engine,
        prefix_cache=True,
        prefill_tokens_per_second=READING_SPEED,
        tokens_per_second=WRITING_SPEED,
    )


def told_of(chats: list[RecordedRequest], spans: list[tuple[float, float]]) -> ChatRun:
    """Return what the requests of a chat tell, whose turns went from when to when."""
    orders = [chat for chat in chats if is_prune_order(chat.body)]
    ends = [chat.finished_at or 0.0 for chat in orders]
    early = sum(not any(began < end <= ended for began, ended in spans) for end in ends)
    answers = [chat for chat in chats if chat not in orders and chat.body.get("max_tokens") != 1]
    written = sum(chat.completion_tokens for chat in answers)
    waiting = sum(ended - began for began, ended in spans) - written / WRITING_SPEED
    over = sum(not chat.fitted for chat in chats if chat.counted_tokens is not None)
    return ChatRun(waiting, over, len(orders), early)
