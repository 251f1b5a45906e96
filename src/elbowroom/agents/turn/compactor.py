"""Compacts a conversation: picks the pruning agent, tells the person, and keeps time."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from elbowroom.agents.admission import Gate, Job
from elbowroom.agents.answer import AnswerEvent, Notice
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import StepCounter, StepRequest
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn.pruner import Conversation, PruningAgent, wishes_of
from elbowroom.agents.turn.state import RunSettings
from elbowroom.context.budget import Budget, Compact
from elbowroom.context.compaction import Cannot, Compaction, Ladder, Progress, RemovedCalls, TaskState, inner_summary
from elbowroom.context.conversation import CompactionDetails
from elbowroom.context.transcript import Message, Transcript
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
COMPACTING = "Compacting conversation history..."
COMPACTED = "Context compacted, continuing..."
COUNTING_SECONDS = 0.05
"""How long the first notice waits for the size of the prompt, which an engine far away may take its time for."""


@dataclass(frozen=True, slots=True)
class ConversationSource:
    """What a conversation's own model is asked with: the request, the loaded model, and how a history is sent to it.

    `state` is how the task stands, where that is known better than by the last message; `removed` is told of the
    calls that are taken out.
    """

    shape: StepRequest
    info: ModelInfo
    dress: Callable[[Sequence[Message]], Sequence[Message]]
    state: TaskState | None = None
    removed: RemovedCalls = field(default_factory=RemovedCalls)


@dataclass(slots=True)
class Work:
    """One compaction as it stands: the size of the prompt, once it is counted, and what the pruning agent does.

    `closing` is what the person is told at the end, however that comes.
    """

    before: "asyncio.Future[int]"
    began: float = field(default_factory=time.monotonic)
    pruner: PruningAgent | None = None
    asked: Progress | None = None
    closing: Notice = field(default_factory=lambda: _closing(None, None))

    def ask(self, progress: Progress) -> None:
        """Take note of what the pruning agent is asked now."""
        self.asked = progress

    def end(self, name: str, outcome: Compaction | Cannot, before: int) -> Compaction | Cannot:
        """Take note of the outcome, and say it in the log; return it with the time that it took."""
        seconds = time.monotonic() - self.began
        _log(name, outcome, before, seconds)
        self.closing = _closing(outcome, seconds)
        return replace(outcome, seconds=seconds) if isinstance(outcome, Compaction) else outcome

    def notice(self) -> Notice:
        """Return what the person can be told now."""
        before = self.before.result() if self.before.done() else None
        if self.pruner is None or self.asked is None:
            return Notice("compacting", COMPACTING, is_done=False, before=before)
        progress = self.pruner.with_written(self.asked)
        text = f"{COMPACTING} ({progress.in_words})" if progress.in_words else COMPACTING
        return Notice("compacting", text, is_done=False, before=before, progress=progress)


@dataclass(frozen=True, slots=True)
class Compactor:
    """Shortens the histories of one run's target; `tell` has the notices for the person.

    The pruning agent's requests go through the `gate`.
    """

    target: Target
    settings: RunSettings
    tell: Callable[[Sequence[AnswerEvent]], Awaitable[None]]
    gate: Gate

    def for_job(self, job: Job) -> "Compactor":
        """Return the same for work in the background, of which nobody is told."""
        return replace(self, tell=_tell_nobody, gate=Gate(self.gate.admission, job))

    def note(self, done: Compaction, messages: int) -> None:
        """Let the conversation, which had so many messages, keep that it was compacted and how."""
        request_facts().compactions += 1
        self.settings.shared.observations.compacted(done.rung, done.seconds, done.before - done.after)
        if self.settings.live is None:
            return
        kept = len(done.messages) - bool(done.summary)
        details = CompactionDetails(
            done.seconds, done.groups_kept, kept, max(0, messages - kept), inner_summary(done.summary)
        )
        self.settings.live.compacted(done.before, done.after, done.rung, details)

    def note_failure(self) -> None:
        """Take note that the conversation could not be made any shorter."""
        self.settings.shared.observations.not_compacted()

    async def removed_calls(self, keeper: OutputKeeper | None, messages: Sequence[Message]) -> RemovedCalls:
        """Return what is told of the calls in a history once they are gone; `keeper` has kept their results, if any."""
        if keeper is not None:
            return await keeper.removed_calls(messages)
        agent, common = self.target.agent, self.settings.tool_output
        chosen = agent.tool_output.over(common) if agent is not None else common
        return RemovedCalls("", chosen.max_history_summary_tokens, chosen.kinds)

    async def compact(
        self,
        transcript: Transcript,
        decision: Compact,
        budget: Budget,
        counter: StepCounter,
        source: ConversationSource,
    ) -> Compaction | Cannot:
        """Return the shorter conversation; what `transcript` holds is not touched, whatever happens.

        The person is told at once and of all progress; one who reads slowly does not hold the compaction up, and
        one who has left ends it.
        """
        work = Work(asyncio.ensure_future(counter.prompt(transcript.messages)))
        try:
            await asyncio.wait([work.before], timeout=COUNTING_SECONDS)
            opening = work.notice()
            climb = self._climb(transcript, work, decision, budget, counter, source)
            try:
                outcome = await told_meanwhile(climb, opening, work.notice, lambda notice: self.tell([notice]))
            except Exception:
                await self.tell([work.closing])
                raise
        finally:
            work.before.cancel()
        await self.tell([work.closing])
        return outcome

    async def _climb(
        self,
        transcript: Transcript,
        work: Work,
        decision: Compact,
        budget: Budget,
        counter: StepCounter,
        source: ConversationSource,
    ) -> Compaction | Cannot:
        chosen = self.settings.compaction
        messages = transcript.messages
        conversation = Conversation(source.shape.body(counter.sent(messages)), messages, source.dress)
        before = await work.before
        work.pruner = await self.settings.shared.pruners.choose(
            chosen,
            self.settings.catalog,
            self.target,
            source.info,
            conversation,
            counter.history,
            budget.window,
            self.gate,
        )
        ladder = Ladder(
            budget=budget,
            target=decision.target,
            counter=counter,
            pruner=work.pruner,
            wishes=wishes_of(chosen),
            turns=chosen.retain_last_turns,
            on_rung=lambda reason: log.info("%s: the next rung of the compaction: %s", self.target.name, reason),
            on_progress=work.ask,
            asks_pruner=decision.asks_pruner,
            state=source.state,
            removed=source.removed,
        )
        outcome = await ladder.climb(transcript, before)
        return work.end(self.target.name, outcome, before)

    async def await_job(self, job: Job) -> Compaction | Cannot | None:
        """Wait for a compaction that is under way, tell the person, and return what came of it.

        Where it was given up the notice stays open: the caller compacts by itself now.
        """
        began = time.monotonic()
        await self.tell([Notice("compacting", COMPACTING, is_done=False)])
        outcome = await job.awaited()
        if outcome is not None:
            await self.tell([_closing(outcome, time.monotonic() - began)])
        return outcome

    async def tell_of_another(self) -> None:
        """Tell the person that the conversation is compacted, by another request: its end has to be told as well."""
        await self.tell([Notice("compacting", COMPACTING, is_done=False)])

    async def tell_done_by_another(self) -> None:
        """Tell the person that another request has compacted the conversation."""
        await self.tell([Notice("compacted", COMPACTED)])

    async def tell_waiting(self, before: int) -> None:
        """Tell the person that others have the model now: so many requests are before this one."""
        others = f"{before} requests are" if before > 1 else "another request is"
        await self.tell([Notice("waiting", f"Waiting for the model: {others} before this one.")])

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


def _closing(outcome: Compaction | Cannot | None, seconds: float | None) -> Notice:
    if not isinstance(outcome, Compaction):
        return Notice("not compacted", "The conversation could not be shortened any further.", seconds=seconds)
    text = f"{COMPACTED} ({outcome.before:,} to {outcome.after:,} tokens in {seconds or 0:.1f} s)"
    return Notice("compacted", text, before=outcome.before, after=outcome.after, seconds=seconds)


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


T = TypeVar("T")
SECONDS_BETWEEN = 2.0
"""How long at least one update stands before the next."""


async def told_meanwhile(
    work: Coroutine[Any, Any, T],
    opening: Notice,
    newest: Callable[[], Notice],
    tell: Callable[[Notice], Awaitable[None]],
) -> T:
    """Return what the work returns, once the telling of it has ended too.

    `opening` is told before the work begins, and later what `newest` returns, where its text is another.
    Cancelling this ends the work at once, and so does a failure to tell, which is raised.
    """
    working = asyncio.ensure_future(work)
    last = opening
    try:
        await tell(opening)
        while not (await asyncio.wait([working], timeout=SECONDS_BETWEEN))[0]:
            if (notice := newest()).text != last.text:
                last = notice
                await tell(notice)
        return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
