"""Compacts a conversation rung after rung, until the result is good by the code's own measure.

plan -> one retry with reasons -> a digest made by code -> system and the last messages -> no rung helps. The result of
each rung is counted here, and taken only if it is clearly smaller and at or below the target.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from elbowroom.context.budget import (
    LEAST_SUMMARY,
    Budget,
    fault_in,
    is_rescue,
    kept_beside_results,
    least_gain,
    least_room,
    most_summary,
)
from elbowroom.context.compaction.answer import Plan, PruneAnswer, Rewrite, Unusable, as_plan
from elbowroom.context.compaction.calls import RemovedCalls
from elbowroom.context.compaction.division import (
    Division,
    Excerpt,
    Rung,
    TaskState,
    build,
    divide,
    first_request,
    is_summary,
    last_answer,
    last_words,
    results_being_answered,
    running_task,
    start_of_turns,
    state_of,
    tail_starts,
)
from elbowroom.context.compaction.drafts import NO_PLAN, Draft, Drafts, condensed, condensed_as
from elbowroom.context.compaction.order import (
    NO_ANSWER,
    Pruner,
    PruningRequest,
    Wishes,
)
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.compaction.verdict import judge, without_made_up
from elbowroom.context.divisible import LEAST, fits, within
from elbowroom.context.effects import Count, PrunerFailed, RungFailed, Work
from elbowroom.context.transcript import Group, Transcript, messages_of, text_of, with_text

SHARE_OF_REQUEST = 4
"""One part in so many of the window is the most that an earlier request may take to stay word for word."""
SHARE_OF_ENDS = 32
"""One part in so many of the window an earlier request keeps for its beginning and end where all has little room."""
MOST_BESIDE, LEAST_BESIDE, SHARE_BESIDE = 300, 180, 25
"""Tokens that a summary has at least beside the last exchange, one part in so many of the window within bounds: what
stands around it takes up to 160."""
FRAME_OF_SUMMARY = 120
PASSES = 3
"""How often a message is made to fit: a bare text may take more or fewer tokens than in the prompt."""
NEAR_ENOUGH = 16  # tokens
NOTHING: frozenset[int] = frozenset()
SHARE_OF_SUMMARY = (2, 3)  # of the room; the rest is for quotations


@dataclass(frozen=True, slots=True)
class Cannot:
    """No rung reached the target; `needed` is the smallest prompt that was reached.

    The prompt as it is may still fit the window: then it can be sent.
    """

    needed: int


@dataclass(frozen=True, slots=True)
class Ladder:
    """The means of one compaction: `target` bounds prompt and reserve together, `turns` is how many turns stay.

    Fewer stay where there is no room for so many; where `turns` is None, the last 3 messages do. With `tells_all`
    no message goes without a summary. Without `asks_pruner`, and where there is no pruner, the code alone cuts the
    history. `state` is how the task stands, where the caller knows it better than the last message tells. `removed` is
    what the summary tells of the removed tool calls. With `foresees` the last message stands for the one that the
    person will write: no pruning agent sees it, and it is not in the result. A target that `is_firm` is not raised for
    the answer that the person has just read, and for results only where the model never `reads_again` what was cut.
    `exchange` is where the exchange begins that stays though a summary has less room beside it, `answer` the place of
    an answer of which only the end has room.
    """

    budget: Budget
    target: int
    size: Callable[[str], int]
    pruner: Pruner | None
    wishes: Wishes
    turns: int | None = None
    asks_pruner: bool = True
    tells_all: bool = False
    state: TaskState | None = None
    removed: RemovedCalls = field(default_factory=RemovedCalls)
    foresees: bool = False
    is_firm: bool = False
    reads_again: bool = False
    exchange: int | None = None
    answer: int | None = None

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
        groups = transcript.groups
        beside = (yield from self._beside_answer(groups, before)) or (yield from self._beside_results(groups, before))
        done = yield from (beside or self).climb_with(transcript, said, before)
        if beside is not None and not (isinstance(done, Compaction) and done.summary and done.rung != "last messages"):
            by_code = replace(self, asks_pruner=False)
            done = yield from by_code.climb_with(transcript, said, before)
        if not isinstance(done, Compaction) or not self.foresees:
            return done
        return replace(done, messages=done.messages[:-1], tail=done.tail - 1, groups_kept=done.groups_kept - 1)

    def _beside_answer(self, groups: tuple[Group, ...], before: int) -> "Work[Ladder | None]":
        """Return the ladder with a target by which the answer stays that the person has just read, whole or its end.

        Where its exchange stays whole, or the answer alone, the target is midway from what cannot be freed then to the
        trigger, as long as a summary fits below it; where only its end has room, it is the trigger. Either frees of the
        size `before` what a compaction has to. None without room.
        """
        place, budget = last_answer(groups), self.budget
        is_last = place == len(groups) - 1
        if self.is_firm or place is None or (not is_last and self.turns is not None and self.turns <= 1):
            return None
        *_, shortest = tail_starts(groups, 0)
        if (yield from self._room_in(_divided(groups, shortest, last_words(groups)))) < least_room(budget):
            return None
        most = self._most(before)
        starts = [] if is_last else [start_of_turns(groups, 2), place]
        for start in filter(None, starts):
            occupied = budget.occupied((yield from self._fixed(_divided(groups, start, {}))))
            target = max(self.target, min(most, budget.target(occupied)))
            if target < budget.trigger and target - occupied >= self._least_beside:
                return replace(self, target=target, exchange=start)
        least = yield from self._fixed(_divided(groups, shortest, last_words(groups)))
        is_short = len(groups[place].text) <= LEAST
        if is_short or budget.room(least, most) <= self._least_beside:
            return None
        return replace(self, target=max(self.target, most), answer=place)

    def _beside_results(self, groups: tuple[Group, ...], before: int) -> "Work[Ladder | None]":
        """Return the ladder with a target by which enough stays beside results that the model has not read yet.

        None where that has room anyway, where the model can read them again, or there are no such results.
        """
        *_, start = tail_starts(groups, 0)
        if self.is_firm or self.reads_again or groups[start].kind != "tools":
            return None
        shortest = build(_divided(groups, start, {}), "", ())
        least: int = yield Count(shortest)
        without: int = yield Count([with_text(each, "") if each.get("role") == "tool" else each for each in shortest])
        first = (yield from self._fixed(_divided(groups, start, {}, first_request(groups)))) - least
        kept = least + kept_beside_results(self.budget, without, first)
        target = min(self._most(before), self.budget.occupied(kept))
        return replace(self, target=target) if target > self.target else None

    def _most(self, before: int) -> int:
        """Return the highest target that frees of the size `before` what a compaction has to."""
        return min(self.budget.trigger - 1, self.budget.occupied(before - least_gain(before)))

    @property
    def _least_beside(self) -> int:
        """Return how many tokens a summary has at least beside the last exchange."""
        return max(LEAST_BESIDE, min(MOST_BESIDE, self.budget.window // SHARE_BESIDE))

    def climb_with(self, transcript: Transcript, said: Transcript, before: int) -> Work[Compaction | Cannot]:
        """Climb once; the pruning agent sees what was `said`."""
        division, room = yield from self._divide(transcript)
        division = condensed(division, self.size, self.budget.window)
        state, stays_from = self.state or state_of(division.tail), self._stays_from(transcript.groups)
        size, window = self.size, self.budget.window
        drafts = Drafts(division, state, size, window, room, self.target, self.removed, stays_from)
        if division.old or division.summaries:
            carried = yield from self._carried(drafts)
            if self.asks_pruner and self.pruner and division.old and room - carried >= least_room(self.budget):
                done = yield from self._by_pruner(self.pruner, said, drafts, before)
                if done is not None:
                    return done
            ladder = yield from self._with_room_for(carried, drafts, before)
            done = yield from ladder.digest(drafts, before)
            if done is not None:
                return done
        last = yield from self._by_last_messages(transcript, drafts, before)
        return self._judged(drafts, NO_PLAN, last) if isinstance(last, Compaction) else last

    def cap(self, room: int) -> int:
        """Return how many tokens a summary may have in a room of this size."""
        part, whole = SHARE_OF_SUMMARY
        share = min(room * part // whole, room - FRAME_OF_SUMMARY)
        return min(most_summary(self.budget), max(1, share))

    def _divide(self, transcript: Transcript) -> Work[tuple[Division, int]]:
        """Return the division with the longest tail that leaves a summary its full room, and the room that is left.

        The exchange that the person has just read stays also where a summary has less room, but enough to be of use.
        Results that an unfinished answer is about stay as well, where any tail leaves room for them.
        """
        groups, wanted = transcript.groups, self.cap(self.target)
        if self.answer is not None:
            order = (self.answer, *self._requests(groups, self.answer))
            return (yield from self._in_parts(groups, self.answer, order, self._least_beside))
        starts = list(tail_starts(groups, self.turns))
        starts = sorted({min(starts[-1], max(start, self._stays_from(groups))) for start in starts})
        answered, first = results_being_answered(groups), first_request(groups)
        is_small = bool(self._first_request(groups))
        ends = {} if is_small else self._parts(groups, dict.fromkeys(first, self.budget.window // SHARE_OF_ENDS))
        tries = [(start, answered | first) for start in starts if answered]
        tries += [(start, first) for start in starts]
        least = wanted if self.turns is None else min(wanted, self._least_beside)
        for start, keeping in tries:
            if self.exchange is not None and start > self.exchange:
                return (yield from self._around(groups, self.exchange, self._least_beside))
            division = _divided(groups, start, ends if start > min(first, default=start) else {}, keeping)
            room = yield from self._room_in(division)
            if division.old and room >= least:
                return (yield from self._around(groups, start, least, keeping)) if division.parts else (division, room)
        return (yield from self._around(groups, starts[-1], wanted))

    def _around(
        self, groups: tuple[Group, ...], start: int, least: int, keeping: frozenset[int] = NOTHING
    ) -> Work[tuple[Division, int]]:
        """Return the division with this tail, and of the first request as much as there is room for."""
        order = [*last_words(groups)] if start == len(groups) - 1 else []
        order += [place for place in first_request(groups) if place < start]
        return (yield from self._in_parts(groups, start, order, least, keeping))

    def _stays_from(self, groups: tuple[Group, ...]) -> int:
        """Return the place of the first group that may stay without being asked for."""
        return 0 if self.turns is None else start_of_turns(groups, self.turns)

    def _first_request(self, groups: tuple[Group, ...]) -> frozenset[int]:
        """Return the place of the conversation's first request where it is small enough to stay word for word."""
        most = self.budget.window // SHARE_OF_REQUEST
        return frozenset(place for place in first_request(groups) if fits(groups[place].text, most, self.size))

    def _requests(self, groups: tuple[Group, ...], answer: int) -> list[int]:
        """Return the places of the requests before an answer that it rests on: its own, the task's, and the first."""
        users = [place for place in range(answer) if groups[place].kind == "user" and not is_summary(groups[place])]
        wanted = [*users[-1:], *sorted(running_task(groups), reverse=True), *first_request(groups)]
        return [place for place in dict.fromkeys(wanted) if place < answer]

    def _in_parts(
        self,
        groups: tuple[Group, ...],
        start: int,
        order: Sequence[int],
        least: int,
        keeping: frozenset[int] = NOTHING,
    ) -> Work[tuple[Division, int]]:
        """Return the division with as much of these messages as leaves a summary so many tokens, and the room.

        Those that come first in the order have the room before the others.
        """
        window = self.budget.window
        most = {place: 0 if groups[place].kind == "assistant" else window // SHARE_OF_ENDS for place in order}
        parts = self._parts(groups, most)
        division = _divided(groups, start, parts, keeping.union(order))
        room = yield from self._room_in(division)
        for place in (each for each in order for _ in range(PASSES)):
            if place not in parts or abs(room - least) < NEAR_ENOUGH:
                continue
            wanted = self.size(text_of(parts[place].message)) + room - least
            is_answer = groups[place].kind == "assistant"
            most[place] = max(0, wanted if is_answer else min(wanted, window // SHARE_OF_REQUEST))
            parts = self._parts(groups, most)
            division = _divided(groups, start, parts, keeping.union(order))
            room = yield from self._room_in(division)
        if room < least // 2 and (fewer := [place for place in order if place >= start]) != list(order):
            return (yield from self._in_parts(groups, start, fewer, least, keeping.difference(order)))
        return division, room

    def _parts(self, groups: tuple[Group, ...], most: Mapping[int, int]) -> dict[int, Excerpt]:
        """Return what stays of messages that are larger than the tokens which they may take, by their places.

        The user's last message always stays whole.
        """
        asked = max(running_task(groups), default=None)
        parts: dict[int, Excerpt] = {}
        for place, tokens in most.items():
            group = groups[place]
            if (
                not group.is_pinned
                and place != asked
                and (found := within(group.messages[0], tokens, self.size)) is not None
            ):
                parts[place] = Excerpt.of(group, found)
        return parts

    def _room_in(self, division: Division) -> Work[int]:
        return self.budget.room((yield from self._fixed(division)), self.target)

    def _fixed(self, division: Division) -> Work[int]:
        """Return the tokens of what a division keeps whatever happens."""
        base: int = yield Count(build(division, "", ()))
        return base

    def _read_anew(self, division: Division) -> Work[int]:
        """Return how many tokens of the result an engine reads that has read all before, while the person reads."""
        if not self.foresees:
            return 0
        known: int = yield Count(messages_of((*division.system, *division.tail[-1:])))
        return max(0, self.budget.room(0, self.target) - known)

    def _by_pruner(self, pruner: Pruner, said: Transcript, drafts: Drafts, before: int) -> Work[Compaction | None]:
        cap = self.cap(drafts.room - drafts.carried)
        if (most := pruner.can_write((yield from self._read_anew(drafts.division)))) is not None:
            cap = min(cap, max(LEAST_SUMMARY, most))
        request = PruningRequest(
            said,
            drafts.division,
            self.size,
            pruner,
            self.wishes,
            cap,
            before,
        )
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
        return carrying - (yield from self._fixed(drafts.division))

    def _with_room_for(self, carried: int, drafts: Drafts, before: int) -> "Work[Ladder]":
        """Return the ladder with a target by which so many tokens have room, up to the trigger or else the window.

        So it is where beside them less can be freed of the size `before` than a compaction has to free elsewhere.
        Where nearly all of the prompt is fixed, half of the room stays free, so that the next turn need not compact
        again, but for a small summary and what code carries.
        """
        budget, target = self.budget, self.target
        fixed = yield from self._fixed(drafts.division)
        most = min(max(0, drafts.room), before - least_gain(before) - fixed)
        if carried > max(0, most) and not self.is_firm:
            target = max(target, budget.trigger if budget.occupied(fixed) < budget.trigger else budget.window)
        if target < budget.trigger:
            return self
        room = budget.room(fixed, target)
        drafts.room = max(min(drafts.room, room // 2), min(room, drafts.carried or least_room(budget)))
        return replace(self, target=target)

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
        keepings = dict.fromkeys((self._first_request(transcript.groups), frozenset[int]()))
        divisions = [divide(transcript, tails_from=start, keeping=keep) for keep, start in product(keepings, starts)]
        if end := last_words(transcript.groups):
            divisions.append((yield from self._in_parts(transcript.groups, starts[-1], tuple(end), 0))[0])
        for division in (condensed_as(drafts.division, each) for each in divisions):
            cut = yield from self._compaction(Draft(division, NO_PLAN, (), ""), "last messages", before)
            note = drafts.results_alone(division)
            if self._fault(cut) is None:
                told = yield from self._with_quotations(cut, division, drafts)
                if told.summary or not (self.tells_all or note.summary):
                    return told
                fitting.append(cut)
            else:
                too_large.append(cut)
            if note.summary:
                noted.append((yield from self._compaction(note, cut.rung, before)))
        return self._rescued([*noted, *fitting, *too_large], before)

    def _rescued(self, cuts: Sequence[Compaction], before: int) -> Compaction | Cannot:
        """Return the first that is better than none."""
        for with_reserve in (True, False):
            for cut in () if self.tells_all else cuts:
                is_better = is_rescue(before, cut.after, self.budget, with_reserve=with_reserve)
                if is_better or self._fault(cut) is None:
                    return cut
        return Cannot(min([before, *(cut.after for cut in cuts)]))

    def _with_quotations(self, cut: Compaction, division: Division, drafts: Drafts) -> Work[Compaction]:
        """Return the last messages below as much of what was said before them as fits.

        Where the results of removed calls can be read stands there also at the price of a part of the gain.
        """
        told = drafts.quoted_alone(division, self.budget.room(cut.after, self.target))
        noted = yield from self._compaction(drafts.results_alone(division), cut.rung, cut.before)
        for fuller in ((yield from self._compaction(told, cut.rung, cut.before)), noted):
            if self._fault(fuller) is None:
                return fuller
        is_smaller = noted.after < noted.before and self.budget.occupied(noted.after) <= self.target
        return noted if noted.summary and is_smaller else cut

    def _accepted(self, drafts: Drafts, draft: Draft | str, rung: Rung, before: int) -> Work[Compaction | str]:
        """Return the draft as a compaction, with fewer groups kept where it is too large, or the reason against it."""
        while isinstance(draft, Draft):
            done = yield from self._compaction(draft, rung, before)
            fault = self._fault(done)
            if fault is None:
                judged = self._judged(drafts, draft.plan, done)
                return judged.verdict.fault or judged
            draft = drafts.shrunk(draft, self.budget.occupied(done.after) - self.target) or fault
        return draft

    def _judged(self, drafts: Drafts, plan: Plan, done: Compaction) -> Compaction:
        """Return a compaction with the verdict on it."""
        return replace(done, verdict=judge(drafts.division, drafts.coverage, plan, done.messages))

    def _compaction(self, draft: Draft, rung: Rung, before: int) -> Work[Compaction]:
        messages = tuple(draft.messages)
        after: int = yield Count(messages)
        division = draft.division
        parts = tuple((part.whole, part.message) for part in division.parts.values())
        return Compaction(
            messages,
            rung,
            before,
            after,
            draft.replaced,
            draft.summary,
            division.untouched,
            draft.staying,
            condensed_groups=len(division.oldest),
            parts=parts,
        )

    def _fault(self, done: Compaction) -> str | None:
        return fault_in(done.before, done.after, self.budget, self.target)


def _divided(
    groups: tuple[Group, ...], start: int, parts: Mapping[int, Excerpt], keeping: Iterable[int] = ()
) -> Division:
    return divide(Transcript(groups), tails_from=start, keeping=frozenset(keeping), parts=parts)


def _draft(drafts: Drafts, said: Transcript, answer: PruneAnswer, cap: int) -> Draft | str:
    """Return the draft that an answer about what was `said` makes, or the reason against the answer."""
    plan = as_plan(answer, drafts.division) if isinstance(answer, Rewrite) else answer
    if isinstance(plan, Unusable):
        return plan.reason
    whole = (message for group in said.groups for message in group.unshortened)
    plan = without_made_up(plan, (*drafts.division.messages, *said.messages, *whole))
    return drafts.whole(plan) if isinstance(answer, Rewrite) else drafts.planned(plan, 2 * cap)
