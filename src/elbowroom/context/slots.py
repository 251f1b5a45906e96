"""Decides in which slot of an engine a prompt is read, and what is saved before and restored for it.

A slot keeps the prompt that it has read last, so that the next one is read only from where it differs. Whoever asks:

    seat = table.seat(prompt, of, pays)          # which slot; what to save of it first, which file to restore into it
    table.taken(seat)
    table.saved(seat, tokens)                    # where something leaves the slot
    table.left(seat, prompt)                     # once the prompt has been read and answered there

What the engine then says that it had not to read again tells whether that helps: `standing_after`.
"""

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final, Literal

from elbowroom.context.reuse import SentPrompt

Standing = Literal["tried", "saves", "pins", "left_alone"]
"""What is done for a model: it is found out what helps; conversations have slots and files; they have slots alone;
nothing, since the engine itself keeps what it takes out of a slot."""
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
    the conversation that the prompt belongs to, or goes on with.
    """

    slot: int
    of: Hashable = None
    expected: int = 0
    leaves: Held | None = None
    saves: bool = False
    number: int = 0
    file: File | None = None


Pays = Callable[[int, int], bool]
"""Takes how many tokens would be moved, and how many need not be read for that; tells whether it takes less time."""


class SlotTable:
    """What is in each slot of a model and in its files, as far as this server has put it there."""

    def __init__(self, slots: int) -> None:
        self.held: list[Held | None] = [None] * slots
        self._used = [0] * slots
        self._uses = 0
        self._busy: set[int] = set()
        self._files: dict[int, File] = {}
        self._fates: deque[bool] = deque(maxlen=FATES)

    def seat(self, prompt: SentPrompt, of: Hashable, pays: Pays) -> Seat:
        """Return the place of a prompt of the conversation `of`, None where it has none; one slot is not busy.

        A conversation stays where it is, and what belongs to none, such as an order for a summary, goes where it goes
        on with most of what is there. Else the slot is taken that was used least lately: one that shares a long
        beginning with the prompt is the place of another conversation.
        """
        idle = [slot for slot in range(len(self.held)) if slot not in self._busy]
        own = [slot for slot in idle if of is not None and self._of(slot) == of]
        near = [slot for slot in idle if of is None and self._goes_on(slot, prompt)]
        if own or near:
            slot, leaves = max(own or near, key=lambda one: self._shared(one, prompt)), None
        else:
            slot = min(idle, key=lambda one: self._used[one])
            leaves = self._leaving(slot)
        saves = leaves is not None and pays(2 * leaves.tokens, round(self._chance * leaves.prompt.tokens))
        file = self._file_for(prompt, of, self._shared(slot, prompt), pays)
        source = file.held if file is not None else self.held[slot]
        expected = source.prompt.tokens if source is not None and prompt.continues(source.prompt) else 0
        if of is None and source is not None and source.goes_on_with(prompt):
            of = source.of
        return Seat(slot, of, expected, leaves, saves, self._number_for(leaves, file), file)

    def taken(self, seat: Seat) -> None:
        """Note that a prompt is read in a slot from now on; what is there is not known until it is left."""
        self._uses += 1
        self._used[seat.slot] = self._uses
        self._busy.add(seat.slot)
        if seat.file is not None and not seat.file.is_back:
            self._fates.append(True)
            self._files[seat.file.number] = replace(self._files[seat.file.number], is_back=True)

    def left(self, seat: Seat, prompt: SentPrompt | None) -> None:
        """Note that a slot is idle again, and what it has; None where that is not known."""
        self._busy.discard(seat.slot)
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
            if file.held.of == of or (of is None and file.held.goes_on_with(prompt))
        ]
        file = max(files, key=lambda one: one.held.shared_with(prompt), default=None)
        if file is None or (gain := file.held.shared_with(prompt) - there) <= 0:
            return None
        return file if pays(file.tokens, gain) else replace(file, tokens=0)

    def _number_for(self, leaves: Held | None, restored: File | None) -> int:
        """Return the file for what leaves: that of its conversation, else a new one or the one used least lately."""
        if leaves is None:
            return 0
        spared = restored.number if restored is not None else None
        others = {number: file.held.of for number, file in self._files.items() if number != spared}
        own = [number for number, of in others.items() if of == leaves.of]
        new = [number for number in range(FILES) if number not in self._files]
        return [*own, *new, *others][0]

    def _of(self, slot: int) -> Hashable:
        held = self.held[slot]
        return held.of if held is not None else None

    def _goes_on(self, slot: int, prompt: SentPrompt) -> bool:
        held = self.held[slot]
        return held is not None and held.goes_on_with(prompt)

    def _shared(self, slot: int, prompt: SentPrompt) -> int:
        held = self.held[slot]
        return held.shared_with(prompt) if held is not None else 0


def ways_of(standing: Standing, seat: Seat, *, is_alone: bool) -> list[Way]:
    """Return the ways in which a prompt is sent, each as soon as the engine says that it lacks what is expected.

    A slot that `is_alone` need not be told. While it is not known whether the engine keeps by itself what has left a
    slot, it is left the choice: some look for that only then.
    """
    has_file = seat.file is not None and seat.file.tokens > 0
    if standing == "tried" and seat.expected:
        return ["anywhere", "file"] if has_file else ["anywhere"]
    return ["file"] if standing == "saves" and has_file else ["anywhere" if is_alone else "slot"]


def standing_after(standing: Standing, way: Way, has: bool | None, *, can_save: bool) -> Standing:
    """Return what is done from now on, after a conversation was back whose slot another one had taken.

    The engine `has` had it when it was sent in the last of its ways; None where it does not say.
    """
    if standing != "tried":
        return standing
    if way != "file" and has:
        return "left_alone"
    return "saves" if has or (way != "file" and has is False and can_save) else "pins"
