"""Masks old results of a client's own tools: one line in place of each, which says that the same call brings it again.

Unlike a summary, a mask takes no words away that cannot be had again: so it stands for calls that only read. What a
tool wrote, ran or asked a person, and what the model has called for once more since it was masked, gets its line only
where that of the others is not enough.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from elbowroom.context.outputs.output import kind_of
from elbowroom.context.outputs.stubs import is_stub, only_reads, stub
from elbowroom.context.outputs.tiers import SHORT_RESULT
from elbowroom.context.transcript import Message, uses_in, with_text
from elbowroom.settings.model import ToolKind

AGAIN: Final = "; call again to see it]"


@dataclass(frozen=True, slots=True)
class Mask:
    """The line that stands for a result: the place of its message, the tool's name, the whole text, and the line.

    The words of one that is `lasting` cannot be had again, or are needed again and again.
    """

    place: int
    tool: str
    whole: str
    line: str
    is_lasting: bool


def masks_of(
    messages: Sequence[Message],
    until: int,
    kinds: Mapping[str, ToolKind],
    id_of: Callable[[str], str],
    pinned: Collection[int] = (),
) -> list[Mask]:
    """Return the masks for the results before the message at `until`, from old to new.

    Those that are shorter than their line, masked already or `pinned` by a person get none. `kinds` are the declared
    kinds of tools, and `id_of` names a whole text.
    """
    masks: list[Mask] = []
    asked_again: set[tuple[str, str]] = set()
    for use in uses_in(messages[:until]):
        name, arguments, text = use.name, use.arguments, use.text
        if is_stub(text):
            asked_again.add((name, _canonical(arguments)))
        elif use.result is not None and len(text) > SHORT_RESULT and not {use.caller, use.result} & set(pinned):
            kind = kind_of(name, kinds)
            repeats = kind in ("read", "query") or (kind == "execute" and only_reads(arguments))
            line = stub(kind, name, arguments, text, id_of(text))
            if repeats and "\n" not in line:
                line = f"{line.removesuffix(']')}{AGAIN}"
            if len(line) < len(text):
                is_lasting = not repeats or (name, _canonical(arguments)) in asked_again
                masks.append(Mask(use.result, name, text, line, is_lasting))
    return masks


def masked(messages: Sequence[Message], masks: Sequence[Mask]) -> list[Message]:
    """Return the messages with these masks; all others are the same objects."""
    lines = {mask.place: mask.line for mask in masks}
    return [with_text(each, lines[at]) if at in lines else each for at, each in enumerate(messages)]


def _canonical(arguments: str) -> str:
    """Return arguments in one form, whatever the order of their keys."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return arguments
