"""Carries out what a `Planner` decides about the history of a model step: counts, asks, keeps, and tells the person."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeVar

from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt import StepCounter, StepRequest, carried_out, is_short
from elbowroom.agents.request import tool_name
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.tools.recall import Recaller, ResultRoom
from elbowroom.agents.turn.compactor import Compactor, ConversationSource
from elbowroom.agents.turn.flush import MemoryFlush, memory_flush
from elbowroom.agents.turn.pruner import engine_of
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.reminder import Reminder
from elbowroom.agents.turn.room import has_room_for, overflow_error, tight_notice, without_conversation
from elbowroom.context.budget import Decision, Send
from elbowroom.context.compaction import Cannot, Compaction, state_of
from elbowroom.context.conversation import StepUsage
from elbowroom.context.effects import Aside, Ask, Count, KeepText, Tell, Work
from elbowroom.context.fitting import Keep, Note, Shortener, TakeResults
from elbowroom.context.ledger import Written
from elbowroom.context.manager import AgentContextManager, room_for_results
from elbowroom.context.masking import Chosen, ClientTools
from elbowroom.context.outputs import READ_TOOL, AppliedEdit, ref_to
from elbowroom.context.planner import (
    PREVIEW,
    Alone,
    Climb,
    Flush,
    HandOut,
    Offer,
    Planner,
)
from elbowroom.context.transcript import Message
from elbowroom.context.unasked import room_for_passages
from elbowroom.errors import ContextOverflow
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True)
class PromptFit:
    """Drives the `planner` of one model step, or of the work after it, over the history of `manager`.

    `keeper` keeps whole results of tools where the model can read them again. `recaller` is None where its tool must
    not be offered, `reminder` where nothing comes back unasked. `said` is the answer as the client has it, once the
    history holds one that no client has sent. `has_handed_out` tells that the client has got a compaction of what it
    has sent; `edits` are those of the client that were applied.
    """

    shape: StepRequest
    counter: StepCounter
    manager: AgentContextManager
    compactor: Compactor
    recall: Recall
    info: ModelInfo
    keeper: OutputKeeper | None = None
    recaller: Recaller | None = None
    reminder: Reminder | None = None
    said: Message | None = None
    has_handed_out: bool = False
    edits: tuple[AppliedEdit, ...] = ()
    planner: Planner = field(init=False)
    _unoffered: StepRequest = field(init=False)

    def __post_init__(self) -> None:
        request, step, has_answer = self.shape.request, self.shape.step, self.said is not None
        enabled = self.compactor.settings.compaction.enabled
        wanted = request.compaction if step == 1 and enabled and not has_answer else None
        self._unoffered = self.shape
        shortener = Shortener(
            self.manager,
            self.counter.text,
            self.keeper,
            has_edits=bool(request.edits) and step == 1,
            shortens=enabled,
            has_reader=READ_TOOL in map(tool_name, map(dict, self.shape.tools)),
        )
        is_first = step == 1 and not has_answer
        is_new = is_first and "assistant" not in map(itemgetter("role"), request.messages)
        self.planner = Planner(self.manager, shortener, step, wanted.at if wanted is not None else None, is_new)
        self.use(self.shape)

    def _tools_of_client(self) -> ClientTools | None:
        """Return what is known of the client's tools where it runs all, so that what they return can be masked."""
        compactor, owner = self.compactor, self.shape.request.caller.owner
        chosen = compactor.settings.tool_output
        if compactor.target.agent is not None or not chosen.enabled:
            return None
        engine = engine_of(compactor.settings.shared, (compactor.target.provider.id, self.info.id))
        return ClientTools(chosen.kinds, lambda text: ref_to(owner, text).id, self.counter.text, engine)

    def after(self, reply: Message, said: Message) -> "PromptFit":
        """Return what makes room after the reply, which the client has as `said`, for a next message."""
        manager = AgentContextManager(self.manager.budget, history=self.manager.history.followed_by(reply))
        return replace(self, counter=replace(self.counter), manager=manager, said=said)

    async def run(self, plan: Work[T]) -> T:
        """Carry a plan out, and return what comes of it. A cancellation or failure ends it where it is."""
        return await carried_out(plan, self._done, in_thread=not is_short(self.manager.history.messages))

    async def _done(self, effect: Any) -> Any:
        """Do what a plan needs; return the answer."""
        match effect:
            case Count():
                size = self.counter.least if effect.at_least else self.counter.prompt
                return await size(effect.messages)
            case Aside():
                return await asyncio.to_thread(effect.work)
            case Tell():
                notice = Notice(effect.kind, effect.text, before=effect.before, after=effect.after)
                return await self.compactor.tell([notice])
            case Ask.PINS:
                return await self.recall.pins()
            case TakeResults():
                return await self._take_results(effect)
            case KeepText():
                outputs = self.compactor.settings.shared.store.tool_outputs
                return await outputs.keep(self.shape.request.caller.owner, effect.name, effect.text)
            case Ask.EDITS:
                return await self._edit()
            case Ask.CLIENT_TOOLS:
                return self._tools_of_client()
            case Chosen():
                return self.compactor.note_choice(effect)
            case Keep():
                return await self._keep(effect)
            case _:
                return await self._done_for_compaction(effect)

    async def _done_for_compaction(self, effect: Any) -> Any:
        match effect:
            case Alone():
                return await self._alone(effect)
            case Ask.OTHERS:
                return await self.recall_compactions(), self.recall.begun_with()
            case Flush():
                return await self._flush(effect)
            case Offer():
                return await self._offer(effect)
            case Climb():
                return await self._climb(effect)
            case HandOut():
                return await self.hand_out(effect.written)
            case Ask.LESS:
                if (less := self.recall.put_back_less(self.manager.history)) is not None:
                    self.manager.history = less
                return less is not None
            case Note():
                return self.compactor.note_event(effect.event, effect.before, effect.after)
            case Ask.OVERFLOW:
                return await self.overflow()
            case _:
                raise TypeError(effect)

    async def _edit(self) -> list[Message] | None:
        """Edit what the client has sent as it wants, and keep whole what that clears."""
        chain = self.recall.chain
        edits = self.compactor.settings.edits(self.compactor.target, self.shape.request)
        done = await edits.applied_to(self.manager.history.messages, chain, self.counter.prompt)
        if not done.applied:
            return None
        self.edits = done.applied
        await edits.keep(done, chain)
        return done.messages

    async def _take_results(self, effect: TakeResults) -> list[Message] | None:
        if self.keeper is None:
            return None
        self.keeper.begin_step(self.counter.text, self.manager.budget.window, effect.fixed, effect.room)
        return await self.keeper.take_in(self.manager.history.messages, self.recall.of_client)

    async def _keep(self, effect: Keep) -> None:
        """Keep the history for later turns; of a compaction it is told, and a next memory flush may come."""
        history, done = self.manager.history, effect.done
        if done is not None:
            self.compactor.note(done, effect.messages, self.shape.request.focus)
        if self.said is None:
            self.recall.keeping.keep(history, effect.written)
        else:
            self.recall.keeping.keep_with_answer(history, self.said, effect.written)
        if done is None:
            return
        if (flush := self.flush()) is not None:
            flush.begin_cycle()
        job, memories = self.compactor.job, self.shape.memories
        if self.said is None:
            await self.hand_out(effect.written)
        elif job is not None and not job.waiting:
            self.recall.note_summarised(self.said, done.before, done.after)
        if memories is not None:
            await memories.refresh(self.recall.chain, self.counter.text)
            if self.said is not None:
                memories.end(self.recall.chain, self.recall.keeping.answer_key(self.said))

    async def _alone(self, effect: Alone) -> Any:
        """Carry a plan out while nobody else compacts: of several that have waited in vain only one does."""
        lock = self.recall.lock()
        if (waits := lock.locked()) and effect.tells:
            await self.compactor.tell_of_another()
        async with lock as has_waited:
            return await self.run(effect.plan(waits or has_waited))

    async def _flush(self, effect: Flush) -> None:
        if (flush := self.flush()) is None:
            return
        job = self.compactor.job
        try:
            if job is not None:
                job.is_flushing = True
            await flush.run(*effect.histories)
        finally:
            if job is not None:
                job.is_flushing = False

    async def _offer(self, effect: Offer) -> bool:
        if effect.is_offered:
            self._unoffered = self.shape
            await self.offer_recall()
        elif self.recaller is not None:
            self.recaller.is_offered = False
            self.use(self._unoffered)
        return self.shape is not self._unoffered

    async def _climb(self, effect: Climb) -> Compaction | Cannot:
        """Ask for a compaction after the beginning that the engine has read: without a tool that is offered now."""
        asked, history, foresees = self._unoffered, effect.prompt, effect.purpose.foresees
        transcript, messages = history.transcript, history.messages[: -1 if foresees else None]
        is_unfinished = history.is_stopped or self.recall.has_unfinished_answer(self.said)
        state = "in progress" if is_unfinished else state_of(transcript.groups[-2:-1]) if foresees else None
        source = ConversationSource(
            asked,
            self.info,
            lambda said: asked.with_instructions(history.joined(said)),
            state,
            await self.compactor.removed_calls(self.keeper, messages),
            foresees,
            is_preview=effect.purpose == PREVIEW,
            is_kept=effect.purpose.is_kept,
            is_unfinished=is_unfinished,
        )
        return await self.compactor.compact(transcript, effect.decision, self.manager.budget, self.counter, source)

    async def hand_out(self, written: Written | None) -> None:
        """Give a client that can keep it what stands for all that it has sent."""
        wants = self.shape.step == 1 and self.shape.request.compaction is not None
        if written is None or not wants or not self.planner.shortener.shortens or self.manager.history.is_stopped:
            return
        handed = self.recall.keeping.handed_out(self.manager.history, written, sum(self.compactor.used, StepUsage()))
        self.has_handed_out = True
        await self.compactor.tell([handed])

    async def recall_compactions(self, *, waits: bool = True) -> bool:
        """Take over what other requests have compacted of this conversation; tell whether there is something."""
        manager, size = self.manager, self.counter.prompt
        manager.history, found = await self.recall.recall(manager.history, manager.budget, size, waits=waits)
        if self.recall.has_summary:
            await self.offer_recall()
            if self.reminder is not None:
                self.reminder.begin(manager.history)
        return found

    async def carry_out(self, decision: Decision, *, has_said: bool) -> bool:
        """Do what was decided; return whether the prompt may be sent, with what the person's message is about.

        Raises ContextOverflow where it may not and the reply `has_said` nothing yet.
        """
        is_fine = isinstance(decision, Send) and not decision.is_doubtful and self.planner.refusal is None
        fits = is_fine or await self.run(self.planner.carry_out(decision, has_said=has_said))
        manager = self.manager
        may_be_gone = self.recall.has_summary or manager.history.changes  # else all that was said is there
        if fits and not has_said and self.reminder is not None and self.shape.step == 1 and may_be_gone:
            size = await self.counter.prompt(manager.history.messages)
            empty = await without_conversation(manager.history.messages, self.counter)
            room = room_for_passages(manager.budget, empty, size)
            manager.history = await self.reminder.reminded(manager.history, room, self.counter.text)
        return fits

    async def offer_recall(self) -> None:
        """Offer the tool that finds what is compacted away, from now on, where that leaves the window its room."""
        recaller = self.recaller
        if recaller is None or recaller.is_offered or not self.shape.takes_more_tools:
            return
        if await has_room_for(recaller.tool.spec, self.manager.history.messages, self.counter, self.manager.budget):
            recaller.is_offered = True
            self.use(self.shape.offering(recaller.tool.spec))

    def use(self, shape: StepRequest) -> None:
        """Send and count from now on with this request."""
        self.shape, manager = shape, self.manager
        self.counter.use(shape.body(()), lambda messages: shape.with_instructions(manager.history.sent(messages)))

    async def tell_that_it_is_tight(self) -> None:
        """Tell the person once in a conversation that little room is left for it, and what takes the rest."""
        if not self.planner.is_new:
            return
        told = await tight_notice(self.manager.history.messages, self.shape, self.counter, self.manager.budget)
        if told:
            line, text = told
            log.warning("%s: %s", self.info.id, text)
            await self.compactor.tell([Notice("tight", text), Notice("tight", line)])

    async def overflow(self) -> ContextOverflow:
        """Return the error for a history that cannot fit."""
        chosen = self.compactor.settings.compaction
        switched_off = "" if self.manager.auto else "compaction.auto" if chosen.enabled else "compaction.enabled"
        messages, budget = self.manager.history.messages, self.manager.budget
        return await overflow_error(messages, self.shape, self.counter, budget, switched_off=switched_off)

    def flush(self) -> MemoryFlush | None:
        """Return the memory flush of the conversation; None where its agent cannot save anything."""
        flush = memory_flush(
            self.compactor, self.shape, self.info, self.counter, self.recall, self.manager.budget, self._dressed
        )
        return (
            flush.with_answer(self.recall.keeping.answer_key(self.said)) if flush is not None and self.said else flush
        )

    def _dressed(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a history as the conversation's own model gets it, without the order to go on that may follow it."""
        return self.shape.with_instructions(self.manager.history.joined(messages))


async def room_for_result(manager: AgentContextManager, counter: StepCounter) -> ResultRoom:
    """Return how much room a result of a tool has in the next step."""
    size = await without_conversation(manager.history.messages, counter)
    return ResultRoom(room_for_results(manager.budget, size) // 2, counter.text)
