"""Background compaction: what is done for a conversation behind an answer that has passed the trigger."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.agents.admission import Job
from elbowroom.agents.prompt import StepCounter, StepRequest
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn.compactor import Compactor, ConversationSource
from elbowroom.agents.turn.fit import PRUNED, decide
from elbowroom.agents.turn.flush import MemoryFlush
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.managed_step import ManagedStep
from elbowroom.agents.turn.pruner import unshaped
from elbowroom.agents.turn.recall import TurnMemory, Written
from elbowroom.agents.turn.stream import size_in_bytes
from elbowroom.context.budget import Budget, Compact
from elbowroom.context.compaction import Compaction
from elbowroom.context.conversation import StepUsage
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.transcript import Message, Transcript, text_of
from elbowroom.providers.base import ModelInfo, Provider

log = logging.getLogger(__name__)
NEXT: Final[Message] = {"role": "user", "content": "..."}
"""Stands for the message that the person will write: some templates leave thoughts out only before a new one."""


def usual_question(messages: Sequence[Message]) -> Message:
    """Return a message of the usual length of this person's, in place of the next one; at least `NEXT`."""
    asked = sorted((text_of(message) for message in messages if message.get("role") == "user"), key=len)
    return {**NEXT, "content": asked[len(asked) // 2]} if asked else NEXT


@dataclass(frozen=True, slots=True)
class BehindAnswer:
    """Compacts a conversation with its answer, and lets the engine read the result, before the person writes again.

    It is compacted where another message of the usual length would pass the trigger: nobody has to wait for it then.
    `is_full` tells that by the engine's own report it would, whatever we count.
    Some way below that the agent saves what must last.
    """

    shape: StepRequest
    provider: Provider
    info: ModelInfo
    counter: StepCounter
    history: History
    said: Message
    budget: Budget
    compactor: Compactor
    memory: TurnMemory
    keeper: OutputKeeper | None = None
    flush: MemoryFlush | None = None
    is_full: bool = False

    async def __call__(self, job: Job) -> None:
        """Do it; at a second try only what is left to do."""
        if not job.outcome.done() and not await self._compact(job):
            return
        await self._warm_up(job)

    async def _compact(self, job: Job) -> bool:
        """Return whether there is something new to read."""
        expected = [*self.history.messages, usual_question(self.history.messages)]
        await self._flush(job, expected)
        manager = AgentContextManager(self.budget)
        decision = await decide(expected, self.counter, manager, must_shrink=self.is_full)
        if isinstance(decision, Compact) and await self._is_pruning_enough(expected):
            job.compacted(None)
            return True
        if not isinstance(decision, Compact) or not decision.asks_pruner:
            job.compacted(None)
            return False
        removed = await self.compactor.removed_calls(self.keeper, self.history.messages)
        source = ConversationSource(self.shape, self.info, self.shape.with_instructions, removed=removed)
        transcript = Transcript.of(self.history.messages)
        outcome = await self.compactor.for_job(job).compact(transcript, decision, self.budget, self.counter, source)
        if not isinstance(outcome, Compaction) or outcome.rung in ("digest", "last messages"):
            # Nothing is lost early: before the next message the pruning agent may answer, and sum up this answer too.
            job.compacted(None)
            return False
        self.history.replace(outcome.messages, outcome.tail)
        self.compactor.note(outcome, len(transcript.messages))
        if self.flush is not None:
            self.flush.begin_cycle()
        self.memory.keep_behind(self.history, self.said, Written.by(outcome, self.budget))
        if (memories := self.shape.memories) is not None:
            await memories.refresh(self.memory.chain, self.counter.text)
            memories.end(self.memory.chain, self.memory.key_behind(self.said))
        job.compacted(outcome)
        return True

    async def _flush(self, job: Job, expected: Sequence[Message]) -> None:
        """Flush the conversation as it stands, before anything of it is shortened."""
        if self.flush is None:
            return
        due_at = self.flush.due_at(self.history.messages)
        if not self.is_full and self.budget.occupied(await self.counter.prompt(expected)) < due_at:
            return
        job.is_flushing = True
        try:
            await replace(self.flush, compactor=self.compactor.for_job(job)).run(self.history.messages)
        finally:
            job.is_flushing = False

    async def _is_pruning_enough(self, expected: Sequence[Message]) -> bool:
        """Shorten old results; tell whether the conversation needs no compaction then."""
        messages = self.history.messages
        shorter = self.keeper.pruned(messages, must_shrink=True) if self.keeper is not None else None
        if shorter is None:
            return False
        self.history.shorten(shorter)
        next_expected = [*shorter, expected[-1]]
        if isinstance(await decide(next_expected, self.counter, AgentContextManager(self.budget)), Compact):
            return False
        sizes = await self.counter.prompt(messages), await self.counter.prompt(shorter)
        self.memory.keep_behind(self.history, self.said, Written(self.budget.window, *sizes, PRUNED))
        return True

    async def _warm_up(self, job: Job) -> None:
        """Ask for one token behind the new beginning, so that the engine has it in its cache."""
        body = {**unshaped(self.shape.body(self.counter.sent([*self.history.messages, NEXT]))), "max_tokens": 1}
        size = await self.counter.size(body)
        gate = self.compactor.for_job(job).gate
        async with (
            gate.entered(
                self.provider, self.info, window=self.budget.window, prompt=size.at_most, tokens=size.at_most + 1
            ) as ticket,
            aclosing(self.provider.stream(body, self.info)) as stream,
        ):
            async for _ in stream:
                if ticket is not None and ticket.is_prefilling:
                    ticket.first_token()
        log.info("%s has read the compacted conversation.", self.info.id)


def work_behind(managed: ManagedStep, reply: Message, said: Message) -> BehindAnswer | None:
    """Return what there is to do for the conversation behind this reply; None where plainly nothing is.

    `said` is the answer as the client has it.
    """
    fitting, budget, used = managed.fitting, managed.manager.budget, _reported(managed)
    if used is not None:
        answered = max(used.total, managed.manager.prompt + used.output)
    else:
        answered = managed.manager.prompt + size_in_bytes(text_of(reply))  # a token has at least a byte
    if answered < budget.window // 4:
        return None
    question = text_of(usual_question(managed.history.messages))
    answered += size_in_bytes(question)
    flush = fitting.flush(managed.info)
    least = flush.due_at(managed.history.messages) if flush is not None else budget.trigger
    if budget.occupied(min(answered, budget.window)) < least:
        return None
    return BehindAnswer(
        shape=managed.shape,
        provider=managed.provider,
        info=managed.info,
        counter=StepCounter(managed.counter.history, managed.counter.running, managed.shape.with_instructions),
        history=managed.history.followed_by(reply),
        said=said,
        budget=budget,
        compactor=fitting.compactor,
        memory=fitting.memory,
        keeper=fitting.keeper,
        flush=flush.behind(fitting.memory.key_behind(said)) if flush is not None else None,
        is_full=_is_full_with(managed, f"{text_of(reply)}\n{question}"),
    )


def _is_full_with(managed: ManagedStep, text: str) -> bool:
    """Tell whether the engine has read so much last that with this behind it the trigger is passed.

    What it has generated is more than that where it has thought: thoughts are in no later prompt.
    """
    budget, used = managed.manager.budget, _reported(managed)
    return used is not None and budget.occupied(used.prompt + managed.counter.text(text)) >= budget.trigger


def _reported(managed: ManagedStep) -> StepUsage | None:
    """Return what the engine itself says that the last request has used."""
    return managed.used[-1] if managed.used and not managed.used[-1].is_counted else None
