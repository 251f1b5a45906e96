"""Makes shorter conversations out of plans and digests, within a room that is estimated before anything is counted."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elbowroom.context.compaction.answer import Plan
from elbowroom.context.compaction.calls import RemovedCalls
from elbowroom.context.compaction.digest import digest
from elbowroom.context.compaction.division import (
    Division,
    NumberedGroup,
    TaskState,
    build,
    carried_by,
    is_summary,
    summary_message,
)
from elbowroom.context.compaction.facts import (
    Fact,
    Held,
    State,
    Weight,
    facts_of,
    files_in,
    files_listed,
    listed_files,
    lost,
)
from elbowroom.context.compaction.order import LONGEST_TOKEN, too_long
from elbowroom.context.outputs import is_cleared
from elbowroom.context.transcript import Group, Message, written, written_out

FACTS_SHARE: Final = 10  # one part in ten of the window
FILES_SHARE: Final = 32
CHANGES_SHARE: Final = 4  # of the room for facts
LEAST_LEFT: Final = 200
MOST_UNTOLD: Final = 5
FRAME: Final = 8  # tokens that a template needs around a message
DOES_NOT_FIT: Final = "The messages that were to stay do not fit: there is room for {room} tokens beside the last ones."


@dataclass(frozen=True, slots=True)
class Draft:
    """A shorter conversation that is not counted yet: its plan, the groups that stay, and the message with the summary.

    `lost` are the facts of removed groups that it does not hold, those listed in the summary included. A draft that
    `is_whole` is good only with all its groups.
    """

    division: Division
    plan: Plan
    kept: tuple[NumberedGroup, ...]
    summary: str
    lost: tuple[Fact, ...] = ()
    is_whole: bool = False

    @property
    def messages(self) -> list[Message]:
        """Return the messages of the shorter conversation."""
        return build(self.division, self.summary, self.kept)

    @property
    def staying(self) -> int:
        """Return how many groups stay word for word, system messages apart."""
        others = (*self.division.pinned, *self.kept)
        return len(others) + sum(group.kind != "system" for group in self.division.tail)

    @property
    def replaced(self) -> int:
        """Return how many groups the summary replaces."""
        return len(self.division.old) - len(self.kept)


class Drafts:
    """Makes the drafts of one compaction; `size` counts a text, `room` is what the target leaves beside the tail.

    `removed` is what the summary tells of removed tool calls. Groups that nobody asks to keep stay only from the place
    `stays_from` on. `untold` are a few conditions of the user that the last draft neither tells nor has room to list.
    """

    def __init__(
        self,
        division: Division,
        state: TaskState,
        size: Callable[[str], int],
        window: int,
        room: int,
        removed: RemovedCalls,
        stays_from: int = 0,
    ) -> None:
        self.division = division
        self.room = room
        self.untold: tuple[str, ...] = ()
        self._state = state
        self._size = size
        self._facts_room = window // FACTS_SHARE
        self._files_room = window // FILES_SHARE
        self._found: dict[int, list[Fact]] = {}
        self._touched: dict[int, list[tuple[str, State]]] = {}
        self._sizes: dict[int, int] = {}
        self._fact_sizes: dict[str, int] = {}
        self._staying = Held(map(written_out, _staying(division)))
        self._carried = carried_by(division.summaries)
        self._removed = removed
        self._stays_from = stays_from
        self._results = removed.results or self._carried.results
        self._frame = size(summary_message("-", "-", ["-"], state, self._results, "-")) + FRAME

    def planned(self, plan: Plan, most: int) -> Draft | str:
        """Return the draft of a plan, whose summary may take `most` tokens, or the reason against it.

        The groups that the plan keeps stay as far as there is room, and where more is left, the newest of the others.
        """
        length = self._size(f"{plan.retain}\n{plan.summary}")
        if length > most:
            return too_long(length, most).reason
        return self._filled(plan)

    def whole(self, plan: Plan) -> Draft | str:
        """Return the draft of a plan that is good only with every group that it keeps, or the reason against it."""
        draft = self._draft(plan, [each for each in self.division.old if each.id in plan.keep])
        needed = sum(map(self._size_of, draft.kept)) + self._size(draft.summary)
        return replace(draft, is_whole=True) if needed <= self.room else DOES_NOT_FIT.format(room=self.room)

    def digested(self, room: int) -> Draft:
        """Return a draft with a digest of the old groups below the earlier summaries, in so much room.

        Facts have their room before the digest, down to half of what that could take: it quotes whoever spoke last.
        """
        room = min(room, max(room // 2, self.room - self._frame - self._facts_room - self._files_room))
        retain = self._cut(self._carried.retain, room // 4)
        summary = self._cut(self._carried.summary, room // 4, keeps_end=True)
        left = room - self._size(retain) - self._size(summary)
        draft = self._filled(self._digest_of(self.division.old, retain, summary, left))
        if not draft.kept:
            return draft
        stays = {each.id for each in draft.kept}
        removed = [each for each in self.division.old if each.id not in stays]
        return self._draft(self._digest_of(removed, retain, summary, left), draft.kept)

    def _digest_of(self, removed: Sequence[NumberedGroup], retain: str, summary: str, left: int) -> Plan:
        """Return the plan whose summary tells of these groups below an earlier one, in so much room."""
        of = self._removed
        groups = [each.group for each in removed]
        told = digest(groups, self._size, left, of.most_tokens, of.kinds, keeps_errors=of.keeps_errors)
        return Plan(retain, "\n".join(filter(None, (summary, told))))

    def facts_alone(self, division: Division, room: int) -> Draft:
        """Return the groups that a division keeps with only rules and facts above them, in so much room."""
        room -= self._frame
        retain = self._cut(self._carried.retain, room // 2)
        held = [Held([retain, *map(written_out, _staying(division))])]
        removed = [*division.summaries, *(each.group for each in division.old)]
        files = self._files_of(removed, min(self._files_room, (room - self._size(retain)) // 2))
        held[0].add([files])
        facts = self._listed(self._lost(removed, held), room - self._size(f"{retain}\n{files}"))
        has_any = retain or facts or files or self._results
        text = summary_message(retain, "", facts, self._state, self._results, files) if has_any else ""
        return Draft(division, Plan(retain, ""), (), text)

    def results_alone(self, division: Division) -> Draft:
        """Return the groups that a division keeps with only a note above them on where removed results can be read."""
        text = summary_message("", "", (), self._state, self._results) if self._results else ""
        return Draft(division, Plan("", ""), (), text)

    def shrunk(self, draft: Draft) -> Draft:
        """Return a draft with only the newer half of the groups that it keeps."""
        return self._draft(draft.plan, draft.kept[(len(draft.kept) + 1) // 2 :])

    def _filled(self, plan: Plan) -> Draft:
        """Return the plan's draft with as many groups as there is room for: its own, then the newest.

        Facts get their room first; where they need less, it goes to more groups.
        """
        left = self.room - self._size(f"{plan.retain}\n{plan.summary}") - self._frame - self._facts_room
        wanted: list[NumberedGroup] = []
        for each in reversed(self.division.old):
            if each.id in plan.keep and (size := self._size_of(each)) <= left:
                wanted.append(each)
                left -= size
        draft = self._draft(plan, [*wanted, *self._newest(wanted, left)])
        more = self._newest(draft.kept, self._left_by(draft))
        return self._draft(plan, [*draft.kept, *more], draft.lost) if more else draft

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
            if each.id in present or is_cleared(each.group):
                continue
            if (size := self._size_of(each)) <= left:
                more.append(each)
                left -= size
            elif each.group.kind != "tools" or left < LEAST_LEFT:
                break
        return more

    def _left_by(self, draft: Draft) -> int:
        return self.room - self._size(draft.summary) - FRAME - sum(map(self._size_of, draft.kept))

    def _draft(self, plan: Plan, kept: Iterable[NumberedGroup], among: Sequence[Fact] | None = None) -> Draft:
        """Return a plan's draft with these groups; `among` are the facts that a draft with fewer groups had lost."""
        stays = {each.id: each for each in kept}
        ordered = [stays[number] for number in sorted(stays)]
        told = f"{plan.retain}\n{plan.summary}"
        held = Held([told])
        held.add(written_out(each.group) for each in ordered)
        room = min(self._facts_room + self._files_room, self.room - self._frame - self._size(told))
        removed = [*self.division.summaries, *(each.group for each in self.division.old if each.id not in stays)]
        files = self._files_of(removed, min(self._files_room, room // 2))
        held.add([files])
        if among is None:
            missing = self._lost(removed, [self._staying, held])
        else:
            missing = [fact for fact in among if not held.tells(fact)]
        listed = self._listed(missing, min(self._facts_room, room - self._size(files)))
        summary = summary_message(plan.retain, plan.summary, listed, self._state, self._results, files)
        return Draft(self.division, plan, tuple(ordered), summary, tuple(missing))

    def _lost(self, removed: Sequence[Group], held: Sequence[Held]) -> list[Fact]:
        """Return the facts of removed groups that none of the texts tell."""
        return lost([fact for group in removed for fact in self._facts_of(group)], held)

    def _listed(self, missing: Sequence[Fact], room: int) -> list[str]:
        """Return as many facts as there is room for, and note the conditions among the others as untold.

        Sentences about changes take a quarter of the room; of further ones only the newest value is listed.
        """
        listed: list[str] = []
        untold: list[str] = []
        for_changes = room // CHANGES_SHARE
        for fact in missing:
            text = fact.text
            size = self._size_listed(text)
            if fact.weight is Weight.CHANGE and size > for_changes:
                text = fact.core
                size = self._size_listed(text)
            elif fact.weight is Weight.CHANGE:
                for_changes -= size
            if size <= room:
                listed.append(text)
                room -= size
            elif fact.weight is Weight.CONDITION:
                untold.append(fact.text)
        self.untold = tuple(untold[:MOST_UNTOLD])
        return listed

    def _size_listed(self, text: str) -> int:
        """Return the tokens of a fact's line, counted once."""
        if text not in self._fact_sizes:
            self._fact_sizes[text] = self._size(f"- {text}\n")
        return self._fact_sizes[text]

    def _files_of(self, removed: Sequence[Group], room: int) -> str:
        """Return the lines about the files of removed groups, in so much room; what stays tells their last state."""
        files: dict[str, State] = {}
        for group in removed:
            touched = files_listed(carried_by([group]).files) if is_summary(group) else self._touched_by(group)
            for path, state in touched:
                files.pop(path, None)
                files[path] = state
        for path, state in (each for group in _staying(self.division) for each in self._touched_by(group)):
            if path in files:
                files[path] = state
        return listed_files(files, self._size, room)

    def _touched_by(self, group: Group) -> list[tuple[str, State]]:
        """Return the files that the calls of a group have touched, looked for once."""
        if group.kind != "tools":
            return []
        if id(group) not in self._touched:
            self._touched[id(group)] = list(files_in([group], self._removed.kinds))
        return self._touched[id(group)]

    def all_facts(self) -> list[Fact]:
        """Return the facts of everything that a compaction may remove."""
        groups = (*self.division.summaries, *(each.group for each in self.division.old))
        return [fact for group in groups for fact in self._facts_of(group)]

    def _facts_of(self, group: Group) -> list[Fact]:
        """Return the facts of a group, searched for once."""
        if id(group) not in self._found:
            self._found[id(group)] = [fact for fact in facts_of(group) if fact is not None]
        return self._found[id(group)]

    def _size_of(self, numbered: NumberedGroup) -> int:
        """Return the tokens of a group; a group whose length alone shows that it has no room is not counted."""
        if numbered.id not in self._sizes:
            texts = [written(message) for message in numbered.group.messages]
            is_too_long = sum(map(len, texts)) > LONGEST_TOKEN * max(0, self.room)
            self._sizes[numbered.id] = self.room + 1 if is_too_long else sum(self._size(text) + FRAME for text in texts)
        return self._sizes[numbered.id]

    def _cut(self, text: str, room: int, *, keeps_end: bool = False) -> str:
        """Return as many lines of a text as fit, from its beginning or its end."""
        lines = text.splitlines()
        fitting: list[str] = []
        for line in reversed(lines) if keeps_end else lines:
            room -= self._size(f"{line}\n")
            if room < 0:
                break
            fitting.append(line)
        return "\n".join(reversed(fitting) if keeps_end else fitting)


def _staying(division: Division) -> list[Group]:
    return [*division.system, *(each.group for each in division.pinned), *division.tail]
