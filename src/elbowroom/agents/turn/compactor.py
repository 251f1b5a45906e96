"""Compacts a conversation: chooses the pruning agent, climbs the ladder, and tells the person meanwhile."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from elbowroom.agents.admission import Job
from elbowroom.agents.answer import Notice, Sink, tell_nobody
from elbowroom.agents.catalog import Target
from elbowroom.agents.prompt import StepPrompt, carried_out, is_short
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn.entries import Entries, key_of_part
from elbowroom.agents.turn.pruner import PLANS, Conversation, PruningAgent, choose_pruner, engine_of, wishes_of
from elbowroom.agents.turn.state import RunSettings
from elbowroom.context.compaction import (
    Cannot,
    Compaction,
    Ladder,
    Layout,
    Plan,
    RemovedCalls,
    inner_summary,
    read_prune_answer,
    state_of,
)
from elbowroom.context.conversation import CompactionDetails, StepUsage
from elbowroom.context.effects import AskPruner, Count, Effect, Progress, RungFailed
from elbowroom.context.masking import Chosen, ClientTools
from elbowroom.context.outputs import ref_to
from elbowroom.context.planner import COMPACTED, PREVIEW, Climb
from elbowroom.context.transcript import Message
from elbowroom.logs.formats import FIELDS
from elbowroom.logs.request_facts import request_facts

log = logging.getLogger(__name__)
COMPACTING = "Compacting conversation history..."
COUNTING_SECONDS: Final = 0.05
"""How long the first notice waits for the size of the prompt, which a distant engine may count slowly."""
SECONDS_BETWEEN: Final = 2.0
"""How long each notice stands at least before the next."""

T = TypeVar("T")


@dataclass(slots=True)
class Work:
    """The progress of one compaction: the size of the prompt, once it is counted, and the pruning agent's work.

    `tool` tokens of that size were not there before. `closing` is the last notice for the person, whatever the outcome.
    `reason` is why the last rung failed. `entries` have what was answered about parts of this `owner`'s material, which
    a compaction that `begins_anew` asks for again; None where nothing is kept.
    """

    name: str
    before: "asyncio.Future[int]"
    entries: Entries | None
    owner: str
    tool: int = 0
    begins_anew: bool = False
    is_preview: bool = False
    began: float = field(default_factory=time.monotonic)
    pruner: PruningAgent | None = None
    asked: Progress | None = None
    reason: str = ""
    closing: Notice = field(default_factory=lambda: _closing(None, None))

    async def answer(self, effect: Effect, prompt: StepPrompt, pruner: PruningAgent) -> object:
        """Answer what the ladder asks for; raises PrunerFailed."""
        match effect:
            case Count(messages):
                return await prompt.most(messages)
            case AskPruner():
                self.asked = effect.progress
                return await self._answer_of(pruner, effect, prompt)
            case RungFailed(reason):
                self._fail(reason)
                return None

    async def _answer_of(self, pruner: PruningAgent, asked: AskPruner, prompt: StepPrompt) -> str:
        """Return the pruning agent's answer; where it has told of a part before, that one."""
        if self.entries is None or not asked.rests_on:
            return await pruner.ask(asked.messages, asked.cap)
        key = key_of_part(self.owner, pruner.ways, asked.cap, asked.rests_on)
        may_know = not self.begins_anew and asked.progress.attempt == 1
        if may_know and (known := await self.entries.part_answered(key)) is not None:
            return known
        answer = await pruner.ask(asked.messages, asked.cap)
        if isinstance(read_prune_answer(answer), Plan) and prompt.text(answer) <= 2 * asked.cap:
            self.entries.keep_part(key, answer)
        return answer

    def _fail(self, reason: str) -> None:
        """Note and log why a rung failed."""
        self.reason = reason
        fields = {"event": "rung failed", "agent": self.name, "reason": reason}
        log.info("%s: the next rung of the compaction: %s", self.name, reason, extra={FIELDS: fields})

    def end(self, outcome: Compaction | Cannot, before: int) -> Compaction | Cannot:
        """Note the outcome, and log where there is none; return it with its time, reason, and the size before."""
        seconds, before = time.monotonic() - self.began, before - self.tool
        if isinstance(outcome, Compaction):
            outcome = replace(outcome, seconds=seconds, before=before, reason=self.reason)
        elif not self.is_preview:
            fields = {"event": "not compacted", "agent": self.name, "before": before, "least": outcome.needed}
            fields |= {"seconds": round(seconds, 3), "reason": self.reason}
            text = "%s: %d tokens could not be compacted; %d is the least it can be"
            log.warning(text, self.name, before, outcome.needed, extra={FIELDS: fields})
        self.closing = _closing(outcome, seconds, self.pruner.late if self.pruner is not None else "")
        return outcome

    def notice(self) -> Notice:
        """Return the notice that tells the progress."""
        before = self.before.result() - self.tool if self.before.done() else None
        if self.pruner is None or self.asked is None:
            return Notice("compacting", COMPACTING, is_done=False, before=before)
        progress = self.pruner.with_written(self.asked)
        text = f"{COMPACTING} ({progress.in_words})" if progress.in_words else COMPACTING
        return Notice("compacting", text, is_done=False, before=before, progress=progress)


@dataclass(frozen=True, slots=True)
class Compactor:
    """Compacts the histories of one run's target; `tell` takes the notices for the person.

    `job` is the background work that the compaction belongs to, if any. `used` are the tokens of the requests to
    pruning agents so far.
    """

    target: Target
    settings: RunSettings
    tell: Sink
    job: Job | None = None
    used: list[StepUsage] = field(default_factory=list)

    def for_job(self, job: Job) -> "Compactor":
        """Return the compactor for work in the background, which tells nobody."""
        return replace(self, tell=tell_nobody, job=job)

    def note(self, done: Compaction, messages: int, focus: str = "") -> None:
        """Record and log the compaction of a conversation that had so many messages, and what a person wanted of it."""
        self._log(done)
        request_facts().compactions += 1
        self.settings.shared.observations.compacted(
            done.rung, done.seconds, done.before - done.after, done.verdict.outcome
        )
        if self.settings.live is None:
            return
        kept = len(done.messages) - bool(done.summary)
        removed, summary = max(0, messages - kept), inner_summary(done.summary)
        details = CompactionDetails(done.seconds, done.groups_kept, kept, removed, summary, focus, str(done.verdict))
        self.settings.live.compacted(done.before, done.after, done.rung, details)

    def _log(self, done: Compaction) -> None:
        verdict = done.verdict
        fields = {"event": "compacted", "agent": self.target.name, "before": done.before, "after": done.after}
        fields |= {"rung": done.rung, "seconds": round(done.seconds, 3), "reason": done.reason}
        fields |= {"verdict": verdict.outcome, "facts": verdict.facts, "put_back": verdict.put_back}
        fields |= {"lost": verdict.lost, "made_up": verdict.made_up}
        log.info(
            "%s: compacted from %d to %d tokens in %.1f s (%s, %d groups replaced; %s)",
            self.target.name,
            done.before,
            done.after,
            done.seconds,
            done.rung,
            done.replaced_groups,
            verdict,
            extra={FIELDS: fields},
        )

    def note_event(self, event: str, before: int, after: int) -> None:
        """Note that results of tools were shortened, with the sizes of the prompt, or that nothing could be."""
        if event == "not compacted":
            self.settings.shared.observations.not_compacted()
            return
        fields = {"event": "pruned", "agent": self.target.name, "before": before, "after": after}
        text = "Results of tools are shortened: %d tokens instead of about %d."
        log.info(text, after, before, extra={FIELDS: fields})

    def note_choice(self, chosen: Chosen) -> None:
        """Note by which way room is made, and why."""
        self.settings.shared.observations.room_chosen(chosen.action.way)
        fields = {"event": "room chosen", "agent": self.target.name, "way": chosen.action.way, "reason": chosen.reason}
        log.info("%s: %s", self.target.name, chosen.reason, extra={FIELDS: fields})

    def _note_use(self, pruner: PruningAgent) -> None:
        """Record the tokens of a pruning agent's calls, also where its work was ended early."""
        self.used.extend(pruner.used)
        for used in pruner.used:
            self.settings.shared.observations.pruner_used(pruner.name, used)
            self.settings.shared.answers.note(PLANS, pruner.name, used.output)
            if self.settings.live is not None:
                self.settings.live.pruner_used(pruner.model, used)

    def client_tools(self, prompt: StepPrompt) -> ClientTools | None:
        """Return what is known of the client's tools where it runs all, so that what they return can be masked."""
        owner, chosen = prompt.shape.request.caller.owner, self.settings.tool_output
        if self.target.agent is not None or not chosen.enabled:
            return None
        engine = engine_of(self.settings.shared, (self.target.provider.id, prompt.info.id))
        return ClientTools(chosen.kinds, lambda text: ref_to(owner, text).id, prompt.text, engine)

    async def _removed_calls(self, keeper: OutputKeeper | None, messages: Sequence[Message]) -> RemovedCalls:
        """Return the description of a history's calls for the time after they are gone; `keeper` has their results."""
        if keeper is not None:
            return await keeper.removed_calls(messages)
        agent, common = self.target.agent, self.settings.tool_output
        chosen = agent.tool_output.over(common) if agent is not None else common
        return RemovedCalls("", chosen.max_history_summary_tokens, chosen.kinds, chosen.preserve_errors_verbatim)

    async def compact(
        self, climb: Climb, prompt: StepPrompt, keeper: OutputKeeper | None, *, is_unfinished: bool
    ) -> Compaction | Cannot:
        """Return the shorter conversation; nothing is changed, whatever happens.

        `keeper` has whole results of tools. The last answer `is_unfinished` where a limit has ended it. The person is
        told at once and of all progress. A slow reader does not hold the compaction up; a person who leaves ends it.
        """
        shared, purpose, history = self.settings.shared, climb.purpose, climb.prompt
        removed = await self._removed_calls(keeper, history.messages[: -1 if purpose.foresees else None])
        counting = asyncio.ensure_future(prompt.most(history.messages))
        owner = prompt.shape.request.caller.keeps_as
        entries = Entries(shared.store.ledger, shared.notes) if purpose.is_kept else None
        is_wanted, is_preview = climb.decision.is_wanted, purpose == PREVIEW
        work = Work(self.target.name, counting, entries, owner, climb.tool, is_wanted, is_preview)
        try:
            await asyncio.wait([work.before], timeout=COUNTING_SECONDS)
            opening = work.notice()
            climbing = self._climb(climb, work, prompt, removed, is_unfinished=is_unfinished or history.is_stopped)
            try:
                outcome = await told_meanwhile(climbing, opening, work.notice, lambda notice: self.tell([notice]))
            except Exception:
                await self.tell([work.closing])
                raise
        finally:
            work.before.cancel()
            if work.pruner is not None:
                self._note_use(work.pruner)
        await self.tell([work.closing])
        return outcome

    async def _climb(
        self, climb: Climb, work: Work, prompt: StepPrompt, removed: RemovedCalls, *, is_unfinished: bool
    ) -> Compaction | Cannot:
        """Climb after the beginning that the engine has read: without a tool that is offered now."""
        chosen, shape, budget = self.settings.compaction, prompt.unoffered, prompt.manager.budget
        decision, history, foresees = climb.decision, climb.prompt, climb.purpose.foresees
        transcript = history.transcript
        messages = transcript.messages[: -1 if foresees else None]
        before = await work.before
        body = shape.body(await prompt.sent(messages))
        conversation = Conversation(body, messages, lambda said: shape.with_instructions(history.joined(said)))
        counter = prompt.counter.with_body(shape.body(()))
        work.pruner = pruner = await choose_pruner(
            self.settings, self.target, prompt.info, conversation, counter, budget.window, self.job
        )
        instructions = asked.instructions if (asked := shape.request.compaction) is not None else ""
        wishes = wishes_of(chosen, instructions, shape.request.focus)
        layout = Layout(
            budget=budget,
            target=decision.target,
            size=prompt.text,
            turns=chosen.retain_last_turns,
            is_firm=decision.is_firm,
            reads_again=self.target.agent is not None,
        )
        ladder = Ladder(
            layout,
            pruner=pruner,
            wishes=replace(wishes, is_unfinished=is_unfinished),
            asks_pruner=decision.asks_pruner,
            tells_all=decision.is_wanted,
            state="in progress" if is_unfinished else state_of(transcript.groups[-2:-1]) if foresees else None,
            removed=removed,
            foresees=foresees,
        )
        looked_at = [message for group in transcript.groups for message in group.unshortened or group.messages]
        answer = partial(work.answer, prompt=prompt, pruner=pruner)
        outcome = await carried_out(ladder.climb(transcript, before), answer, in_thread=not is_short(looked_at))
        return work.end(outcome, before)

    async def await_job(self, job: Job, seconds: float | None = None) -> Compaction | Cannot | None:
        """Wait for a compaction in the background, tell the person, and return its outcome.

        Where it is None, since the job was given up, the notice stays open: the caller compacts by itself now. So it
        does at a TimeoutError, which is raised after so many seconds.
        """
        began = time.monotonic()
        await self.tell([Notice("compacting", COMPACTING, is_done=False)])
        try:
            async with asyncio.timeout(seconds):
                outcome = await job.awaited()
        except TimeoutError:
            job.cancel_unless_awaited()
            raise
        if outcome is not None:
            await self.tell([_closing(outcome, time.monotonic() - began)])
        return outcome

    async def tell_of_another(self) -> None:
        """Tell the person that another request is compacting the conversation; its end has to be told as well."""
        await self.tell([Notice("compacting", COMPACTING, is_done=False)])


def _closing(outcome: Compaction | Cannot | None, seconds: float | None, late: str = "") -> Notice:
    if not isinstance(outcome, Compaction):
        return Notice("not compacted", "The conversation could not be shortened any further.", seconds=seconds)
    sizes = f"{outcome.before:,} to {outcome.after:,} tokens in {seconds or 0:.1f} s"
    by_code = f"; by code: the pruning agent {late}" if late else ""
    if outcome.condensed_groups:
        by_code += f"; the oldest {outcome.condensed_groups:,} messages by code"
    found = f"; {warning}" if (warning := outcome.verdict.warning) else ""
    text = f"{COMPACTED} ({sizes}{by_code}{found})"
    return Notice("compacted", text, before=outcome.before, after=outcome.after, seconds=seconds)


async def told_meanwhile(
    work: Coroutine[Any, Any, T],
    opening: Notice,
    newest: Callable[[], Notice],
    tell: Callable[[Notice], Awaitable[None]],
) -> T:
    """Do the work and tell notices meanwhile; return what the work returns, once the last notice is told.

    `opening` is told at first, later what `newest` returns, where its text has changed. Cancelling this ends the work
    at once. A failure to tell ends it too, and is raised.
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
