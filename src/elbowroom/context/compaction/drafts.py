"""Makes shorter conversations out of plans and quotations, within a room that is estimated before it is counted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from elbowroom.context.compaction.answer import Plan
from elbowroom.context.compaction.calls import RemovedCalls, summary_of_calls
from elbowroom.context.compaction.coverage import Coverage, Unit, quoted, words_of
from elbowroom.context.compaction.division import (
    FROM_MIDDLE,
    Division,
    Excerpt,
    NumberedGroup,
    Rung,
    TaskState,
    body_of,
    build,
    quotation,
    summary_message,
)
from elbowroom.context.compaction.order import too_long
from elbowroom.context.compaction.outcome import Compaction
from elbowroom.context.compaction.record import Record, groups_of, staying_in
from elbowroom.context.divisible import LONGEST_TOKEN, within
from elbowroom.context.effects import Count, Work
from elbowroom.context.outputs import READ_TOOL, is_cleared
from elbowroom.context.transcript import Group, Message, Summary, text_of, written

NEWEST_SHARE: Final = 8
"""One part in so many of the room goes to the newest messages before the quotations."""
USERS_SHARE: Final = 4
"""One part in so many of the target goes to whole messages of the user before all other quotations."""
STANDING_SHARE: Final = 2
"""One part in so many of a summary's room is for the beginning of the one before it, which stays where it stood."""
NEARLY: Final = 0.99
"""The share of a free choice's worth that the choice beside that beginning has at least; else all is chosen anew."""
CALLS_SHARE: Final = 8
PARTS_SHARE: Final = 64
LEAST_LEFT: Final = 200
FRAME: Final = 8  # tokens that a template needs around a message
MOST_GROUPS: Final = 500
"""Old groups that are looked at one by one; a pruning agent is shown a list of no more than 120."""
OLDEST_SHARE: Final = 7
"""One part in so many of the window is for what older groups than these are told by."""
LEFT_OUT: Final = "- ({} messages are left out.)"
NO_PLAN: Final = Plan("", "")
DOES_NOT_FIT: Final = "The messages that were to stay do not fit: there is room for {room} tokens beside the last ones."


@dataclass(frozen=True, slots=True)
class Draft:
    """A shorter conversation that is not counted yet: its plan, the groups that stay, and the message with the summary.

    It has a room of `most` tokens. A draft that `is_whole` is good only with all its groups.
    """

    division: Division
    plan: Plan
    kept: tuple[NumberedGroup, ...]
    summary: str
    most: int = 0
    is_whole: bool = False

    @property
    def messages(self) -> list[Message]:
        """Return the messages of the shorter conversation."""
        return build(self.division, self.summary, self.kept)

    def counted(self, rung: Rung, before: int) -> Work[Compaction]:
        """Return it as the compaction that this rung makes of a prompt with `before` tokens."""
        messages, division, kept = tuple(self.messages), self.division, len(self.kept)
        after: int = yield Count(messages)
        whole = len(division.pinned) + kept - len(division.parts)
        return Compaction(
            messages,
            rung,
            before,
            after,
            len(division.oldest) + len(division.old) - kept,
            self.summary,
            division.untouched,
            whole + sum(group.kind != "system" for group in division.tail),
            condensed_groups=len(division.oldest),
            parts=tuple((part.whole, part.message) for part in division.parts.values()),
        )


class Drafts:
    """Makes the drafts of one compaction; `size` counts a text, `room` is what the target leaves beside the tail.

    `carrying` is a summary that has only what code carries: the files that were changed, and what is to do. It is empty
    without any, and takes `carried` tokens.

    `target` bounds the whole prompt. `removed` is what the summary tells of removed tool calls. Groups that nobody asks
    to keep stay only from the place `stays_from` on.
    """

    def __init__(
        self,
        division: Division,
        state: TaskState,
        size: Callable[[str], int],
        window: int,
        room: int,
        target: int,
        removed: RemovedCalls,
        stays_from: int = 0,
    ) -> None:
        self.division = division
        self.room = room
        self.coverage = Coverage(groups_of(division), size)
        self._state = state
        self._size = size
        self._least_part = min(LEAST_LEFT, window // PARTS_SHARE)
        self._users_room = target // USERS_SHARE
        self._chooses_anew: bool | None = None
        self._sizes: dict[int, int] = {}
        self._record = Record(division, size, window, removed.kinds)
        self._removed = removed
        self._stays_from = stays_from
        self._results = removed.results or self._record.results
        self.carrying = self._record.carried
        self.carried = size(self.carrying) + FRAME if self.carrying else 0

    def planned(self, plan: Plan, most: int) -> Draft | str:
        """Return the draft of a plan, whose summary may take `most` tokens, or the reason against it.

        The groups that the plan keeps stay as far as there is room, and where more is left, the newest of the others.
        """
        length = self._size(f"{plan.retain}\n{plan.summary}")
        if length > most:
            return too_long(length, most).reason
        return self._filled(plan, self.room)

    def whole(self, plan: Plan) -> Draft | str:
        """Return the draft of a plan that is good only with every group that it keeps, or the reason against it."""
        draft = self._draft(
            self.division,
            plan,
            [each for each in self.division.old if each.id in plan.keep and not each.is_part],
            self.room,
        )
        needed = sum(map(self._size_of, draft.kept)) + self._size(draft.summary)
        return replace(draft, is_whole=True) if needed <= self.room else DOES_NOT_FIT.format(room=self.room)

    def digested(self, room: int) -> Draft:
        """Return a draft made by code alone in so much room: what the calls did, and quotations."""
        of = self._removed
        calls = [each.group for each in self.division.old if each.group.kind == "tools"]
        most = min(room // CALLS_SHARE, of.most_tokens, room - self.carried)
        done = summary_of_calls(
            calls, lambda text: self._size(quotation("call", text)), most, of.kinds, keeps_errors=of.keeps_errors
        )
        return self._filled(Plan("", quotation("call", done) if done else ""), room)

    def quoted_alone(self, division: Division, room: int) -> Draft:
        """Return the groups that a division keeps with nothing but quotations above them, in so much room."""
        return self._draft(division, NO_PLAN, (), room)

    def results_alone(self, division: Division) -> Draft:
        """Return the groups that a division keeps with only a note above them on where removed results can be read."""
        text = summary_message("", "", (), self._state, self._results) if self._results else ""
        return Draft(division, NO_PLAN, (), text)

    def shrunk(self, draft: Draft, over: int) -> Draft | None:
        """Return a draft without about so many tokens, which are too many: of its quotations, where these have them.

        Where they have not, only the newer half of the groups stays that it keeps, then it goes on without the part of
        a message that it has shown. None where it can get no smaller.
        """
        if draft.is_whole:
            return None
        room = draft.most - max(0, self._left(draft)) - max(LEAST_LEFT // 8, over)
        smaller = self._draft(draft.division, draft.plan, draft.kept, room)
        if len(smaller.summary) < len(draft.summary):
            return smaller
        if draft.kept:
            return self._draft(draft.division, draft.plan, draft.kept[(len(draft.kept) + 1) // 2 :], draft.most)
        parts = [part for id_, part in draft.division.parts.items() if id_ not in self.division.parts]
        if not parts:
            return None
        return self._draft(self.division, draft.plan, (), draft.most + sum(map(self._size_shown, parts)))

    def _filled(self, plan: Plan, room: int) -> Draft:
        """Return the plan's draft with as many groups as there is room for: its own, then a few of the newest.

        Quotations take the rest; where they need less, it goes to more groups.
        """
        files, to_do = self._record.changes(plan.to_do)
        left = room - self._size(self._telling(self.division, plan)((), files=files, to_do=to_do))
        wanted: list[NumberedGroup] = []
        for each in reversed(self.division.old):
            if each.id in plan.keep and not each.is_part and (size := self._size_of(each)) <= left:
                wanted.append(each)
                left -= size
        draft = self._draft(self.division, plan, [*wanted, *self._newest(wanted, left // NEWEST_SHARE)], room)
        while more := self._newest(draft.kept, self._left(draft)):  # what they say needs no quotations any more
            draft = self._draft(self.division, plan, [*draft.kept, *more], room)
        return self._with_part(draft)

    def _left(self, draft: Draft) -> int:
        """Return how many tokens of its room a draft does not use."""
        return draft.most - self._size(draft.summary) - FRAME - sum(map(self._size_of, draft.kept))

    def _with_part(self, draft: Draft) -> Draft:
        """Return the draft with what there is room for of the newest group that goes, where that is much."""
        kept = {each.id for each in draft.kept}
        going = (each for each in reversed(draft.division.old) if each.id not in kept and not each.is_part)
        newest = next((each for each in going if not is_cleared(each.group)), None)
        if newest is None or newest.id < self._stays_from:
            return draft
        *others, largest = sorted(newest.group.messages, key=lambda message: len(text_of(message)))
        left = (
            self._left(draft)
            - FRAME
            - self._size(FROM_MIDDLE)
            - sum(self._size(written(message)) + FRAME for message in others)
        )
        if left < self._least_part or READ_TOOL in text_of(largest):  # a view says in its middle where to read on
            return draft
        if (parts := within(largest, left, self._size)) is None:
            return draft
        part = Excerpt.of(newest.group, parts)
        room = draft.most - self._size_shown(part)
        return self._draft(draft.division.showing(newest.id, part), draft.plan, draft.kept, room)

    def _size_shown(self, part: Excerpt) -> int:
        return sum(self._size(written(message)) + FRAME for message in part.shown.messages)

    def _newest(self, kept: Iterable[NumberedGroup], left: int) -> list[NumberedGroup]:
        """Return the newest groups that are not kept yet, as many as there is room for.

        Calls whose results are too large are passed over; messages go without a gap, so that no question stays without
        its answer.
        """
        present = {each.id for each in kept}
        more: list[NumberedGroup] = []
        for each in reversed(self.division.old):
            if each.id < self._stays_from:
                break
            if each.id in present or each.is_part or is_cleared(each.group):
                continue
            if (size := self._size_of(each)) <= left:
                more.append(each)
                left -= size
            elif each.group.kind != "tools" or left < LEAST_LEFT:
                break
        return more

    def _telling(self, division: Division, plan: Plan) -> Callable[..., str]:
        """Return what makes the message with a plan's summary of the quoted lines, and of what code carries."""
        return partial(
            summary_message,
            plan.retain,
            plan.summary,
            state=self._state,
            results=self._results,
            begins_in_answer=division.begins_in_answer,
        )

    def _draft(self, division: Division, plan: Plan, kept: Iterable[NumberedGroup], room: int) -> Draft:
        """Return a plan's draft with these groups, in so much room for them and the message with the summary."""
        stays = {each.id: each for each in kept}
        ordered = [stays[number] for number in sorted(stays)]
        removed = [*division.summaries, *(each.group for each in division.old if each.id not in stays)]
        left = room - FRAME - sum(map(self._size_of, ordered))
        staying = [*staying_in(division), *(each.group for each in ordered)]
        tell = self._telling(division, plan)
        to_do = self._record.to_do(plan.to_do, staying, left - self._size(tell(("-",))))
        files = self._record.files(removed, left - self._size(tell(("-",), to_do=to_do)))
        most = left - self._size(tell(("-",), files=files, to_do=to_do))
        candidates = self.coverage.candidates(removed, staying)
        standing = self.coverage.standing(removed)
        beginning = self.coverage.beginning(standing, 0 if self._chooses_anew else min(left // STANDING_SHARE, most))

        def chosen(plan: Plan, beginning: Sequence[Unit]) -> tuple[Plan, list[Unit]]:
            """Return the plan, and what is quoted beside it below a beginning, in what these leave of the room."""
            stands = body_of((unit.heading, unit.line) for unit in beginning)
            tell = self._telling(division, plan)
            most = left - self._size(tell(("-",), carried=stands, files=files, to_do=to_do))
            told = f"{plan.retain}\n{plan.summary}\n{files}\n{to_do}"
            return plan, self.coverage.chosen(candidates, told, most, self._users_room, beginning)

        new, units = chosen(_beside(standing, beginning, plan), beginning)
        if beginning and self._chooses_anew is None:
            whole, anew = chosen(plan, ())
            told = f"{plan.retain}\n{plan.summary}"
            worth, best = (self.coverage.worth(candidates, told, each) for each in (units, anew))
            self._chooses_anew = worth < NEARLY * best
            new, units = (whole, anew) if self._chooses_anew else (new, units)
        carried = body_of((unit.heading, unit.line) for unit in units if unit.place is not None)
        lines = [unit.line for unit in units if unit.place is None]
        if removed and not (new.retain or new.summary or units or files or to_do or self._results):
            lines = [LEFT_OUT.format(len(removed))]  # what repeats what stays is left out, but not without a word
        tell = self._telling(division, new)
        text = tell(lines, files=files, carried=carried, to_do=to_do) if removed or lines else ""
        return Draft(division, plan, tuple(ordered), text, room)

    def _size_of(self, numbered: NumberedGroup) -> int:
        """Return the tokens of a group; a group whose length alone shows that it has no room is not counted."""
        if numbered.id not in self._sizes:
            texts = [written(message) for message in numbered.group.messages]
            is_too_long = sum(map(len, texts)) > LONGEST_TOKEN * max(0, self.room)
            self._sizes[numbered.id] = self.room + 1 if is_too_long else sum(self._size(text) + FRAME for text in texts)
        return self._sizes[numbered.id]


def _beside(standing: Sequence[Unit], beginning: Sequence[Unit], plan: Plan) -> Plan:
    """Return a plan without the lines that the beginning of an earlier summary has, but for those changed below it."""
    stays = {unit.line.removeprefix("- ") for unit in beginning}

    def is_new(line: str) -> bool:
        said = line.strip().removeprefix("- ")
        if said not in stays:
            return True
        words = words_of(said)
        last = next((unit for unit in reversed(standing) if 2 * len(words & unit.words) >= len(words)), None)
        return last is None or last.line.removeprefix("- ") != said

    retain, summary = ("\n".join(filter(is_new, text.split("\n"))) for text in (plan.retain, plan.summary))
    return replace(plan, retain=retain, summary=summary)


def condensed(division: Division, size: Callable[[str], int], window: int) -> Division:
    """Return the division with quotations in place of its oldest groups, where it has too many to be looked at.

    They have the form of a summary, so that the next one carries them over. `size` counts a text.
    """
    oldest, old = division.old[:-MOST_GROUPS], division.old[-MOST_GROUPS:]
    if not oldest:
        return division
    lines = quoted([each.group for each in oldest], size, window // OLDEST_SHARE)
    told = Group((Summary(role="user", content=summary_message("", "", lines, "in progress")),))
    return replace(division, old=old, summaries=(*division.summaries, told), oldest=oldest)


def condensed_as(known: Division, division: Division) -> Division:
    """Return another division of the same conversation in which the same groups have quotations in their place."""
    if not known.oldest:
        return division
    gone = {each.id for each in known.oldest}
    old = tuple(each for each in division.old if each.id not in gone)
    return replace(division, old=old, summaries=known.summaries, oldest=known.oldest)
