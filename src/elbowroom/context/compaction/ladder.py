"""Compacts a conversation rung after rung, until the result is good by the code's own measure.

plan -> one retry with reasons -> a digest made by code -> system and the last messages -> no rung helps. The result of
each rung is counted here, and taken only if it is clearly smaller and at or below the target.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from elbowroom.context.budget import LEAST_SUMMARY, fault_in, is_rescue, least_gain, least_room
from elbowroom.context.compaction.answer import Plan, PruneAnswer, Rewrite, Unusable, as_plan
from elbowroom.context.compaction.calls import RemovedCalls
from elbowroom.context.compaction.division import (
    Division,
    Rung,
    TaskState,
    build,
    divide,
    last_words,
    state_of,
    tail_starts,
)
from elbowroom.context.compaction.drafts import NO_PLAN, Draft, Drafts, condensed, condensed_as
from elbowroom.context.compaction.layout import Layout, fixed
from elbowroom.context.compaction.order import NO_ANSWER, Pruner, PruningRequest, Wishes
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.compaction.verdict import judge, without_made_up
from elbowroom.context.effects import Count, PrunerFailed, RungFailed, Work
from elbowroom.context.transcript import Transcript, messages_of


@dataclass(frozen=True, slots=True)
class Cannot:
    """No rung reached the target; `needed` is the smallest prompt that was reached.

    The prompt as it is may still fit the window: then it can be sent.
    """

    needed: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """The means of one compaction, whose outcome the `layout` bounds.

    With `tells_all` no message goes without a summary. Without `asks_pruner`, and where there is no pruner, the code
    alone cuts the history. `state` is how the task stands, where the caller knows it better than the last message
    tells. `removed` is what the summary tells of the removed tool calls. With `foresees` the last message stands for
    the one that the person will write: no pruning agent sees it, and it is not in the result.
    """

    layout: Layout
    pruner: Pruner | None
    wishes: Wishes
    asks_pruner: bool = True
    tells_all: bool = False
    state: TaskState | None = None
    removed: RemovedCalls = field(default_factory=RemovedCalls)
    foresees: bool = False

    def climb(self, transcript: Transcript, before: int | None = None) -> Work[Compaction | Cannot]:
        """Return the compacted conversation from the first rung that is good enough.

        `before` is the size of its prompt, for a caller that has counted it already.

        The result is at or below the target. Only the rung of the last messages may end anywhere below the trigger and,
        where the prompt did not fit the window at all, anywhere within it. The transcript is not changed, and a
        cancelled climb leaves no trace.
        """
        if before is None:
            before = yield Count(transcript.messages)
        said = transcript if not self.foresees else Transcript(transcript.groups[:-1])
        wider = yield from self.layout.widened(transcript, before)
        ladder = self if wider is None else replace(self, layout=wider)
        done = yield from ladder.climb_with(transcript, said, before)
        if wider is not None and not (isinstance(done, Compaction) and done.summary and done.rung != "last messages"):
            by_code = replace(self, asks_pruner=False)
            done = yield from by_code.climb_with(transcript, said, before)
        if not isinstance(done, Compaction) or not self.foresees:
            return done
        return replace(done, messages=done.messages[:-1], tail=done.tail - 1, groups_kept=done.groups_kept - 1)

    def climb_with(self, transcript: Transcript, said: Transcript, before: int) -> Work[Compaction | Cannot]:
        """Climb once; the pruning agent sees what was `said`."""
        layout, budget = self.layout, self.layout.budget
        division, room = yield from layout.divide(transcript)
        division = condensed(division, layout.size, budget.window)
        state, stays_from = self.state or state_of(division.tail), layout.stays_from(transcript.groups)
        drafts = Drafts(division, state, layout.size, budget.window, room, layout.target, self.removed, stays_from)
        if division.old or division.summaries:
            carried = yield from self._carried(drafts)
            if self.asks_pruner and self.pruner and division.old and room - carried >= least_room(budget):
                done = yield from self._by_pruner(self.pruner, said, drafts, before)
                if done is not None:
                    return done
            ladder = yield from self._with_room_for(carried, drafts, before)
            done = yield from ladder.digest(drafts, before)
            if done is not None:
                return done
        last = yield from self._by_last_messages(transcript, drafts, before)
        return self._judged(drafts, NO_PLAN, last) if isinstance(last, Compaction) else last

    def _read_anew(self, division: Division) -> Work[int]:
        """Return how many tokens of the result an engine reads that has read all before, while the person reads."""
        if not self.foresees:
            return 0
        known: int = yield Count(messages_of((*division.system, *division.tail[-1:])))
        return max(0, self.layout.budget.room(0, self.layout.target) - known)

    def _by_pruner(self, pruner: Pruner, said: Transcript, drafts: Drafts, before: int) -> Work[Compaction | None]:
        cap = self.layout.cap(drafts.room - drafts.carried)
        if (most := pruner.can_write((yield from self._read_anew(drafts.division)))) is not None:
            cap = min(cap, max(LEAST_SUMMARY, most))
        request = PruningRequest(said, drafts.division, self.layout.size, pruner, self.wishes, cap, before)
        reasons: tuple[str, ...] = ()
        rungs: tuple[Rung, ...] = ("plan", "retry")
        so_far: Plan | None = None
        for rung in rungs:
            try:
                answer = yield from request.ask(reasons)
            except PrunerFailed as error:
                yield RungFailed(error.plain)
                reasons = (NO_ANSWER,)
                continue
            done = yield from self._accepted(drafts, _draft(drafts, said, answer, cap), rung, before)
            if isinstance(done, Compaction):
                return done
            yield RungFailed(done)
            reasons = (done,)
            if isinstance(answer, Unusable) and answer.so_far is not None:
                so_far = answer.so_far
        if so_far is None:
            return None
        done = yield from self._accepted(drafts, _draft(drafts, said, so_far, cap), "retry", before)
        return done if isinstance(done, Compaction) else None

    def _carried(self, drafts: Drafts) -> Work[int]:
        """Return how many tokens of the prompt what code carries takes."""
        if not drafts.carrying:
            return 0
        carrying: int = yield Count(build(drafts.division, drafts.carrying, ()))
        return carrying - (yield from fixed(drafts.division))

    def _with_room_for(self, carried: int, drafts: Drafts, before: int) -> "Work[Ladder]":
        """Return the ladder with a target by which so many tokens have room, up to the trigger or else the window.

        So it is where beside them less can be freed of the size `before` than a compaction has to free elsewhere.
        Where nearly all of the prompt is fixed, half of the room stays free, so that the next turn need not compact
        again, but for a small summary and what code carries.
        """
        budget, target = self.layout.budget, self.layout.target
        stays = yield from fixed(drafts.division)
        most = min(max(0, drafts.room), before - least_gain(before) - stays)
        if carried > max(0, most) and not self.layout.is_firm:
            target = max(target, budget.trigger if budget.occupied(stays) < budget.trigger else budget.window)
        if target < budget.trigger:
            return self
        room = budget.room(stays, target)
        drafts.room = max(min(drafts.room, room // 2), min(room, drafts.carried or least_room(budget)))
        return replace(self, layout=replace(self.layout, target=target))

    def digest(self, drafts: Drafts, before: int) -> Work[Compaction | None]:
        """Compact by code alone; return None where that does not reach the target."""
        for room in (drafts.room, drafts.room // 2, drafts.room // 4):
            done = yield from self._accepted(drafts, drafts.digested(room), "digest", before)
            if isinstance(done, Compaction):
                return done
            yield RungFailed(done)
        return None

    def _by_last_messages(self, transcript: Transcript, drafts: Drafts, before: int) -> Work[Compaction | Cannot]:
        """Keep system and pinned messages and as many of the last five messages as fit, whole groups of them.

        Fewer stay where there is no room for a note on where the results of removed calls can be read. Only where none
        of the messages fit with it, the first request goes too.
        """
        noted: list[Compaction] = []
        fitting: list[Compaction] = []
        too_large: list[Compaction] = []
        starts = list(tail_starts(transcript.groups, 0))
        keepings = dict.fromkeys((self.layout.small_first_request(transcript.groups), frozenset[int]()))
        divisions = [divide(transcript, tails_from=start, keeping=keep) for keep, start in product(keepings, starts)]
        if end := last_words(transcript.groups):
            divisions.append((yield from self.layout.in_parts(transcript, starts[-1], tuple(end), 0))[0])
        for division in (condensed_as(drafts.division, each) for each in divisions):
            cut = yield from Draft(division, NO_PLAN, (), "").counted("last messages", before)
            note = drafts.results_alone(division)
            if self._fault(cut) is None:
                told = yield from self._with_quotations(cut, division, drafts)
                if told.summary or not (self.tells_all or note.summary):
                    return told
                fitting.append(cut)
            else:
                too_large.append(cut)
            if note.summary:
                noted.append((yield from note.counted(cut.rung, before)))
        return self._rescued([*noted, *fitting, *too_large], before)

    def _rescued(self, cuts: Sequence[Compaction], before: int) -> Compaction | Cannot:
        """Return the first that is better than none."""
        for with_reserve in (True, False):
            for cut in () if self.tells_all else cuts:
                is_better = is_rescue(before, cut.after, self.layout.budget, with_reserve=with_reserve)
                if is_better or self._fault(cut) is None:
                    return cut
        return Cannot(min([before, *(cut.after for cut in cuts)]))

    def _with_quotations(self, cut: Compaction, division: Division, drafts: Drafts) -> Work[Compaction]:
        """Return the last messages below as much of what was said before them as fits.

        Where the results of removed calls can be read stands there also at the price of a part of the gain.
        """
        budget, target = self.layout.budget, self.layout.target
        told = drafts.quoted_alone(division, budget.room(cut.after, target))
        noted = yield from drafts.results_alone(division).counted(cut.rung, cut.before)
        for fuller in ((yield from told.counted(cut.rung, cut.before)), noted):
            if self._fault(fuller) is None:
                return fuller
        is_smaller = noted.after < noted.before and budget.occupied(noted.after) <= target
        return noted if noted.summary and is_smaller else cut

    def _accepted(self, drafts: Drafts, draft: Draft | str, rung: Rung, before: int) -> Work[Compaction | str]:
        """Return the draft as a compaction, with fewer groups kept where it is too large, or the reason against it."""
        while isinstance(draft, Draft):
            done = yield from draft.counted(rung, before)
            fault = self._fault(done)
            if fault is None:
                judged = self._judged(drafts, draft.plan, done)
                return judged.verdict.fault or judged
            draft = drafts.shrunk(draft, self.layout.budget.occupied(done.after) - self.layout.target) or fault
        return draft

    def _judged(self, drafts: Drafts, plan: Plan, done: Compaction) -> Compaction:
        """Return a compaction with the verdict on it."""
        return replace(done, verdict=judge(drafts.division, drafts.coverage, plan, done.messages))

    def _fault(self, done: Compaction) -> str | None:
        return fault_in(done.before, done.after, self.layout.budget, self.layout.target)


def _draft(drafts: Drafts, said: Transcript, answer: PruneAnswer, cap: int) -> Draft | str:
    """Return the draft that an answer about what was `said` makes, or the reason against the answer."""
    plan = as_plan(answer, drafts.division) if isinstance(answer, Rewrite) else answer
    if isinstance(plan, Unusable):
        return plan.reason
    whole = (message for group in said.groups for message in group.unshortened)
    plan = without_made_up(plan, (*drafts.division.messages, *said.messages, *whole))
    return drafts.whole(plan) if isinstance(answer, Rewrite) else drafts.planned(plan, 2 * cap)
