"""Decides in which slot of an engine a prompt is read, and what is saved before and restored for it.

A slot keeps the prompt that it has read last, so that the next one is read only from where it differs. Whoever asks:

    seat = table.seat(prompt, of, pays, is_new)  # which slot; what to save of it first, which file to restore into it
    table.taken(seat)
    table.saved(seat, tokens)                    # where something leaves the slot
    table.left(seat, prompt)                     # once the prompt has been read and answered there

Where there is no seat, the engine chooses the slot, and it may be found out which:

    table.strayed()
    seat = table.landed(begun, seat)             # once it is read, by the slots in which something has begun since
    table.left(seat, prompt)                     # or table.lost() where that is not known

What the engine then says that it had not to read again tells whether that helps: `standing_after`.
"""

from collections import Counter, deque
from collections.abc import Callable, Hashable, Set
from dataclasses import dataclass, replace
from typing import Final, Literal

from elbowroom.context.reuse import SentPrompt

Standing = Literal["tried", "saves", "left_alone"]
"""What is done for a model: it is found out what helps; conversations have slots and files; nothing, since the engine
itself keeps what it takes out of a slot, or saving that does not help."""
Way = Literal["slot", "anywhere", "file"]
"""How a prompt is sent: to its slot, to whichever the engine chooses, or to a slot into which a file was restored."""
FILES: Final = 8
"""Conversations of a model that are in files: each takes as much of a disk as a full slot takes of the memory."""
FATES: Final = 32
"""Of so many conversations that have left a slot it is known whether they were back before their file was another's."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a slot or a file has: a prompt with its answer, and the key of its conversation, None where it has none."""

    prompt: SentPrompt
    of: Hashable

    @property
    def tokens(self) -> int:
        """Return how many tokens it has."""
        return self.prompt.tokens + self.prompt.answer

    def shared_with(self, prompt: SentPrompt) -> int:
        """Return about how many of its tokens another prompt begins with; exactly where that goes on after it."""
        if not prompt.begins_as(self.prompt):
            return 0
        return self.prompt.tokens * prompt.shared_with(self.prompt) // max(1, len(self.prompt.messages))

    def goes_on_with(self, prompt: SentPrompt) -> bool:
        """Tell whether another prompt begins with most of it."""
        return 2 * self.shared_with(prompt) > self.tokens


@dataclass(frozen=True, slots=True)
class File:
    """What has left a slot, and how many tokens the engine says are in its file: 0 where it was not saved.

    It `is_back` once the conversation has gone on.
    """

    number: int
    held: Held
    tokens: int
    is_back: bool = False


@dataclass(frozen=True, slots=True)
class Seat:
    """The slot of a prompt; what leaves it first, whether it `saves` that, in which file, and the file for the prompt.

    The engine should find `expected` tokens of the prompt in its slot or the file; 0 where that cannot be told. `of` is
    the conversation that the prompt belongs to, or goes on with; it `is_out` where it is known to be in no slot.
    """

    slot: int
    of: Hashable = None
    expected: int = 0
    leaves: Held | None = None
    saves: bool = False
    number: int = 0
    file: File | None = None
    is_out: bool = False


Pays = Callable[[int, int], bool]
"""Takes how many tokens would be moved, and how many need not be read for that; tells whether it takes less time."""


class SlotTable:
    """What is in each slot of a model and in its files, as far as this server has put it there.

    What a slot has is not known, None, until a prompt was read there.
    """

    def __init__(self, slots: int) -> None:
        self.held: list[Held | None] = [None] * slots
        self._used = [0] * slots
        self._uses = 0
        self._busy: Counter[int] = Counter()
        self._astray = 0
        self._files: dict[int, File] = {}
        self._moved: set[int] = set()
        """The files that are written or read now."""
        self._fates: deque[bool] = deque(maxlen=FATES)

    def seat(
        self, prompt: SentPrompt, of: Hashable, pays: Pays, *, is_new: bool = False, busy: Set[int] = frozenset()
    ) -> Seat | None:
        """Return the place of a prompt of the conversation `of`, None where it has none; `is_new` without an answer.

        A conversation stays where it is, and what belongs to none, such as an order for a summary, goes where it goes
        on with most of what is there. Else the slot is taken of which nothing is known, which belongs to none, or that
        was used least lately: one that shares a long beginning with the prompt is the place of another conversation.

        None where no slot is idle, since others are `busy` too, or where it is not known which slot has the prompt, or
        which of them the engine has just chosen for another one.
        """
        idle = [slot for slot in self._slots if not self._busy[slot] and slot not in busy]
        if self._astray or not idle:
            return None
        own = [slot for slot in idle if of is not None and self._of(slot) == of]
        near = [slot for slot in idle if of is None and self._goes_on(slot, prompt)]
        if own or near:
            slot, leaves = max(own or near, key=lambda one: self._shared(one, prompt)), None
        else:
            slot = min(idle, key=lambda one: (self._of(one) is not None, self._used[one]))
            leaves = self._leaving(slot)
        file = self._file_for(prompt, of, self._shared(slot, prompt), pays)
        if not (own or near or file or is_new or len(self.held) == 1 or None not in self.held):
            return None
        number = self._number_for(leaves, file) if leaves is not None else None
        leaves = leaves if number is not None else None
        saves = leaves is not None and pays(2 * leaves.tokens, round(self._chance * leaves.prompt.tokens))
        source = file.held if file is not None else self.held[slot]
        expected = source.prompt.tokens if source is not None and prompt.continues(source.prompt) else 0
        if of is None and source is not None and source.goes_on_with(prompt):
            of = source.of
        is_out = file is not None and None not in self.held
        return Seat(slot, of, expected, leaves, saves, number or 0, file, is_out)

    def strayed(self) -> None:
        """Note that the engine chooses the slot of a prompt."""
        self._astray += 1

    def landed(self, begun: Set[int], seat: Seat) -> Seat | None:
        """Take the slot that was chosen for a prompt that strayed, and return the seat there.

        It is found by the slots in which something has `begun` since. None where that can be several, or one that has
        another prompt of this server.
        """
        chosen = [slot for slot in self._slots if slot in begun and not self._busy[slot]]
        if len(self.held) == 1:
            chosen = [0]
        if len(chosen) != 1:
            return None
        self._astray -= 1
        self.taken(there := replace(seat, slot=chosen[0]))
        return there

    def lost(self) -> None:
        """Note that a prompt that strayed has ended, of which it is not known where it was: it may be in each slot."""
        self._astray -= 1
        self.held = [None for _ in self.held]

    def taken(self, seat: Seat) -> None:
        """Note that a slot is busy with a prompt from now on; what is there is not known once that is read."""
        self._uses += 1
        self._used[seat.slot] = self._uses
        self._busy[seat.slot] += 1
        self._moved |= _moved(seat)
        file = self._files.get(seat.file.number) if seat.file is not None else None
        if file is not None and not file.is_back:
            self._fates.append(True)
            self._files[file.number] = replace(file, is_back=True)

    def given_back(self, seat: Seat) -> None:
        """Note that a slot is idle again, with what it had before."""
        self._busy[seat.slot] -= 1
        self._moved -= _moved(seat)

    def left(self, seat: Seat, prompt: SentPrompt | None) -> None:
        """Note that a slot is idle again, and what it has; None where that is not known."""
        self.given_back(seat)
        self.held[seat.slot] = Held(prompt, seat.of) if prompt is not None else None

    def saved(self, seat: Seat, tokens: int) -> None:
        """Note what has left a slot, and that the engine says that so many tokens are in its file.

        Fewer than those of the prompt are something else, which another program has had read in the slot.
        """
        before = self._files.pop(seat.number, None)
        if before is not None and not before.is_back:
            self._fates.append(False)
        if seat.leaves is not None:
            is_it = tokens >= seat.leaves.prompt.tokens
            self._files[seat.number] = File(seat.number, seat.leaves, tokens if is_it else 0)

    def restored(self, file: File, tokens: int) -> bool:
        """Note that a file was restored; return whether it has what it had when it was saved, and else forget it."""
        self._files.pop(file.number, None)
        if tokens == file.tokens:
            self._files[file.number] = replace(file, is_back=True)  # as the one that was used last
        return tokens == file.tokens

    @property
    def _slots(self) -> range:
        return range(len(self.held))

    @property
    def _chance(self) -> float:
        """Return how likely what leaves a slot is back in time."""
        return (1 + sum(self._fates)) / (1 + len(self._fates))

    def _leaving(self, slot: int) -> Held | None:
        """Return what leaves a slot when another prompt is read there, None where nothing does that may be back."""
        held = self.held[slot]
        if held is None or held.of is None or any(file.held is held for file in self._files.values()):
            return None
        return held

    def _file_for(self, prompt: SentPrompt, of: Hashable, there: int, pays: Pays) -> File | None:
        """Return the file of a conversation, or of the one that a prompt goes on with which belongs to none.

        It has more of the prompt than what is `there`; it counts as not saved where it does not pay to restore it.
        """
        files = [
            file
            for file in self._files.values()
            if file.number not in self._moved
            and (file.held.of == of or (of is None and file.held.goes_on_with(prompt)))
        ]
        file = max(files, key=lambda one: one.held.shared_with(prompt), default=None)
        if file is None or (gain := file.held.shared_with(prompt) - there) <= 0:
            return None
        return file if pays(file.tokens, gain) else replace(file, tokens=0)

    def _number_for(self, leaves: Held, restored: File | None) -> int | None:
        """Return the file for what leaves: that of its conversation, else a new one or the one used least lately.

        None where each is written or read now.
        """
        spared = {*self._moved, *([restored.number] if restored is not None else [])}
        others = {number: file.held.of for number, file in self._files.items() if number not in spared}
        own = [number for number, of in others.items() if of == leaves.of]
        new = [number for number in range(FILES) if number not in self._files and number not in spared]
        return next(iter([*own, *new, *others]), None)

    def _of(self, slot: int) -> Hashable:
        held = self.held[slot]
        return held.of if held is not None else None

    def _goes_on(self, slot: int, prompt: SentPrompt) -> bool:
        held = self.held[slot]
        return held is not None and held.goes_on_with(prompt)

    def _shared(self, slot: int, prompt: SentPrompt) -> int:
        held = self.held[slot]
        return held.shared_with(prompt) if held is not None else 0


def _moved(seat: Seat) -> set[int]:
    """Return the files that are written or read for a seat."""
    return {
        *([seat.number] if seat.leaves is not None else []),
        *([seat.file.number] if seat.file is not None else []),
    }


def ways_of(standing: Standing, seat: Seat) -> list[Way]:
    """Return the ways in which a prompt is sent, each as soon as the engine says that it lacks what is expected.

    While it is not known whether the engine keeps by itself what has left a slot, it is left the choice: some look for
    that only then.
    """
    has_file = seat.file is not None and seat.file.tokens > 0
    if standing == "tried" and seat.is_out and seat.expected:
        return ["anywhere", "file"] if has_file else ["anywhere"]
    return ["file"] if has_file else ["slot"]


def standing_after(standing: Standing, way: Way, has: bool | None) -> Standing:
    """Return what is done from now on, after a conversation was back whose slot another one had taken.

    The engine `has` had it when it was sent in the last of its ways; None where it does not say.
    """
    if standing != "tried":
        return standing
    return "saves" if (way == "file") is has else "left_alone"
