"""What happens to a prompt that has to fit its window: decided here, for every purpose, without I/O.

Each method of a `Planner` is a plan: it yields what it needs of the world outside, from a count to the pruning agent,
and is sent the answer. Nothing is changed but the history of its manager, and that only once what follows it is known.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.context.budget import Compact, Decision, Measure, Refuse, Send
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.context.effects import Ask, Tell, Work, counted
from elbowroom.context.fitting import Keep, Note, Shortener
from elbowroom.context.ledger import PRUNED, UNCHANGED, Written
from elbowroom.context.manager import AgentContextManager
from elbowroom.context.masking import masked_instead
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Message, text_of
from elbowroom.errors import ContextOverflow

log = logging.getLogger(__name__)
COMPACTED: Final = "Context compacted, continuing..."
MAY_NOT_FIT: Final = (
    "Send less text, or load the model with more context, if the answer misses something: {least:,} to {most:,} tokens "
    "by our estimate are sent into {window:,}."
)


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a prompt is made to fit for, as far as that makes a difference.

    What `is_kept` stands for the conversation from now on, and the agent may save memories first. Where it
    `must_shrink`, it needs room even below the trigger. With `prunes` results are shortened along with a compaction. A
    compaction that `foresees` leaves room for the next message of the person, who waits for nothing yet: one by code
    alone is not worth that.
    """

    is_kept: bool = True
    must_shrink: bool = False
    prunes: bool = True
    foresees: bool = False


BEFORE_REQUEST: Final = Purpose()
IN_ANSWER: Final = Purpose(must_shrink=True)
PREVIEW: Final = Purpose(is_kept=False, prunes=False)
AHEAD: Final = Purpose(prunes=False, foresees=True)
AHEAD_OF_FULL: Final = Purpose(must_shrink=True, prunes=False, foresees=True)
REHEARSAL: Final = Purpose(is_kept=False, must_shrink=True, prunes=False)


@dataclass(frozen=True, slots=True)
class Offer:
    """Offer the tool that finds what is compacted away, or take it back; whether that changes the request is sent."""

    is_offered: bool = True


@dataclass(frozen=True, slots=True)
class Flush:
    """Let the agent save what must last, from the first of these forms of one conversation that fits."""

    histories: Sequence[Sequence[Message]]


@dataclass(frozen=True, slots=True)
class Climb:
    """Compact this prompt; a `Compaction` or `Cannot` is sent. A summary has to reach the target of the decision.

    A tool that is offered from now on takes `tool` tokens: the size before is told without it.
    """

    prompt: Prompt
    decision: Compact
    purpose: Purpose
    tool: int = 0


@dataclass(frozen=True, slots=True)
class HandOut:
    """Give a client that can keep compactions what stands for all that it has sent."""

    written: Written


@dataclass(frozen=True, slots=True)
class Alone:
    """Carry out this plan while no other request compacts the same messages; its outcome is sent.

    `plan` is told whether another request had them first. With `tells` the person is told of the wait.
    """

    plan: Callable[[bool], Work[object]]
    tells: bool = False


@dataclass(slots=True)
class Planner:
    """Decides about the history of `manager` in one model step, or for work of its own; `shortener` shortens it.

    From `at` tokens on the client wants the history compacted, while it stands for what the client has sent alone.
    `is_new` is a conversation without an answer. `refusal` is the overflow by which the engine has refused the history
    as it is.
    """

    manager: AgentContextManager
    shortener: Shortener
    step: int = 1
    at: int | None = None
    is_new: bool = False
    refusal: ContextOverflow | None = None
    _pins: Mapping[str, Message] | None = None
    _unshortened: list[Message] | None = None

    @property
    def _history(self) -> Prompt:
        return self.manager.history

    def first_decision(self) -> Work[Decision]:
        """Decide about the history as it has come in, after shortening what is too large."""
        yield from self.shortener.take_in()
        return (yield from self.next_decision(BEFORE_REQUEST))

    def next_decision(self, purpose: Purpose) -> Work[Decision]:
        """Decide about the history now; shortening old results may spare a compaction."""
        decision = yield from self.decision(purpose)
        whole = self._history.messages
        self._unshortened = None
        if isinstance(decision, Compact) and (
            (yield from self.shortener.free()) or (yield from self._masked(decision))
        ):
            self._unshortened = whole
            return (yield from self.decision(purpose))
        return decision

    def _masked(self, decision: Compact, expected: Sequence[Message] = ()) -> Work[bool]:
        """Mask old results of the client's tools where that costs the session less than the compaction does."""
        shorter = yield from masked_instead(self._history, self.manager.budget, decision, expected)
        if shorter is not None:
            yield from self.shortener.take_masked(shorter)
        return shorter is not None

    def decision(self, purpose: Purpose, expected: Message | None = None) -> Work[Decision]:
        """Decide about the history, and a message `expected` after it; the person's pins count once it is compacted."""
        while True:
            decision = yield from self._decided(purpose, expected)
            if not isinstance(decision, Compact) or self._pins is not None or not (yield from self._pinned()):
                return decision

    def _decided(self, purpose: Purpose, expected: Message | None) -> Work[Decision]:
        """Decide; the fixed cost, a second count, is measured only where the decision depends on it.

        In a new conversation it is measured too where most of the window may be taken by it.
        """
        manager, must_shrink = self.manager, purpose.must_shrink
        history = self._history if expected is None else self._history.expecting(expected)
        budget, is_stopped = manager.budget, history.is_stopped
        prompt = yield from counted(history.messages)
        occupied = budget.occupied(prompt)
        is_large = (must_shrink or self.is_new) and occupied > budget.window // 2
        matters = occupied >= budget.trigger or is_large or (must_shrink and is_stopped)
        fixed = (yield from self._fixed(history)) if matters else 0
        least = None
        if (min(fixed, prompt) if manager.auto else prompt) >= budget.window:
            rest = history.smallest() if manager.auto else history.messages
            least = yield from counted(rest, at_least=True)
        measure = Measure(prompt, fixed, least)
        decision = manager.before_request(measure)
        decision = manager.with_room(decision, measure, must_shrink=must_shrink, is_stopped=is_stopped)
        if purpose.foresees and isinstance(decision, Compact):
            decision = replace(decision, is_firm=False)  # the person is about to ask about the answer
        if self.at is not None and prompt >= self.at and isinstance(decision, Send) and not is_stopped:
            fixed = fixed if matters else (yield from self._fixed(history))
            target = budget.target_below(self.at, prompt, fixed)
            if target is None:
                return decision
            return Compact(target, is_tight=decision.is_tight, is_wanted=True, is_firm=True)
        return decision

    def _fixed(self, history: Prompt) -> Work[int]:
        return (yield from counted(history.smallest()))

    def _decided_by_hand(self) -> Work[tuple[int, Compact]]:
        """Return the history's size, and the order to compact it below the trigger too: half of what can go has to."""
        yield from self._pinned()
        budget = self.manager.budget
        before = yield from counted(self._history.messages)
        fixed = yield from self._fixed(self._history)
        halved = (budget.occupied(before) + budget.occupied(fixed)) // 2
        is_wanted = budget.occupied(before) < budget.trigger
        return before, Compact(min(budget.target(budget.occupied(fixed)), halved), is_wanted=is_wanted, is_firm=True)

    def _pinned(self) -> Work[bool]:
        """Pin what the person has pinned; tell whether there is something."""
        if self._pins is None:
            self._pins = yield Ask.PINS
        self.manager.history = self._history.pinned(self._pins)
        return bool(self._pins)

    def carry_out(self, decision: Decision, *, has_said: bool) -> Work[bool]:
        """Do what was decided; return whether the prompt may be sent.

        Raises ContextOverflow where it may not and the reply `has_said` nothing yet.
        """
        if isinstance(decision, Compact):
            outcome = yield from self.compact(decision)
            if not isinstance(outcome, Cannot):
                self.refusal = None
            if outcome is None:
                return (yield from self.carry_out((yield from self.first_decision()), has_said=has_said))
        # Where it has refused, the engine has judged the very same prompt.
        if self.refusal is None and (yield from self._may_be_sent(decision, has_said=has_said)):
            return True
        if has_said:
            return False
        if (yield Ask.LESS):
            self.refusal = None
            return (yield from self.carry_out((yield from self.first_decision()), has_said=has_said))
        raise self.refusal or (yield Ask.OVERFLOW)

    def _may_be_sent(self, decision: Decision, *, has_said: bool) -> Work[bool]:
        """Tell whether the history is sent; where it may not fit, the person is told, and the engine judges.

        A reply that has begun ends instead: an engine that cuts would go on with half of what was said.
        """
        if isinstance(decision, Refuse) or (isinstance(decision, Send) and not decision.is_doubtful):
            return not isinstance(decision, Refuse)
        messages, window = self._history.messages, self.manager.budget.window
        if (most := (yield from counted(messages))) < window:
            return True
        least = yield from counted(messages, at_least=True)
        if has_said or least >= window:
            return False
        yield Tell("tight", MAY_NOT_FIT.format(least=least, most=most, window=window))
        return True

    def could_be_freed(self) -> Work[int]:
        """Return how many tokens of the history a compaction could free at most."""
        least = yield from counted(self._history.pinned({}).smallest())
        return max(0, (yield from counted(self._history.messages)) - least)

    def compact(self, decision: Compact) -> Work[Compaction | Cannot | None]:
        """Compact the history; None where another request has compacted the same messages meanwhile: decide anew."""
        if self.step > 1 or self._history.is_stopped:
            return (yield from self.shrink(BEFORE_REQUEST, decision))

        def unless_done(had_waited: bool) -> Work[Compaction | Cannot | None]:  # of several one compacts
            if had_waited and (yield Ask.OTHERS)[0]:
                return None
            return (yield from self.shrink(BEFORE_REQUEST, decision))

        outcome: Compaction | Cannot | None = yield Alone(unless_done, tells=True)
        if outcome is None:
            yield Tell("compacted", COMPACTED)
        return outcome

    def by_hand(self, known: Written | None) -> Work[tuple[int, Compaction | Cannot | Written]]:
        """Compact because a person wants it, below the trigger too; return the size before as well.

        Where another request has compacted the same messages meanwhile, what they begin with was made in another way
        than `known`, and the outcome is how.
        """

        def unless_done(had_waited: bool) -> Work[tuple[int, Compaction | Cannot | Written]]:
            made = (yield Ask.OTHERS)[1] if had_waited else None
            if made is not None and made != known:
                yield HandOut(made)
                return made.before, made
            yield from self.shortener.take_in()
            before, decision = yield from self._decided_by_hand()
            return before, (yield from self.shrink(BEFORE_REQUEST, decision))

        before, outcome = yield Alone(unless_done)
        if isinstance(outcome, Cannot):
            yield HandOut(Written(self.manager.budget.window, before, before, UNCHANGED))
        return before, outcome

    def preview(self, *, asks_pruner: bool) -> Work[tuple[int, Compaction | Cannot]]:
        """Compact as by hand and keep nothing of it; return the size before as well."""
        before, decision = yield from self._decided_by_hand()
        return before, (yield from self.shrink(PREVIEW, replace(decision, asks_pruner=asks_pruner)))

    def rehearsal(self) -> Work[Compaction | Cannot | None]:
        """Compact as in an answer that needs room and keep nothing of it; None where nothing has to go."""
        decision = yield from self._decided(REHEARSAL, None)
        return (yield from self.shrink(REHEARSAL, decision)) if isinstance(decision, Compact) else None

    def ahead(
        self, expected: Callable[[], Message], turn: Message, due_at: int | None, *, is_full: bool
    ) -> Work[tuple[Compaction | None, bool]]:
        """Compact before the person writes again, where a whole `turn` would pass the trigger.

        `expected` returns what they will write; it is asked only where something has to go. From `due_at` tokens on the
        conversation is flushed first, None for never. Where it `is_full` by the engine's own report, the turn passes
        the trigger, whatever we count. Return the compaction, and whether there is something new to read. Without a
        plan nothing is lost early: before the message another one is asked for. Of an answer that was stopped to make
        room more comes back.
        """
        yield from self._pinned()
        history, budget = self._history, self.manager.budget
        if due_at is not None and (
            is_full or budget.occupied((yield from counted(history.expecting(turn).messages))) >= due_at
        ):
            yield Flush((history.messages,))
        purpose = AHEAD_OF_FULL if is_full else AHEAD
        decision = yield from self._decided(purpose, turn)
        if (whole_answer := history.with_whole_answer()) is not None:
            has_more = isinstance(decision, Compact) or history.has_more_than_requests
            shown = yield from self._showing(whole_answer, purpose, turn, expected, has_more=has_more)
            if shown is not None:
                return shown
        if not isinstance(decision, Compact):
            return None, False
        whole = history.messages
        if (
            self.shortener.outputs is not None
            and (shorter := self.shortener.outputs.pruned(whole, must_shrink=True)) is not None
        ):
            self.manager.history = history.shortened(shorter)
            if not isinstance((yield from self._decided(AHEAD, turn)), Compact):
                sizes = (yield from counted(whole)), (yield from counted(shorter))
                yield Keep(Written(budget.window, *sizes, PRUNED))
                return None, True
            self.manager.history = history
        if (yield from self._masked(decision, (turn,))):
            return None, True
        if not decision.asks_pruner:
            return None, False
        outcome = yield from self.shrink(purpose, decision, expected())
        if isinstance(outcome, Compaction) and outcome.rung in ("plan", "retry"):
            return outcome, True
        return None, False

    def _showing(
        self, whole: Prompt, purpose: Purpose, turn: Message, expected: Callable[[], Message], *, has_more: bool
    ) -> Work[tuple[Compaction | None, bool] | None]:
        """Show as much of the answer as has room beside the next message; None where that is no more than there is.

        A summary tells already what is not shown of it: only where a compaction `has_more` to tell than that, the
        pruning agent is asked.
        """
        before, is_taken = self._history, False
        self.manager.history = whole
        try:
            decision = yield from self._decided(purpose, turn)
            if isinstance(decision, Send):
                size = yield from counted(whole.messages)
                yield Keep(Written(self.manager.budget.window, size, size, UNCHANGED))
                is_taken = True
                return None, True
            if not isinstance(decision, Compact):
                return None
            decision = replace(decision, asks_pruner=decision.asks_pruner and has_more)
            outcome = yield from self._climbed(purpose, decision, expected())
            shown = len(text_of(before.messages[-1]))
            if isinstance(outcome, Compaction) and len(text_of(outcome.messages[-1])) > shown:
                is_taken = True
                yield from self._take(outcome)
                return outcome, True
            return None
        finally:
            if not is_taken:
                self.manager.history = before

    def shrink(self, purpose: Purpose, decision: Compact, expected: Message | None = None) -> Work[Compaction | Cannot]:
        """Let the agent save what must last of the conversation, compact it, and keep what comes of it."""
        if purpose.is_kept and not purpose.foresees:
            whole = [self._unshortened] if self._unshortened is not None else []
            yield Flush((*whole, self._history.messages))
        if purpose.prunes:
            yield from self.shortener.free(at_any_gain=True)
        unmoved = self._history
        if purpose.is_kept:
            yield from self.shortener.move_material()
        outcome = yield from self._climbed(purpose, decision, expected)
        if not purpose.is_kept:
            return outcome
        if isinstance(outcome, Compaction) and (not purpose.foresees or outcome.rung in ("plan", "retry")):
            yield from self._take(outcome)
            return outcome
        self.manager.history = unmoved
        self.manager.could_not_compact()
        if not purpose.foresees:
            yield Note("not compacted")
        return outcome

    def _take(self, outcome: Compaction) -> Work[None]:
        """Let what a compaction has made stand for the history."""
        history = self._history
        self.manager.history = history.summarised(outcome.messages, outcome.tail, outcome.parts)
        self.manager.compacted(outcome.before, outcome.after, outcome.rung)
        made = Written(self.manager.budget.window, outcome.before, outcome.after, outcome.rung)
        yield Keep(made, outcome, len(history.items))

    def _climbed(self, purpose: Purpose, decision: Compact, expected: Message | None) -> Work[Compaction | Cannot]:
        """Compact the history, which is not changed. The target grows by a tool that is offered from now on."""
        yield from self._pinned()
        history = self._history
        size = yield from counted(history.messages)
        is_offered = yield Offer()
        tool = (yield from counted(history.messages)) - size if is_offered else 0
        decision = replace(decision, target=decision.target + tool)
        outcome: Compaction | Cannot = yield Climb(
            history if expected is None else history.expecting(expected), decision, purpose, tool
        )
        if is_offered and isinstance(outcome, Cannot) and not purpose.foresees:
            yield Offer(is_offered=False)
        return outcome
