"""Makes one step's history fit its model's window: by an earlier compaction, by shorter results, or by a new one."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from elbowroom.agents.admission import Job
from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt import StepCounter, StepRequest
from elbowroom.agents.tools.outputs import OutputKeeper
from elbowroom.agents.turn.compactor import Compactor, ConversationSource
from elbowroom.agents.turn.flush import MemoryFlush, memory_flush
from elbowroom.agents.turn.history import History
from elbowroom.agents.turn.recall import TurnMemory, Written
from elbowroom.agents.turn.room import fitting_results, overflow_error, tight_notice
from elbowroom.context.budget import Compact, Decision, Measure, Refuse, Send
from elbowroom.context.compaction import Cannot, Compaction, smallest
from elbowroom.context.ledger import is_system
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.transcript import Message, Transcript, written
from elbowroom.errors import ContextOverflow
from elbowroom.providers.base import ModelInfo


async def decide(
    messages: Sequence[Message],
    counter: StepCounter,
    manager: AgentContextManager,
    *,
    must_shrink: bool = False,
    tells_tight: bool = False,
) -> Decision:
    """Return what to do with a history; with `must_shrink` it needs room even below the trigger.

    The fixed cost, a second count, is measured only where the decision depends on it, or with `tells_tight` whether
    most of the window is taken by it.
    """
    budget = manager.budget
    prompt = await counter.prompt(messages)
    occupied = budget.occupied(prompt)
    matters = occupied >= budget.trigger or ((must_shrink or tells_tight) and occupied > budget.window // 2)
    fixed = await counter.prompt(smallest(messages)) if matters else 0
    decision = manager.before_request(Measure(prompt, fixed))
    target = budget.target(budget.occupied(fixed))
    if must_shrink and isinstance(decision, Send) and occupied > target:
        return Compact(target, is_tight=decision.is_tight)
    return decision


async def by_hand(
    messages: Sequence[Message], counter: StepCounter, manager: AgentContextManager
) -> tuple[int, Compact]:
    """Return a history's size, and the order to compact it below the trigger too: by half of what can be freed."""
    budget = manager.budget
    before, fixed = await counter.prompt(messages), await counter.prompt(smallest(messages))
    halved = (budget.occupied(before) + budget.occupied(fixed)) // 2
    return before, Compact(min(budget.target(budget.occupied(fixed)), halved))


log = logging.getLogger(__name__)
NOTHING_ASKED: Final[Message] = {"role": "user", "content": "-"}
PRUNED: Final = "pruned"


@dataclass(frozen=True, slots=True)
class ResultPruning:
    """Changes `history` without a model; what it becomes of the client's part is kept in `memory` for later turns."""

    keeper: OutputKeeper
    counter: StepCounter
    history: History
    manager: AgentContextManager
    memory: TurnMemory

    async def begin_step(self) -> None:
        """Keep what has come in, let the model have views of what is too large, and shorten what is due."""
        whole = self.history.messages
        budget = self.manager.budget
        empty = [*filter(is_system, whole), NOTHING_ASKED]
        fixed = budget.occupied(await self.counter.prompt(empty))
        self.keeper.begin_step(self.counter.text, budget.window, fixed)
        seen = await self.keeper.take_in(whole, self.memory.of_client) or whole
        await self._take_over(whole, self.keeper.pruned(seen, must_shrink=False) or seen)

    async def free(self, *, at_any_gain: bool = False) -> bool:
        """Shorten all that may be shortened: the prompt has to shrink. Tell whether that brought enough."""
        whole = self.history.messages
        shorter = self.keeper.pruned(whole, must_shrink=True, at_any_gain=at_any_gain)
        if shorter is None:
            return False
        await self._take_over(whole, shorter)
        return True

    async def _take_over(self, whole: Sequence[Message], shorter: Sequence[Message]) -> None:
        if shorter is whole:
            return
        before = self.history.of_client
        self.history.shorten(shorter)
        after = await self.counter.prompt(shorter)
        freed = sum(
            self._size_of(old) - self._size_of(new) for old, new in zip(whole, shorter, strict=True) if old is not new
        )
        log.info("Results of tools are shortened: %d tokens instead of about %d.", after, after + freed)
        if self.history.of_client != before:
            self.memory.keep(self.history, Written(self.manager.budget.window, after + freed, after, PRUNED))

    def _size_of(self, message: Message) -> int:
        """Return about how many tokens a message has: the whole prompt may hold what takes too long to count."""
        return self.counter.text(written(message))


@dataclass(frozen=True, slots=True)
class Fitting:
    """Decides about `history` and changes it; what it becomes is kept in `memory` for later turns.

    There is no `pruning` where the model could not read again what is shortened.
    """

    shape: StepRequest
    counter: StepCounter
    history: History
    manager: AgentContextManager
    compactor: Compactor
    memory: TurnMemory
    pruning: ResultPruning | None = None
    _unshortened: list[list[Message]] = field(default_factory=list)

    @property
    def keeper(self) -> OutputKeeper | None:
        """Return what keeps results so that the model can read them again."""
        return self.pruning.keeper if self.pruning is not None else None

    async def first_decision(self) -> Decision:
        """Return what to do with the history as it has come in, results in it shortened where they are too large."""
        await self._take_in()
        return await self.next_decision()

    async def next_decision(self, *, must_shrink: bool = False) -> Decision:
        """Return what to do with the history now, as `decision`; what old results can free needs no compaction."""
        decision = await self.decision(must_shrink=must_shrink)
        whole = self.history.messages
        self._unshortened.clear()
        if isinstance(decision, Compact) and self.pruning is not None and await self.pruning.free():
            self._unshortened.append(whole)
            return await self.decision(must_shrink=must_shrink)
        return decision

    async def decision(self, *, must_shrink: bool = False) -> Decision:
        """Return what to do with the history now; with `must_shrink` it needs room even below the trigger."""
        return await decide(
            self.history.messages,
            self.counter,
            self.manager,
            must_shrink=must_shrink,
            tells_tight=self._is_new_conversation,
        )

    async def compact(self, decision: Compact, info: ModelInfo) -> Compaction | Cannot | None:
        """Compact the history, and take over what comes of it.

        None where another request with the same messages has done it meanwhile: then there is something to decide anew.
        """
        if self.shape.step > 1 or self.history.is_stopped:
            return await self._flush_then_compact(decision, info)
        lock = self.memory.lock()
        if not lock.locked():
            async with lock:
                return await self._flush_then_compact(decision, info)
        await self.compactor.tell_of_another()
        async with lock:  # held while looking: of several that have waited in vain only one compacts
            if not await self.recall():
                return await self._flush_then_compact(decision, info)
        await self.compactor.tell_done_by_another()
        return None

    async def _flush_then_compact(self, decision: Compact, info: ModelInfo) -> Compaction | Cannot:
        """Let the agent save what must last of the conversation as it stands, whatever the occasion; then compact."""
        flush = self.flush(info)
        if flush is not None:
            await flush.run(*self._unshortened, self.history.messages)
        outcome = await self._compacted(decision, info)
        if flush is not None and isinstance(outcome, Compaction):
            flush.begin_cycle()
        return outcome

    def flush(self, info: ModelInfo) -> MemoryFlush | None:
        """Return what lets the agent save what must last; None where it cannot."""
        return memory_flush(
            self.compactor, self.shape, info, self.counter, self.memory, self.manager.budget, self._dressed
        )

    def _dressed(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a history as it is sent to the conversation's own model, without the order to go on behind it."""
        return self.shape.with_instructions(self.history.joined(messages))

    async def _compacted(self, decision: Compact, info: ModelInfo) -> Compaction | Cannot:
        if self.pruning is not None:
            await self.pruning.free(at_any_gain=True)
        source = ConversationSource(
            self.shape,
            info,
            self._dressed,
            "in progress" if self.history.is_stopped else None,
            await self.compactor.removed_calls(self.keeper, self.history.messages),
        )
        transcript = Transcript.of(self.history.messages)
        outcome = await self.compactor.compact(transcript, decision, self.manager.budget, self.counter, source)
        if isinstance(outcome, Compaction):
            self.history.replace(outcome.messages, outcome.tail)
            self.manager.compacted(outcome.before, outcome.after, outcome.rung)
            self.compactor.note(outcome, len(transcript.messages))
            self.memory.keep(self.history, Written.by(outcome, self.manager.budget))
            if self.shape.memories is not None:
                await self.shape.memories.refresh(self.memory.chain, self.counter.text)
        else:
            self.manager.could_not_compact()
            self.compactor.note_failure()
        return outcome

    async def compact_by_hand(self, info: ModelInfo) -> tuple[int, Compaction | Cannot]:
        """Compact because a person wants it, below the trigger too; return the size before as well."""
        await self._take_in()
        before, decision = await by_hand(self.history.messages, self.counter, self.manager)
        return before, await self._flush_then_compact(decision, info)

    async def fits_window(self) -> bool:
        """Tell whether the prompt can be sent, even without the reserve for its reply."""
        return await self.counter.prompt(self.history.messages) < self.manager.budget.window

    async def overflow(self) -> ContextOverflow:
        """Return the error for a history that cannot fit."""
        return await overflow_error(
            self.history.messages, self.shape, self.counter, self.manager.budget, auto=self.manager.auto
        )

    async def tell_if_tight(self, decision: Decision, model: str) -> None:
        """Tell the person once in a conversation that little room is left for it, and what takes the rest."""
        if isinstance(decision, Refuse) or not decision.is_tight or not self._is_new_conversation:
            return
        text = await tight_notice(self.history.messages, self.shape, self.counter, self.manager.budget)
        if text:
            log.warning("%s: %s", model, text)
            await self.compactor.tell([Notice("tight", text)])

    @property
    def _is_new_conversation(self) -> bool:
        asked = (message for message in self.shape.request.messages if message.get("role") == "user")
        return self.shape.step == 1 and len(list(islice(asked, 2))) < 2

    async def catch_up(self, job: Job) -> None:
        """Let a compaction that was begun behind the last answer be this turn's, where one is needed at all."""
        try:
            decision = await self.decision()
        except Exception:  # noqa: BLE001  # whoever decides next will say so
            return
        if not isinstance(decision, Compact):
            job.leave_out()  # behind this turn's answer it would be done once more
            return
        outcome = await self.compactor.await_job(job)
        if isinstance(outcome, Compaction):
            await self.recall()
        elif outcome is not None:
            self.manager.could_not_compact()

    async def recall(self) -> bool:
        """Take over what has been compacted of this conversation by others; tell whether there is something."""
        return await self.memory.recall(self.history, self.manager.budget, self.counter.prompt)

    async def _take_in(self) -> None:
        """Let the model have of results that have come in as much as there is room for."""
        try:
            if self.pruning is not None:
                await self.pruning.begin_step()
            await self._shorten_results()
        finally:
            if self.keeper is not None:
                self.keeper.let_go()

    async def _shorten_results(self) -> None:
        """Check 2: let results that came in just now stand whole where they fit, else as beginning and end."""
        whole = self.history.messages
        fitting = await fitting_results(whole, self.counter, self.manager, self.keeper.shorter if self.keeper else None)
        if fitting is None:
            return
        self.history.shorten(fitting)
        sizes = await self.counter.prompt(whole), await self.counter.prompt(fitting)
        self.memory.keep(self.history, Written(self.manager.budget.window, *sizes, "shortened results"))
