"""Shortens the files and other material that a client has put into a message, where they leave no room for anything."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.agents.answer import Notice
from elbowroom.agents.prompt.counters import StepCounter, is_short
from elbowroom.context.compaction import is_summary, smallest
from elbowroom.context.manager import AgentContextManager, room_for_results, shares
from elbowroom.context.outputs import Material, ToolOutputRef, material_in, with_material
from elbowroom.context.transcript import Group, Message, text_of

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
    messages: Sequence[Message], counter: StepCounter, manager: AgentContextManager, keep: Keep, *, has_reader: bool
) -> Shortened | None:
    """Return the history with the beginning and end of material that leaves no room; None where all of it stays.

    Only messages that no compaction can free are looked at. What stands around the material stays word for word.
    `keep` keeps the whole, and `has_reader` says that the model has a tool that reads it.
    """
    budget = manager.budget
    least = budget.trigger if manager.auto else budget.window
    if await _size(messages, counter, manager) < least:
        return None
    stays = await _smallest(messages)
    if await _size(stays, counter, manager) < least:
        return None
    pinned = {id(message) for message in stays}
    found = {
        place: pieces
        for place, message in enumerate(messages)
        if id(message) in pinned
        and message.get("role") in ("user", "system", "developer")
        and not is_summary(Group((message,)))
        and (pieces := material_in(message))
    }
    if not found:
        return None
    emptied = [
        with_material(message, dict.fromkeys(found[place], "")) if place in found else message
        for place, message in enumerate(messages)
    ]
    rest = await counter.prompt(await _smallest(emptied))
    room = room_for_results(budget, rest)
    goal, room = budget.occupied(rest) + room, room * SHARE_OF_ROOM[0] // SHARE_OF_ROOM[1]
    cuts = [
        _Cut(place, piece, text_of(messages[place])[piece.start : piece.end])
        for place in found
        for piece in found[place]
    ]
    sizes = [counter.text(cut.text) for cut in cuts]
    shorter, told = list(messages), {cut: cut.text for cut in cuts}
    for _ in range(PASSES):
        for cut, size, share in zip(cuts, sizes, shares(sizes, room), strict=True):
            told[cut] = await _shown(cut, size, share, counter.text, keep, has_reader=has_reader)
        for place in found:
            texts = {cut.piece: told[cut] for cut in cuts if cut.place == place}
            shorter[place] = with_material(messages[place], texts)
        if budget.occupied(await counter.prompt(await _smallest(shorter))) <= goal:
            break
        room = room * 2 // 3
    changed = [(cut, size) for cut, size in zip(cuts, sizes, strict=True) if told[cut] != cut.text]
    if not changed:
        return None
    before, after = sum(size for _, size in changed), sum(counter.text(told[cut]) for cut, _ in changed)
    log.info("Material of %d tokens in a message is shortened to %d.", before, after)
    return Shortened(shorter, tuple(dict.fromkeys(cut.piece.name for cut, _ in changed)), before, after)


@dataclass(frozen=True, slots=True)
class _Cut:
    """A piece of material in the message at a place of the history."""

    place: int
    piece: Material
    text: str


async def _smallest(messages: Sequence[Message]) -> list[Message]:
    return smallest(messages) if is_short(messages) else await asyncio.to_thread(smallest, messages)


async def _size(messages: Sequence[Message], counter: StepCounter, manager: AgentContextManager) -> int:
    """Return what a history takes of the window: with room for the reply where compaction is automatic."""
    prompt = await counter.prompt(messages)
    return manager.budget.occupied(prompt) if manager.auto else prompt


async def _shown(
    cut: _Cut, size: int, share: int, size_of: Callable[[str], int], keep: Keep, *, has_reader: bool
) -> str:
    """Return a piece within so many tokens: whole, or its beginning and end with a note on where the whole is."""
    text = cut.text
    if size <= share:
        return text
    ref = await keep(cut.piece.name, text)
    length = len(text) * max(0, share - FOR_NOTE) // size
    head, tail = _ends(text, length)
    while length and size_of(head + tail) > max(0, share - FOR_NOTE):
        length = length * 4 // 5
        head, tail = _ends(text, length)
    left_out = len(text) - len(head) - len(tail)
    how = f'To read on: tool_output_cache(ref_id="{ref.id}").' if has_reader else f"ref={ref.id}"
    note = (
        f"[{left_out:,} characters of {cut.piece.name} are left out here: the whole has about {size:,} tokens, more "
        f"than fit the model's window beside the conversation. It is kept; {how} The user can open it on this server: "
        f"/v1/tool_outputs/{ref.id}]"
    )
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
