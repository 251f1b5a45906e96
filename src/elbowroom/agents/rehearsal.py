"""Compacts conversations that nobody has, and asks the model about what is left, while no chat needs the model.

Nothing of them is recorded, kept in the ledger, counted in metrics or shown.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

from elbowroom.agents.admission import Job, PoolKey
from elbowroom.agents.answer import Reply, tell_nobody
from elbowroom.agents.ask import ReplyReader, ask, beside
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import HistoryCounter, StepPrompt, StepRequest
from elbowroom.agents.request import own_request
from elbowroom.agents.turn import CompactionNotes, Compactor, PromptFit, Recall, RunSettings
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Compaction
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.observations import Observations
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message
from elbowroom.errors import EmptyReply, ModelUnavailable, WindowTooSmall, WindowUnknown
from elbowroom.providers.base import ModelInfo

LONGEST_REPLY: Final = 160
"""Tokens of an answer or a call, thoughts apart."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """A model with a window of `window` tokens at most, whose conversations are compacted by one pruning agent.

    `whole` is the window that the model really has, which its other requests share.
    """

    target: Target
    info: ModelInfo
    settings: RunSettings
    history: HistoryCounter
    window: int
    whole: int

    @classmethod
    async def of(cls, target: Target, settings: RunSettings, pruner: str, window: int) -> "Rehearsal":
        """Return the rehearsal of a raw model with the pruning agent of this name. Both are loaded if need be.

        Raises ElbowroomError where one of them cannot be had.
        """
        work = partial(cls._on, settings=settings, pruner=pruner, window=window)
        return await settings.shared.places.on_machine(target, work)

    @classmethod
    async def _on(cls, target: Target, settings: RunSettings, pruner: str, window: int) -> "Rehearsal":
        info = await target.provider.ready(target.model)
        if info.loaded_context is None:
            raise WindowUnknown(info.id, target.provider.id)
        chosen = settings.of(target).compaction.model_copy(update={"pruning_agent": pruner, "model": ""})
        shared = replace(settings.shared, observations=Observations(), notes=CompactionNotes())
        whole = shared.windows.at_most(info, info.loaded_context)
        shape = _shape(target, ())
        history = await shared.histories.of(target.provider, info, shape.body(()))
        settings = replace(settings, compaction=chosen, shared=shared)
        return cls(target, info, settings, history, min(window, whole), whole)

    @property
    def pool(self) -> PoolKey:
        """Return the key of the context that requests to the model share."""
        return self.target.provider.id, self.info.id

    @property
    def budget(self) -> Budget:
        """Return how the window is divided."""
        return Budget(self.window, self.settings.compaction.threshold_ratio)

    async def is_full(self, messages: Sequence[Message]) -> bool:
        """Tell whether a conversation would be compacted before its next answer."""
        return self.budget.occupied(await self.history.prompt(messages)) >= self.budget.trigger

    async def compact(self, messages: Sequence[Message], job: Job) -> Compaction:
        """Return the conversation, compacted; it ends with a message of the user or a result of a tool.

        Raises ElbowroomError where that cannot be done, or the pruning agent cannot be had.
        """
        shape, shared = _shape(self.target, ()), self.settings.shared
        manager = AgentContextManager(self.budget, history=Prompt.of(messages))
        recall = Recall(shared.store.ledger, shared.notes, shape.request.caller, self.target.name, messages)
        compactor = Compactor(self.target, self.settings, tell_nobody, job)
        prompt = StepPrompt(shape, self.info, manager, self.history, await self.history.counter.stream())
        fit = PromptFit(prompt, compactor, recall)
        outcome = await fit.run(fit.planner.rehearsal())
        for complaint in self.settings.shared.notes.complaints:
            raise ModelUnavailable(f"The pruning agent cannot be had: {complaint}")
        if not isinstance(outcome, Compaction):
            raise self.too_small()
        return outcome

    async def ask(self, messages: Sequence[Message], job: Job, tools: Sequence[dict[str, Any]] = ()) -> Reply:
        """Return what the model says after these messages, in few words; an empty reply where it says nothing."""
        body = {**_shape(self.target, tools).body(messages), "max_tokens": LONGEST_REPLY, "temperature": 0}
        question = await beside(self.target.provider, self.info, self.whole, self.history, body, least=1)
        if not question.has_room:
            raise self.too_small()
        reader = ReplyReader([tool["function"]["name"] for tool in tools])
        try:
            await ask(question, reader, self.settings.shared.admission, rank=job)
        except EmptyReply:
            return reader.reply
        reader.reply.close_calls(was_cut=reader.was_cut)
        return reader.reply

    def too_small(self) -> WindowTooSmall:
        """Return the error for a window in which no written conversation can be compacted."""
        return WindowTooSmall(
            f"The window of {self.window:,} tokens is too small for a written conversation. Load {self.info.id} with "
            "a larger context length."
        )


def _shape(target: Target, tools: Sequence[dict[str, Any]]) -> StepRequest:
    return StepRequest(own_request(target.name, ()), target.model, {}, None, tools, 1)


async def in_the_background(rehearsal: Rehearsal, work: Callable[[Job], Awaitable[T]]) -> T:
    """Do the work once nobody needs the model, and return its result; begin it again where it had to give way to chats.

    Raises what the work raises.
    """
    background = rehearsal.settings.shared.background
    results: list[T] = []
    failures: list[Exception] = []

    async def attempt(job: Job) -> None:
        try:
            results.append(await work(job))
        except Exception as error:  # noqa: BLE001  # it is raised below, where somebody waits for it
            failures.append(error)

    while not results:
        job = background.begin("rehearsal", rehearsal.pool, attempt)
        try:
            await asyncio.wait([job.outcome])
        finally:
            job.cancel()
        if failures:
            raise failures[0]
    return results[0]
