"""Tells what stands in a text: a value, a file with its state, and in a prompt what nobody has said."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from elbowroom.context.compaction import (
    State,
    all_said,
    find_identifiers,
    identifiers_in,
    inner_summary,
    is_summary_message,
)
from elbowroom.context.transcript import Message, text_of

MOST_DOUBTFUL: Final = 2
AROUND: Final = 40
STATES: Final[Mapping[State, re.Pattern[str]]] = {
    "read": re.compile(r"\bread|gelesen|読", re.IGNORECASE),
    "written": re.compile(r"\bwrit|\bwrote|\bedit|\bchanged|geschrieben|geändert|書", re.IGNORECASE),
    "deleted": re.compile(r"delet|remov|gelöscht|削除", re.IGNORECASE),
}
SEGMENT: Final = re.compile(r"[\n;|]")


def stands_in(core: str, text: str, doubtful: int = MOST_DOUBTFUL) -> bool:
    """Tell whether a text holds this, and not merely as a part of something longer, as 18192 holds 8192.

    At so many `doubtful` places it may be joined to something, if it still counts as an identifier there.
    """
    place = text.find(core)
    while place != -1:
        before, after = text[place - 1 : place], text[place + len(core) : place + len(core) + 2]
        if not (_joins(before, core[:1]) or _joins(core[-1:], after[:1]) or re.fullmatch(r"[.,]\d", after)):
            return True
        if doubtful > 0 and _is_found(core, text, place):
            return True
        place, doubtful = text.find(core, place + 1), doubtful - 1
    return False


def _is_found(core: str, text: str, place: int) -> bool:
    """Tell whether a text at this place, though joined to something, still counts as an identifier."""
    start = max(0, place - AROUND)
    around = find_identifiers(text[start : place + len(core) + AROUND])
    return any(core in (found.core, found.text) for found in around)


def _joins(left: str, right: str) -> bool:
    """Tell whether two characters make one word; scripts without spaces have no word borders to look for."""
    return left.isascii() and right.isascii() and left.isalnum() and right.isalnum()


def artifacts_in(text: str, states: Mapping[str, State]) -> list[str]:
    """Return the files that a text names together with what was last done to them."""
    segments = SEGMENT.split(text)
    return [
        path
        for path, state in states.items()
        if any(_names(segment, path) and STATES[state].search(segment) for segment in segments)
    ]


def _names(segment: str, path: str) -> bool:
    """Tell whether a segment names a file, be it beside the folder that it shares with others."""
    folder, slash, name = path.rpartition("/")
    return path in segment or (f"{folder}{slash}" in segment and bool(folder) and stands_in(name, segment))


def made_up_in(prompt: Sequence[Message], history: Sequence[Message]) -> Iterator[str]:
    """Yield the identifiers in the summaries of a prompt that nobody has said, of one cut with "…" its beginning."""
    names = (call["function"]["arguments"] for each in history for call in each.get("tool_calls") or ())
    said = "\n".join([all_said(history), *names])
    for message in prompt:
        if is_summary_message(message):
            for named in identifiers_in(inner_summary(text_of(message))):
                found = named.removesuffix("…")
                if found not in said and " ".join(found.split()) not in " ".join(said.split()):
                    yield named
