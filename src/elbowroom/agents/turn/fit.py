"""Carries out what a `Planner` decides about the history of a model step: counts, asks, keeps, and tells the person."""

import asyncio
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, TypeVar

from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt import StepPrompt, carried_out, is_short
from elbowroom.agents.request import tool_name
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn.compactor import Compactor
from elbowroom.agents.turn.flush import MemoryFlush, memory_flush
from elbowroom.agents.turn.recall import Recall
from elbowroom.agents.turn.reminder import Reminder
from elbowroom.agents.turn.room import overflow_error
from elbowroom.context.budget import Decision, Send
from elbowroom.context.conversation import StepUsage
from elbowroom.context.effects import Aside, Ask, Count, KeepText, Tell, Work
from elbowroom.context.fitting import Keep, Note, Shortener, TakeResults
from elbowroom.context.ledger import Written
from elbowroom.context.masking import Chosen
from elbowroom.context.outputs import READ_TOOL, AppliedEdit
from elbowroom.context.planner import Alone, Climb, Flush, HandOut, Offer, Planner
from elbowroom.context.transcript import Message
from elbowroom.errors import ContextOverflow

T = TypeVar("T")


@dataclass(slots=True)
class PromptFit:
    """Drives the `planner` of one model step, or of the work after it, over the history of `prompt`.

    `keeper` keeps whole results of tools where the model can read them again. `reminder` is None where nothing comes
    back unasked. `said` is the answer as the client has it, once the history holds one that no client has sent.
    `has_handed_out` tells that the client has got a compaction of what it has sent; `edits` are those of the client
    that were applied.
    """

    prompt: StepPrompt
    compactor: Compactor
    recall: Recall
    keeper: OutputKeeper | None = None
    reminder: Reminder | None = None
    said: Message | None = None
    has_handed_out: bool = False
    edits: tuple[AppliedEdit, ...] = ()
    planner: Planner = field(init=False)

    def __post_init__(self) -> None:
        shape, manager, enabled = self.prompt.shape, self.prompt.manager, self.compactor.settings.compaction.enabled
        request, is_first = shape.request, shape.step == 1 and self.said is None
        wanted = request.compaction if enabled and is_first else None
        shortener = Shortener(
            manager,
            self.prompt.text,
            self.keeper,
            has_edits=bool(request.edits) and shape.step == 1,
            shortens=enabled,
            has_reader=READ_TOOL in map(tool_name, map(dict, shape.tools)),
        )
        is_new = is_first and "assistant" not in map(itemgetter("role"), request.messages)
        self.planner = Planner(manager, shortener, shape.step, wanted.at if wanted is not None else None, is_new)

    def after(self, reply: Message, said: Message) -> "PromptFit":
        """Return what makes room after the reply, which the client has as `said`, for a next message."""
        return replace(self, prompt=self.prompt.after(reply), said=said)

    async def run(self, plan: Work[T]) -> T:
        """Carry a plan out, and return what comes of it. A cancellation or failure ends it where it is."""
        return await carried_out(plan, self._done, in_thread=not is_short(self.prompt.manager.history.messages))

    async def _done(self, effect: Any) -> Any:
        """Do what a plan needs; return the answer."""
        match effect:
            case Count():
                size = self.prompt.least if effect.at_least else self.prompt.most
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
                return await outputs.keep(self.prompt.shape.request.caller.owner, effect.name, effect.text)
            case Ask.EDITS:
                return await self._edit()
            case Ask.CLIENT_TOOLS:
                return self.compactor.client_tools(self.prompt)
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
                return await flush.run(*effect.histories) if (flush := self.flush()) is not None else None
            case Offer():
                return await self.prompt.offer() if effect.is_offered else self.prompt.take_back()
            case Climb():
                is_unfinished = self.recall.has_unfinished_answer(self.said)
                return await self.compactor.compact(effect, self.prompt, self.keeper, is_unfinished=is_unfinished)
            case HandOut():
                return await self.hand_out(effect.written)
            case Ask.LESS:
                if (less := self.recall.put_back_less(self.prompt.manager.history)) is not None:
                    self.prompt.manager.history = less
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
        edits = self.compactor.settings.edits(self.compactor.target, self.prompt.shape.request)
        done = await edits.applied_to(self.prompt.manager.history.messages, chain, self.prompt.most)
        if not done.applied:
            return None
        self.edits = done.applied
        await edits.keep(done, chain)
        return done.messages

    async def _take_results(self, effect: TakeResults) -> list[Message] | None:
        if self.keeper is None:
            return None
        manager = self.prompt.manager
        self.keeper.begin_step(self.prompt.text, manager.budget.window, effect.fixed, effect.room)
        return await self.keeper.take_in(manager.history.messages, self.recall.of_client)

    async def _keep(self, effect: Keep) -> None:
        """Keep the history for later turns; of a compaction it is told, and a next memory flush may come."""
        done, shape, keeping = effect.done, self.prompt.shape, self.recall.keeping
        if done is not None:
            self.compactor.note(done, effect.messages, shape.request.focus)
        keeping.keep(self.prompt.manager.history, effect.written, self.said)
        if done is None:
            return
        if (flush := self.flush()) is not None:
            flush.begin_cycle()
        job, memories = self.compactor.job, shape.memories
        if self.said is None:
            await self.hand_out(effect.written)
        elif job is not None and not job.waiting:
            self.recall.note_summarised(self.said, done.before, done.after)
        if memories is not None:
            await memories.refresh(self.recall.chain, self.prompt.text)
            if self.said is not None:
                memories.end(self.recall.chain, keeping.answer_key(self.said))

    async def _alone(self, effect: Alone) -> Any:
        """Carry a plan out while nobody else compacts: of several that have waited in vain only one does."""
        lock = self.recall.lock()
        if (waits := lock.locked()) and effect.tells:
            await self.compactor.tell_of_another()
        async with lock as has_waited:
            return await self.run(effect.plan(waits or has_waited))

    async def hand_out(self, written: Written | None) -> None:
        """Give a client that can keep it what stands for all that it has sent."""
        shape, history = self.prompt.shape, self.prompt.manager.history
        wants = shape.step == 1 and shape.request.compaction is not None
        if written is None or not wants or not self.planner.shortener.shortens or history.is_stopped:
            return
        handed = self.recall.keeping.handed_out(history, written, sum(self.compactor.used, StepUsage()))
        self.has_handed_out = True
        await self.compactor.tell([handed])

    async def recall_compactions(self, *, waits: bool = True) -> bool:
        """Take over what other requests have compacted of this conversation; tell whether there is something."""
        manager, size = self.prompt.manager, self.prompt.most
        manager.history, found = await self.recall.recall(manager.history, manager.budget, size, waits=waits)
        if self.recall.has_summary:
            await self.prompt.offer()
            if self.reminder is not None:
                self.reminder.begin(manager.history)
        return found

    async def carry_out(self, decision: Decision, *, has_said: bool) -> bool:
        """Do what was decided; return whether the prompt may be sent, with what the person's message is about.

        Raises ContextOverflow where it may not and the reply `has_said` nothing yet.
        """
        is_fine = isinstance(decision, Send) and not decision.is_doubtful and self.planner.refusal is None
        fits = is_fine or await self.run(self.planner.carry_out(decision, has_said=has_said))
        may_be_gone = self.recall.has_summary or self.prompt.manager.history.changes  # else all that was said is there
        if fits and not has_said and self.reminder is not None and self.prompt.shape.step == 1 and may_be_gone:
            await self.reminder.remind(self.prompt)
        return fits

    async def overflow(self) -> ContextOverflow:
        """Return the error for a history that cannot fit."""
        return await overflow_error(self.prompt, self.compactor.settings.compaction)

    def flush(self) -> MemoryFlush | None:
        """Return the memory flush of the conversation; None where its agent cannot save anything."""
        return memory_flush(self.compactor, self.prompt, self.recall, self.said)
