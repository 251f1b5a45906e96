"""Compacts a conversation: picks the pruning agent, tells the person, and keeps time."""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from elbowroom.agents.answer import AnswerEvent, Notice
from elbowroom.agents.background import Job
from elbowroom.agents.catalog import Target
from elbowroom.agents.pruner_choice import wishes_of
from elbowroom.agents.pruning_agent import Conversation
from elbowroom.agents.request_body import StepRequest
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.step_counter import StepCounter
from elbowroom.context.budget import Budget
from elbowroom.context.compaction import Compaction, TaskState
from elbowroom.context.decisions import Compact
from elbowroom.context.ladder import Cannot, Ladder
from elbowroom.context.transcript import Message, Transcript
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
COMPACTING = "Compacting conversation history..."
COMPACTED = "Context compacted, continuing..."


@dataclass(frozen=True, slots=True)
class ConversationSource:
    """What a conversation's own model is asked with: the request, the loaded model, and how a history is sent to it.

    `state` is how the task stands, where that is known better than by the last message.
    """

    shape: StepRequest
    info: ModelInfo
    dress: Callable[[Sequence[Message]], Sequence[Message]]
    state: TaskState | None = None


@dataclass(frozen=True, slots=True)
class Compactor:
    """Shortens the histories of one run's target; `tell` has the notices for the person."""

    target: Target
    settings: RunSettings
    tell: Callable[[Sequence[AnswerEvent]], Awaitable[None]]

    def for_nobody(self) -> "Compactor":
        """Return the same without a person who could be told."""
        return replace(self, tell=_tell_nobody)

    async def compact(
        self,
        transcript: Transcript,
        decision: Compact,
        budget: Budget,
        counter: StepCounter,
        source: ConversationSource,
    ) -> Compaction | Cannot:
        """Return the shorter conversation; what `transcript` holds is not touched, whatever happens."""
        began = time.monotonic()
        before = await counter.prompt(transcript.messages)
        await self.tell([Notice("compacting", COMPACTING, is_done=False, before=before)])
        try:
            outcome = await self._climb(transcript, before, decision, budget, counter, source)
        except Exception:
            await self.tell([_closing(None, before, time.monotonic() - began)])
            raise
        seconds = time.monotonic() - began
        await self.tell([_closing(outcome, before, seconds)])
        _log(self.target.name, outcome, before, seconds)
        return outcome

    async def _climb(
        self,
        transcript: Transcript,
        before: int,
        decision: Compact,
        budget: Budget,
        counter: StepCounter,
        source: ConversationSource,
    ) -> Compaction | Cannot:
        chosen = self.settings.compaction
        messages = transcript.messages
        conversation = Conversation(source.shape.body(counter.sent(messages)), messages, source.dress)
        pruner = await self.settings.shared.pruners.choose(
            chosen, self.settings.catalog, self.target, source.info, conversation, counter.history, budget.window
        )
        ladder = Ladder(
            budget=budget,
            target=decision.target,
            counter=counter,
            pruner=pruner,
            wishes=wishes_of(chosen),
            turns=chosen.retain_last_turns,
            on_rung=lambda reason: log.info("%s: the next rung of the compaction: %s", self.target.name, reason),
            asks_pruner=decision.asks_pruner,
            state=source.state,
        )
        return await ladder.climb(transcript, before)

    async def await_job(self, job: Job) -> bool:
        """Wait for a compaction that is under way; tell the person, and whether anything came of it."""
        began = time.monotonic()
        await self.tell([Notice("compacting", COMPACTING, is_done=False)])
        try:
            outcome = await job.awaited()
        except Exception:
            await self.tell([_closing(None, 0, time.monotonic() - began)])
            raise
        seconds = time.monotonic() - began
        await self.tell([_closing(outcome, outcome.before if isinstance(outcome, Compaction) else 0, seconds)])
        return isinstance(outcome, Compaction)

    async def tell_cut(self, window: int) -> None:
        """Tell the person that the answer ends because the window is full."""
        text = (
            f"The answer ends here: the model's window of {window:,} tokens is full, and nothing more can be freed. "
            "Ask it to go on, or load the model with a larger context length."
        )
        log.warning("%s: %s", self.target.name, text)
        await self.tell([Notice("cut", text)])


async def _tell_nobody(events: Sequence[AnswerEvent]) -> None:
    """Nobody waits for this."""


def _closing(outcome: Compaction | Cannot | None, before: int, seconds: float) -> Notice:
    if isinstance(outcome, Compaction):
        text = f"{COMPACTED} ({before:,} to {outcome.after:,} tokens in {seconds:.1f} s)"
        return Notice("compacted", text, before=before, after=outcome.after, seconds=seconds)
    return Notice("not compacted", "The conversation could not be shortened any further.", seconds=seconds)


def _log(name: str, outcome: Compaction | Cannot, before: int, seconds: float) -> None:
    if isinstance(outcome, Compaction):
        log.info(
            "%s: compacted from %d to %d tokens in %.1f s (%s, %d groups replaced)",
            name,
            before,
            outcome.after,
            seconds,
            outcome.rung,
            outcome.replaced_groups,
        )
    else:
        log.warning("%s: %d tokens could not be compacted; %d is the least it can be", name, before, outcome.needed)
