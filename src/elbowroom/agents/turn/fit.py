"""Makes the history of a model step fit the window: by an earlier compaction, shorter results, or a new compaction."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from elbowroom.agents.admission import Job
from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt import StepCounter, StepRequest, fitting_material
from elbowroom.agents.request import CompactionRequest, tool_name
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.tools.recall import Recaller, ResultRoom
from elbowroom.agents.turn.compactor import Compactor, ConversationSource
from elbowroom.agents.turn.flush import MemoryFlush, memory_flush
from elbowroom.agents.turn.recall import PRUNED, SHORTENED, UNCHANGED, Recall, Written
from elbowroom.agents.turn.room import (
    by_hand,
    cut_results,
    decide,
    fitting_results,
    freed_by,
    has_room_for,
    overflow_error,
    smallest_of,
    tight_notice,
    without_conversation,
)
from elbowroom.context.budget import Compact, Decision, Refuse, Send
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.context.conversation import StepUsage
from elbowroom.context.manager import AgentContextManager, room_for_results
from elbowroom.context.outputs import READ_TOOL, AppliedEdit
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message
from elbowroom.errors import ContextOverflow
from elbowroom.providers.base import ModelInfo

log = logging.getLogger(__name__)
PASSES: Final = 2
"""How often results are made to fit: what is left of a text may need more tokens a letter than the whole did."""
OLD: Final = "Old results of tools are shortened: {:,} tokens became {:,}."


@dataclass(slots=True)
class PromptFit:
    """Decides about the history of `manager` and changes it until it fits; `recall` keeps the result for later turns.

    `keeper` keeps whole results of tools where the model can read them again; without one, old results are not
    shortened. `recaller` is None where its tool must not be offered. `refusal` is the overflow by which the engine has
    refused the history as it is. `has_handed_out` tells that the client has got a compaction of what it has sent;
    `edits` are those of the client that were applied. `pins` are the messages that a person has pinned, by their
    keys, None until a compaction asks for them.
    """

    shape: StepRequest
    counter: StepCounter
    manager: AgentContextManager
    compactor: Compactor
    recall: Recall
    keeper: OutputKeeper | None = None
    recaller: Recaller | None = None
    refusal: ContextOverflow | None = None
    has_handed_out: bool = False
    edits: tuple[AppliedEdit, ...] = ()
    pins: Mapping[str, Message] | None = None
    _unshortened: list[Message] | None = None

    @property
    def history(self) -> Prompt:
        """Return the conversation as the model gets it now."""
        return self.manager.history

    async def recall_compactions(self, *, waits: bool = True) -> bool:
        """Take over what other requests have compacted of this conversation; tell whether there is something."""
        manager, size = self.manager, self.counter.prompt
        manager.history, found = await self.recall.recall(manager.history, manager.budget, size, waits=waits)
        if self.recall.has_summary:
            await self.offer_recall()
        return found

    async def offer_recall(self) -> None:
        """Offer the tool that finds what is compacted away, from now on, where that leaves the window its room."""
        recaller = self.recaller
        if recaller is None or recaller.is_offered or not self.shape.takes_more_tools:
            return
        if await has_room_for(recaller.tool.spec, self.history.messages, self.counter, self.manager.budget):
            recaller.is_offered = True
            self._use(self.shape.offering(recaller.tool.spec))

    async def offering_recall(self, decision: Compact, counter: StepCounter) -> tuple[StepRequest, Compact]:
        """Offer it before a compaction, whose target grows by the tool; return the request as it was before as well."""
        before, messages = self.shape, self.history.messages
        size = await counter.prompt(messages)
        await self.offer_recall()
        if self.shape is before:
            return before, decision
        if counter is not self.counter:
            counter.use(self.shape.body(()), self.shape.with_instructions)
        return before, replace(decision, target=decision.target + await counter.prompt(messages) - size)

    def _use(self, shape: StepRequest) -> None:
        self.shape = shape
        self.counter.use(shape.body(()), lambda messages: shape.with_instructions(self.history.sent(messages)))

    async def room(self) -> ResultRoom:
        """Return how much room a result of a tool has in the next step."""
        size = await without_conversation(self.history.messages, self.counter)
        return ResultRoom(room_for_results(self.manager.budget, size) // 2, self.counter.text)

    async def catch_up(self, job: Job) -> None:
        """Wait for a compaction that began after the last answer, where this turn needs one; else end it."""
        try:
            decision = await self.decision()
        except Exception:  # noqa: BLE001  # the next decision meets the same error and tells it
            return
        if not isinstance(decision, Compact):
            job.cancel_unless_awaited()  # after this turn's answer the work would be done once more
            return
        chosen = self.compactor.settings.compaction
        try:
            outcome = await self.compactor.await_job(job, chosen.max_pruning_seconds or None)
        except TimeoutError:
            self.manager.give_up_pruning()
            return
        if isinstance(outcome, Compaction):
            await self.recall_compactions()
        elif outcome is not None:
            self.manager.could_not_compact()

    async def first_decision(self) -> Decision:
        """Return what to do with the history as it has come in, after shortening results that are too large."""
        await self._take_in()
        return await self.next_decision()

    async def next_decision(self, *, must_shrink: bool = False) -> Decision:
        """Return what to do with the history now; shortening old results may spare a compaction."""
        decision = await self.decision(must_shrink=must_shrink)
        whole = self.history.messages
        self._unshortened = None
        if isinstance(decision, Compact) and await self._free():
            self._unshortened = whole
            return await self.decision(must_shrink=must_shrink)
        return decision

    async def decision(self, *, must_shrink: bool = False) -> Decision:
        """Return what to do with the history now; with `must_shrink` it needs room even below the trigger."""
        while True:
            tells, asked = self._is_new_conversation, self._asked
            decision = await decide(
                self.history, self.counter, self.manager, must_shrink=must_shrink, tells_tight=tells, asked=asked
            )
            if not isinstance(decision, Compact) or self.pins is not None or not await self.find_pins():
                return decision

    async def find_pins(self) -> bool:
        """Pin what the person has pinned; tell whether there is something."""
        if self.pins is None:
            self.pins = await self.recall.pins()
        self.manager.history = self.history.pinned(self.pins)
        return bool(self.pins)

    @property
    def _asked(self) -> CompactionRequest | None:
        """Return what the client wants of compactions, while the history stands for what the client has sent alone."""
        stands = self.shape.step == 1 and not self.history.is_stopped and self.compactor.settings.compaction.enabled
        return self.shape.request.compaction if stands else None

    async def tell_if_tight(self, decision: Decision, model: str) -> None:
        """Tell the person once in a conversation that little room is left for it, and what takes the rest."""
        if isinstance(decision, Refuse) or not decision.is_tight or not self._is_new_conversation:
            return
        told = await tight_notice(self.history.messages, self.shape, self.counter, self.manager.budget)
        if told:
            line, text = told
            log.warning("%s: %s", model, text)
            await self.compactor.tell([Notice("tight", text), Notice("tight", line)])

    @property
    def _is_new_conversation(self) -> bool:
        has_answer = any(message.get("role") == "assistant" for message in self.shape.request.messages)
        return self.shape.step == 1 and not has_answer

    async def carry_out(self, decision: Decision, info: ModelInfo, *, has_said: bool) -> bool:
        """Do what was decided; tell whether the prompt may be sent.

        Raises ContextOverflow where it may not and the reply `has_said` nothing yet.
        """
        if isinstance(decision, Compact):
            outcome = await self.compact(decision, info)
            if not isinstance(outcome, Cannot):
                self.refusal = None
            if outcome is None:
                return await self.carry_out(await self.first_decision(), info, has_said=has_said)
        if self.refusal is None and (  # else the engine has refused the very same prompt
            isinstance(decision, Send) or (not isinstance(decision, Refuse) and await self._fits_window())
        ):
            return True
        if has_said:
            return False
        if (less := self.recall.put_back_less(self.history)) is not None:
            self.manager.history, self.refusal = less, None
            return await self.carry_out(await self.first_decision(), info, has_said=has_said)
        raise self.refusal or await self.overflow()

    async def _fits_window(self) -> bool:
        """Tell whether the prompt can be sent, even without the reserve for its reply."""
        return await self.counter.prompt(self.history.messages) < self.manager.budget.window

    async def could_be_freed(self) -> int:
        """Return how many tokens of the history a compaction could free at most."""
        least = await smallest_of(self.history.pinned({}).transcript)
        return max(0, await self.counter.prompt(self.history.messages) - await self.counter.prompt(least))

    async def overflow(self) -> ContextOverflow:
        """Return the error for a history that cannot fit."""
        chosen = self.compactor.settings.compaction
        switched_off = "" if self.manager.auto else "compaction.auto" if chosen.enabled else "compaction.enabled"
        messages, budget = self.history.messages, self.manager.budget
        return await overflow_error(messages, self.shape, self.counter, budget, switched_off=switched_off)

    async def compact(self, decision: Compact, info: ModelInfo) -> Compaction | Cannot | None:
        """Compact the history, and take over the outcome.

        Return None where another request with the same messages has compacted them meanwhile: then decide anew.
        """
        if self.shape.step > 1 or self.history.is_stopped:
            return await self._flush_then_compact(decision, info)
        lock = self.recall.lock()
        if waits := lock.locked():
            await self.compactor.tell_of_another()
        async with lock as has_waited:  # held while looking: of several that have waited in vain only one compacts
            if not (waits or has_waited) or not await self.recall_compactions():
                return await self._flush_then_compact(decision, info)
        await self.compactor.tell_done_by_another()
        return None

    async def compact_by_hand(self, info: ModelInfo) -> tuple[int, Compaction | Cannot | Written]:
        """Compact because a person wants it, below the trigger too; return the size before as well.

        Where another request has compacted the same messages meanwhile, the outcome is how it did.
        """
        lock, known = self.recall.lock(), self.recall.begun_with()
        waits = lock.locked()
        async with lock as has_waited:
            made = self.recall.begun_with() if (waits or has_waited) and await self.recall_compactions() else None
            if made is not None and made != known:
                await self._hand_out(made)
                return made.before, made
            await self._take_in()
            await self.find_pins()
            before, decision = await by_hand(self.history, self.counter, self.manager)
            outcome = await self._flush_then_compact(decision, info)
        if not isinstance(outcome, Compaction):
            await self._hand_out(Written(self.manager.budget.window, before, before, UNCHANGED))
        return before, outcome

    async def preview(self, info: ModelInfo, *, asks_pruner: bool) -> tuple[int, Compaction | Cannot]:
        """Compact as by hand and keep nothing of it; return the size before as well."""
        await self.find_pins()
        before, decision = await by_hand(self.history, self.counter, self.manager)
        return before, await self._shorter(replace(decision, asks_pruner=asks_pruner), info, is_preview=True)

    async def _flush_then_compact(self, decision: Compact, info: ModelInfo) -> Compaction | Cannot:
        """Let the agent save what must last of the conversation, then compact it."""
        flush = self.flush(info)
        if flush is not None:
            whole = [self._unshortened] if self._unshortened is not None else []
            await flush.run(*whole, self.history.messages)
        outcome = await self._compacted(decision, info)
        if flush is not None and isinstance(outcome, Compaction):
            flush.begin_cycle()
        return outcome

    def flush(self, info: ModelInfo) -> MemoryFlush | None:
        """Return the memory flush of the conversation; None where its agent cannot save anything."""
        return memory_flush(
            self.compactor, self.shape, info, self.counter, self.recall, self.manager.budget, self._dressed
        )

    def _dressed(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a history as the conversation's own model gets it, without the order to go on that may follow it."""
        return self.shape.with_instructions(self.history.joined(messages))

    async def _compacted(self, decision: Compact, info: ModelInfo) -> Compaction | Cannot:
        await self._free(at_any_gain=True)
        whole = len(self.history.messages)
        outcome = await self._shorter(decision, info)
        if isinstance(outcome, Compaction):
            self.manager.history = self.history.summarised(outcome.messages, outcome.tail)
            self.manager.compacted(outcome.before, outcome.after, outcome.rung)
            self.compactor.note(outcome, whole, self.shape.request.focus)
            written = Written.by(outcome, self.manager.budget)
            self.recall.keep(self.history, written)
            await self._hand_out(written)
            if self.shape.memories is not None:
                await self.shape.memories.refresh(self.recall.chain, self.counter.text)
        else:
            self.manager.could_not_compact()
            self.compactor.note_failure()
        return outcome

    async def _shorter(self, decision: Compact, info: ModelInfo, *, is_preview: bool = False) -> Compaction | Cannot:
        """Return the history made shorter; it is not changed."""
        asked, decision = await self.offering_recall(decision, self.counter)
        source = ConversationSource(
            asked,  # which the engine has read: the pruning agent is asked after the same beginning
            info,
            self._dressed,
            "in progress" if self.history.is_stopped else None,
            await self.compactor.removed_calls(self.keeper, self.history.messages),
            is_preview=is_preview,
        )
        await self.find_pins()
        transcript, budget = self.history.transcript, self.manager.budget
        outcome = await self.compactor.compact(transcript, decision, budget, self.counter, source)
        if self.recaller is not None and asked is not self.shape and isinstance(outcome, Cannot):
            self.recaller.is_offered = False
            self._use(asked)
        return outcome

    async def hand_out_recalled(self) -> None:
        """Give the client the earlier compaction that stands for what it has sent, where it has got none since."""
        recalled = self.recall.begun_with()
        if recalled is not None and not self.has_handed_out:
            await self._hand_out(recalled)

    async def _hand_out(self, written: Written) -> None:
        """Give a client that can keep it what stands for all that it has sent."""
        if self._asked is not None:
            handed = self.recall.handed_out(self.history, written, sum(self.compactor.used, StepUsage()))
            self.has_handed_out = True
            await self.compactor.tell([handed])

    async def _take_in(self) -> None:
        """Let the model have as much of the results that have come in as there is room for."""
        await self._edit()
        await self._shorten_material()
        whole = self.history.messages
        try:
            if self.keeper is not None:
                await self._keep_results(self.keeper)
            await self._shorten_results()
            await self._tell_cut(whole)
        finally:
            if self.keeper is not None:
                self.keeper.let_go()

    async def _edit(self) -> None:
        """Edit what the client has sent as it wants, and keep whole what that clears."""
        request = self.shape.request
        if not request.edits or self.shape.step > 1:
            return
        chain = self.recall.chain
        edits = self.compactor.settings.edits(self.compactor.target, request)
        done = await edits.applied_to(self.history.messages, chain, self.counter.prompt)
        if done.applied:
            self.edits = done.applied
            self.manager.history = self.history.shortened(done.messages)
            await edits.keep(done, chain)

    async def _shorten_material(self) -> None:
        """Show the beginning and end of files and pasted text that would leave no room; keep the whole.

        Where compaction is off nothing is shortened.
        """
        whole, settings = self.history.messages, self.compactor.settings
        if not settings.compaction.enabled or await self.counter.prompt(whole) < self.manager.budget.window // 2:
            return
        shared, owner = settings.shared, self.shape.request.caller.owner
        outputs = shared.store.tool_outputs
        keep = partial(outputs.keep, owner)
        has_reader = any(tool_name(dict(tool)) == READ_TOOL for tool in self.shape.tools)
        shorter = await fitting_material(self.history, self.counter, self.manager, keep, has_reader=has_reader)
        if shorter is None:
            return
        self.manager.history = self.history.shortened(shorter.messages)
        sizes = await self.counter.prompt(whole), await self.counter.prompt(shorter.messages)
        self.recall.keep(self.history, Written(self.manager.budget.window, *sizes, SHORTENED))
        await self.compactor.tell([shorter.notice])

    async def _keep_results(self, keeper: OutputKeeper) -> None:
        """Keep the results that have come in, show views of those that are too large, and shorten old ones."""
        whole = self.history.messages
        budget = self.manager.budget
        size = await without_conversation(whole, self.counter)
        fixed = budget.occupied(size)
        keeper.begin_step(self.counter.text, budget.window, fixed, room_for_results(budget, size))
        seen = await keeper.take_in(whole, self.recall.of_client) or whole
        await self._take_shorter(whole, seen)
        if (shorter := keeper.pruned(seen, must_shrink=False)) is not None:
            await self._tell_old(await self._take_shorter(seen, shorter))

    async def _free(self, *, at_any_gain: bool = False) -> bool:
        """Shorten all results that may be shortened; tell whether that brought enough."""
        if self.keeper is None:
            return False
        whole = self.history.messages
        shorter = self.keeper.pruned(whole, must_shrink=True, at_any_gain=at_any_gain)
        if shorter is None:
            return False
        sizes = await self._take_shorter(whole, shorter)
        if not at_any_gain:  # else a compaction follows, which is told of
            await self._tell_old(sizes)
        return True

    async def _take_shorter(self, whole: Sequence[Message], shorter: Sequence[Message]) -> tuple[int, int]:
        """Take over a history with shorter results; return the size of its prompt before and after."""
        if shorter is whole:
            return 0, 0
        before = self.history.of_client
        self.manager.history = self.history.shortened(shorter)
        after = await self.counter.prompt(shorter)
        # Their differences are added up: the whole prompt may hold results that take too long to count.
        freed = freed_by(whole, shorter, self.counter.text)
        self.compactor.note_shortened(after + freed, after)
        if self.history.of_client != before:
            self.recall.keep(self.history, Written(self.manager.budget.window, after + freed, after, PRUNED))
        return after + freed, after

    async def _tell_old(self, sizes: tuple[int, int]) -> None:
        await self.compactor.tell([Notice("results shortened", OLD.format(*sizes), before=sizes[0], after=sizes[1])])

    async def _tell_cut(self, whole: Sequence[Message]) -> None:
        """Tell the person which results that have just come in the model does not get whole; `whole` came in."""
        bytes_of = self.keeper.whole_bytes if self.keeper is not None else None
        cut = cut_results(whole, self.history.messages, self.counter.text, bytes_of)
        if cut is not None:
            log.info("%s", cut.text)
            await self.compactor.tell([cut])

    async def _shorten_results(self) -> None:
        """Check 2: leave results that have just come in whole where they fit, else their beginning and end."""
        fitting = await self._fitting()
        if fitting is not None and await self._free():  # what is old makes room first
            fitting = await self._fitting()
        whole, left = self.history.messages, PASSES if self.keeper is not None else 1
        is_whole = fitting is None
        while fitting is not None and left:
            self.manager.history = self.history.shortened(fitting)
            left -= 1
            fitting = await self._fitting() if left else None
        if not is_whole:
            sizes = await self.counter.prompt(whole), await self.counter.prompt(self.history.messages)
            self.recall.keep(self.history, Written(self.manager.budget.window, *sizes, SHORTENED))

    async def _fitting(self) -> list[Message] | None:
        view = self.keeper.shorter if self.keeper is not None else None
        return await fitting_results(self.history.messages, self.counter, self.manager, view)
