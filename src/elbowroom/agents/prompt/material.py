"""Shortens the files and other material that a client has put into a message, where they leave no room for anything."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt.counters import StepCounter, is_short
from elbowroom.context.compaction import is_summary, smallest
from elbowroom.context.manager import AgentContextManager, room_for_results, shares
from elbowroom.context.outputs import (
    Material,
    ToolOutputRef,
    has_note,
    material_in,
    note_on_whole,
    short_note_on_whole,
    with_material,
)
from elbowroom.context.prompt import Prompt
from elbowroom.context.transcript import Group, Message, Transcript, text_of

log = logging.getLogger(__name__)
PASSES: Final = 3
HEAD_SHARE: Final = (2, 3)
SHARE_OF_ROOM: Final = (3, 4)
"""How much of the room material may take; the rest is for a summary of the history."""
NEAR: Final = 200
"""Characters within which a piece is cut at the end of a line or word instead of in the middle of it."""
FOR_NOTE: Final = 120
"""Tokens of the note about what is left out."""

Keep = Callable[[str, str], Awaitable[ToolOutputRef]]
"""Keeps a text under a name, and returns where."""


@dataclass(frozen=True, slots=True)
class Shortened:
    """A history with shorter material: the names of what was shortened, and its tokens before and after."""

    messages: list[Message]
    names: tuple[str, ...]
    before: int
    after: int

    @property
    def notice(self) -> Notice:
        """Return the notice for the person."""
        names, verb = ", ".join(self.names), "is" if len(self.names) == 1 else "are"
        text = (
            f"{names[:1].upper()}{names[1:]} {verb} too large to be shown whole: about "
            f"{self.before:,} tokens became {self.after:,}."
        )
        return Notice("results cut", text, before=self.before, after=self.after)


async def fitting_material(
    history: Prompt, counter: StepCounter, manager: AgentContextManager, keep: Keep, *, has_reader: bool
) -> Shortened | None:
    """Return the history with the beginning and end of material that leaves no room; None where all of it stays.

    Only messages that no compaction can free are looked at. What stands around the material stays word for word.
    `keep` keeps the whole, and `has_reader` says that the model has a tool that reads it.
    """
    budget, messages = manager.budget, history.messages
    least = budget.trigger if manager.auto else budget.window
    if await _size(messages, counter, manager) < least:
        return None
    stays = await _smallest(messages)
    if await _size(stays, counter, manager) < least:
        return None
    cuts = await asyncio.to_thread(_cuts, messages, history.places(stays), counter.text)
    cuts = [cut for cut in cuts if not has_note(cut.text) or 2 * cut.size > budget.window]  # shortened ones stay
    if not cuts:
        return None
    rest = await counter.prompt(await _smallest(_with(messages, dict.fromkeys(cuts, ""))))
    room = room_for_results(budget, rest)
    goal, room = budget.occupied(rest) + room, room * SHARE_OF_ROOM[0] // SHARE_OF_ROOM[1]
    shorter: list[Message] = []
    told: dict[_Cut, str] = {}
    for _ in range(PASSES):
        granted = shares([cut.size for cut in cuts], room)
        told = {
            cut: await _shown(cut, share, counter.text, keep, has_reader=has_reader)
            for cut, share in zip(cuts, granted, strict=True)
        }
        shorter = _with(messages, told)
        if budget.occupied(await counter.prompt(await _smallest(shorter))) <= goal:
            break
        room = room * 2 // 3
    return _outcome(shorter, told, counter.text)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A piece of material in the message at a place of the history, its text and its size in tokens."""

    place: int
    piece: Material
    text: str
    size: int


def _cuts(messages: Sequence[Message], stays: Collection[int | None], size_of: Callable[[str], int]) -> list[_Cut]:
    """Return the material in those messages of a history, by their places, that stay whatever is compacted."""
    cuts: list[_Cut] = []
    for place, message in enumerate(messages):
        may_have = place in stays and message.get("role") in ("user", "system", "developer")
        if may_have and not is_summary(Group((message,))):
            text = text_of(message)
            pieces = ((piece, text[piece.start : piece.end]) for piece in material_in(message))
            cuts += [_Cut(place, piece, inside, size_of(inside)) for piece, inside in pieces]
    return cuts


def _with(messages: Sequence[Message], told: Mapping[_Cut, str]) -> list[Message]:
    """Return the history with these texts in place of its material."""
    texts: dict[int, dict[Material, str]] = {}
    for cut, text in told.items():
        texts.setdefault(cut.place, {})[cut.piece] = text
    return [
        with_material(message, texts[place]) if place in texts else message for place, message in enumerate(messages)
    ]


def _outcome(shorter: list[Message], told: Mapping[_Cut, str], size_of: Callable[[str], int]) -> Shortened | None:
    changed = [cut for cut, text in told.items() if text != cut.text]
    if not changed:
        return None
    before, after = sum(cut.size for cut in changed), sum(size_of(told[cut]) for cut in changed)
    log.info("Material of %d tokens in a message is shortened to %d.", before, after)
    return Shortened(shorter, tuple(dict.fromkeys(cut.piece.name for cut in changed)), before, after)


async def _smallest(messages: Sequence[Message]) -> list[Message]:
    transcript = Transcript.of(messages)
    return smallest(transcript) if is_short(messages) else await asyncio.to_thread(smallest, transcript)


async def _size(messages: Sequence[Message], counter: StepCounter, manager: AgentContextManager) -> int:
    """Return what a history takes of the window: with room for the reply where compaction is automatic."""
    prompt = await counter.prompt(messages)
    return manager.budget.occupied(prompt) if manager.auto else prompt


async def _shown(cut: _Cut, share: int, size_of: Callable[[str], int], keep: Keep, *, has_reader: bool) -> str:
    """Return a piece within so many tokens: whole, or its beginning and end with a note on where the whole is."""
    text, size = cut.text, cut.size
    if size <= share:
        return text
    ref = await keep(cut.piece.name, text)
    if share < 2 * FOR_NOTE:
        return short_note_on_whole(len(text), ref.id)
    room = share - FOR_NOTE
    length = len(text) * room // size
    head, tail = _ends(text, length)
    while length and size_of(head + tail) > room:
        length = length * 4 // 5
        head, tail = _ends(text, length)
    note = note_on_whole(cut.piece.name, len(text) - len(head) - len(tail), size, ref.id, has_reader=has_reader)
    return f"{head.rstrip()}\n\n{note}\n\n{tail.lstrip()}"


def _ends(text: str, length: int) -> tuple[str, str]:
    """Return the beginning and the end of a text, of about this many characters together, in whole words."""
    part, whole = HEAD_SHARE
    head = length * part // whole
    tail = len(text) - (length - head)
    for stop in ("\n", " "):
        if (place := text.rfind(stop, max(0, head - NEAR), head)) > 0:
            head = place
            break
    for stop in ("\n", " "):
        if (place := text.find(stop, tail, tail + NEAR)) > 0:
            tail = place
            break
    return text[:head], text[max(head, tail) :]
