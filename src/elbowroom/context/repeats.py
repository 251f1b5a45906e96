"""Material that comes again in a conversation: one message has it, the others a note that says so.

Some clients put the same file into each message. What an engine has read stays: the first message keeps the text. Where
a compaction is about to take that out, the last message with such a note gets the text instead.
"""

import logging
from collections.abc import Iterator, Sequence

from elbowroom.context.compaction import is_of_person
from elbowroom.context.effects import KeepText, Work
from elbowroom.context.outputs import (
    Material,
    has_note,
    material_in,
    note_on_repeat,
    repeats_in,
    wholes_in,
    with_material,
)
from elbowroom.context.transcript import Message, text_of

log = logging.getLogger(__name__)


def without_repeats(messages: Sequence[Message], *, has_views: bool, has_reader: bool) -> Work[list[Message] | None]:
    """Return a history with notes in place of material that an earlier message has brought; None where there is none.

    With `has_views` the beginning and end of a text in an earlier message counts as that text. `has_reader` says that
    the model has a tool that reads what is kept.
    """
    known = set[str]()
    """Whole texts, and the ids of those of which a message shows the beginning and end."""
    shorter, has_shown = list(messages), False
    for place, message in _of_user(messages):
        told = dict[Material, str]()
        for piece in material_in(message):
            text = text_of(message)[piece.start : piece.end]
            if has_note(text):
                continue
            if text in known or has_shown:
                ref = (yield KeepText(piece.name, text)).id
                if text in known or ref in known:
                    told[piece] = note_on_repeat(piece.name, len(text), ref, has_reader=has_reader)
                    log.info("Material of %d characters stands in the conversation already.", len(text))
            known.add(text)
        if told:
            shorter[place] = with_material(message, told)
        if has_views and (shown := wholes_in(text_of(message))):
            known.update(shown)
            has_shown = True
    return shorter if shorter != list(messages) else None


def moved_to_last(messages: Sequence[Message]) -> Work[list[Message] | None]:
    """Return a history in which the last note on material has changed places with the material; None without any."""
    last = {ref: place for place, message in _of_user(messages) for ref in repeats_in(text_of(message))}
    moved = list(messages)
    for ref, place in last.items():
        found = yield from _holder_of(ref, moved[:place])
        if found is None:
            continue
        holder, piece = found
        note, said = repeats_in(text_of(moved[place]))[ref], text_of(moved[place])
        text = text_of(moved[holder])[piece.start : piece.end]
        at = said.index(note)
        moved[holder] = with_material(moved[holder], {piece: note})
        moved[place] = with_material(moved[place], {Material(piece.name, at, at + len(note)): text})
    return moved if moved != list(messages) else None


def _holder_of(ref: str, messages: Sequence[Message]) -> Work[tuple[int, Material] | None]:
    """Return the place of the message that has a text, whole or its beginning and end, and where in it."""
    for place, message in _of_user(messages):
        for piece in material_in(message):
            text = text_of(message)[piece.start : piece.end]
            if ref in wholes_in(text):
                return place, piece
            if not has_note(text) and (yield KeepText(piece.name, text)).id == ref:
                return place, piece
    return None


def _of_user(messages: Sequence[Message]) -> Iterator[tuple[int, Message]]:
    for place, message in enumerate(messages):
        if is_of_person(message):
            yield place, message
