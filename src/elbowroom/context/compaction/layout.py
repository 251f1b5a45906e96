"""Decides what stays around a summary: how long the tail is, which requests and answers stay, up to which target.

All of it is a question of room. What stays whatever happens is counted, and what is left up to the target is the
summary's.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from elbowroom.context.budget import Budget, kept_beside_results, least_gain, least_room, most_summary
from elbowroom.context.compaction.division import (
    Division,
    Excerpt,
    build,
    divide,
    first_request,
    is_summary,
    last_answer,
    last_words,
    results_being_answered,
    running_task,
    start_of_turns,
    tail_starts,
)
from elbowroom.context.divisible import LEAST, fits, within
from elbowroom.context.effects import Count, Work
from elbowroom.context.transcript import Group, Transcript, text_of, with_text

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
class Layout:
    """What bounds a compaction: `target` is the most tokens of prompt and reserve, `turns` how many turns stay whole.

    Fewer turns stay where there is no room for so many; where `turns` is None, the last 3 messages do. A target that
    `is_firm` is not raised for the answer that the person has just read, and for results only where the model never
    `reads_again` what was cut. `exchange` is where the exchange begins that stays though a summary has less room beside
    it, `answer` the place of an answer of which only the end has room. `size` counts a text.
    """

    budget: Budget
    target: int
    size: Callable[[str], int]
    turns: int | None = None
    is_firm: bool = False
    reads_again: bool = False
    exchange: int | None = None
    answer: int | None = None

    def widened(self, transcript: Transcript, before: int) -> "Work[Layout | None]":
        """Return the layout with a target by which what was read last, or is not read yet, stays; None without need.

        `before` is the size of the prompt, of which a compaction has to free a part.
        """
        if self.is_firm:
            return None
        beside_answer = yield from self._beside_answer(transcript, before)
        return beside_answer or (yield from self._beside_results(transcript, before))

    def _beside_answer(self, transcript: Transcript, before: int) -> "Work[Layout | None]":
        """Return the layout with a target by which the answer stays that the person has just read, whole or its end.

        Where its exchange stays whole, or the answer alone, the target is midway from what cannot be freed then to the
        trigger, as long as a summary fits below it; where only its end has room, it is the trigger. Either frees of the
        size `before` what a compaction has to. None without room.
        """
        groups, budget = transcript.groups, self.budget
        place = last_answer(groups)
        is_last = place == len(groups) - 1
        if place is None or (not is_last and self.turns is not None and self.turns <= 1):
            return None
        *_, shortest = tail_starts(groups, 0)
        least = yield from fixed(divide(transcript, tails_from=shortest, parts=last_words(groups)))
        if budget.room(least, self.target) < least_room(budget):
            return None
        most = self._most(before)
        starts = [] if is_last else [start_of_turns(groups, 2), place]
        for start in filter(None, starts):
            occupied = budget.occupied((yield from fixed(divide(transcript, tails_from=start))))
            target = max(self.target, min(most, budget.target(occupied)))
            if target < budget.trigger and target - occupied >= self._least_beside:
                return replace(self, target=target, exchange=start)
        is_short = len(groups[place].text) <= LEAST
        if is_short or budget.room(least, most) <= self._least_beside:
            return None
        return replace(self, target=max(self.target, most), answer=place)

    def _beside_results(self, transcript: Transcript, before: int) -> "Work[Layout | None]":
        """Return the layout with a target by which enough stays beside results that the model has not read yet.

        None where that has room anyway, where the model can read them again, or there are no such results.
        """
        groups = transcript.groups
        *_, start = tail_starts(groups, 0)
        if self.reads_again or groups[start].kind != "tools":
            return None
        shortest = build(divide(transcript, tails_from=start), "", ())
        least: int = yield Count(shortest)
        without: int = yield Count([with_text(each, "") if each.get("role") == "tool" else each for each in shortest])
        with_first = yield from fixed(divide(transcript, tails_from=start, keeping=first_request(groups)))
        kept = least + kept_beside_results(self.budget, without, with_first - least)
        target = min(self._most(before), self.budget.occupied(kept))
        return replace(self, target=target) if target > self.target else None

    def _most(self, before: int) -> int:
        """Return the highest target that frees of the size `before` what a compaction has to."""
        return min(self.budget.trigger - 1, self.budget.occupied(before - least_gain(before)))

    @property
    def _least_beside(self) -> int:
        """Return how many tokens a summary has at least beside the last exchange."""
        return max(LEAST_BESIDE, min(MOST_BESIDE, self.budget.window // SHARE_BESIDE))

    def cap(self, room: int) -> int:
        """Return how many tokens a summary may have in a room of this size."""
        part, whole = SHARE_OF_SUMMARY
        share = min(room * part // whole, room - FRAME_OF_SUMMARY)
        return min(most_summary(self.budget), max(1, share))

    def divide(self, transcript: Transcript) -> Work[tuple[Division, int]]:
        """Return the division with the longest tail that leaves a summary its full room, and the room that is left.

        The exchange that the person has just read stays also where a summary has less room, but enough to be of use.
        Results that an unfinished answer is about stay as well, where any tail leaves room for them.
        """
        groups, wanted = transcript.groups, self.cap(self.target)
        if self.answer is not None:
            order = (self.answer, *self._requests(groups, self.answer))
            return (yield from self.in_parts(transcript, self.answer, order, self._least_beside))
        starts = list(tail_starts(groups, self.turns))
        starts = sorted({min(starts[-1], max(start, self.stays_from(groups))) for start in starts})
        answered, first = results_being_answered(groups), first_request(groups)
        is_small = bool(self.small_first_request(groups))
        ends = {} if is_small else self._parts(groups, dict.fromkeys(first, self.budget.window // SHARE_OF_ENDS))
        tries = [(start, answered | first) for start in starts if answered]
        tries += [(start, first) for start in starts]
        least = wanted if self.turns is None else min(wanted, self._least_beside)
        for start, keeping in tries:
            if self.exchange is not None and start > self.exchange:
                return (yield from self._around(transcript, self.exchange, self._least_beside))
            parts = ends if start > min(first, default=start) else None
            division = divide(transcript, tails_from=start, keeping=keeping, parts=parts)
            room = self.budget.room((yield from fixed(division)), self.target)
            if division.old and room >= least:
                return (
                    (yield from self._around(transcript, start, least, keeping)) if division.parts else (division, room)
                )
        return (yield from self._around(transcript, starts[-1], wanted))

    def _around(
        self, transcript: Transcript, start: int, least: int, keeping: frozenset[int] = NOTHING
    ) -> Work[tuple[Division, int]]:
        """Return the division with this tail, and of the first request as much as there is room for."""
        groups = transcript.groups
        order = [*last_words(groups)] if start == len(groups) - 1 else []
        order += [place for place in first_request(groups) if place < start]
        return (yield from self.in_parts(transcript, start, order, least, keeping))

    def stays_from(self, groups: tuple[Group, ...]) -> int:
        """Return the place of the first group that may stay without being asked for."""
        return 0 if self.turns is None else start_of_turns(groups, self.turns)

    def small_first_request(self, groups: tuple[Group, ...]) -> frozenset[int]:
        """Return the place of the conversation's first request where it is small enough to stay word for word."""
        most = self.budget.window // SHARE_OF_REQUEST
        return frozenset(place for place in first_request(groups) if fits(groups[place].text, most, self.size))

    def _requests(self, groups: tuple[Group, ...], answer: int) -> list[int]:
        """Return the places of the requests before an answer that it rests on: its own, the task's, and the first."""
        users = [place for place in range(answer) if groups[place].kind == "user" and not is_summary(groups[place])]
        wanted = [*users[-1:], *sorted(running_task(groups), reverse=True), *first_request(groups)]
        return [place for place in dict.fromkeys(wanted) if place < answer]

    def in_parts(
        self,
        transcript: Transcript,
        start: int,
        order: Sequence[int],
        least: int,
        keeping: frozenset[int] = NOTHING,
    ) -> Work[tuple[Division, int]]:
        """Return the division with as much of these messages as leaves a summary so many tokens, and the room.

        Those that come first in the order have the room before the others.
        """
        groups, window = transcript.groups, self.budget.window
        most = {place: 0 if groups[place].kind == "assistant" else window // SHARE_OF_ENDS for place in order}
        parts, division, room = yield from self._with_parts(transcript, start, most, keeping)
        for place in (each for each in order for _ in range(PASSES)):
            if place not in parts or abs(room - least) < NEAR_ENOUGH:
                continue
            wanted = self.size(text_of(parts[place].message)) + room - least
            is_answer = groups[place].kind == "assistant"
            most[place] = max(0, wanted if is_answer else min(wanted, window // SHARE_OF_REQUEST))
            parts, division, room = yield from self._with_parts(transcript, start, most, keeping)
        if room < least // 2 and (fewer := [place for place in order if place >= start]) != list(order):
            return (yield from self.in_parts(transcript, start, fewer, least, keeping.difference(order)))
        return division, room

    def _with_parts(
        self, transcript: Transcript, start: int, most: Mapping[int, int], keeping: frozenset[int]
    ) -> Work[tuple[Mapping[int, Excerpt], Division, int]]:
        """Return what stays of messages that may take so many tokens, the division with that, and the room."""
        parts = self._parts(transcript.groups, most)
        division = divide(transcript, tails_from=start, keeping=keeping.union(most), parts=parts)
        return parts, division, self.budget.room((yield from fixed(division)), self.target)

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


def fixed(division: Division) -> Work[int]:
    """Return the tokens of what a division keeps whatever happens."""
    base: int = yield Count(build(division, "", ()))
    return base
