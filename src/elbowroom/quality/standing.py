"""Tells what stands in a text: a value, a file with its state, and in a prompt what nobody has said."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from elbowroom.context.compaction import (
    State,
    all_said,
    identifiers_in,
    inner_summary,
    is_summary_message,
    stands_in,
)
from elbowroom.context.transcript import Message, text_of

STATES: Final[Mapping[State, re.Pattern[str]]] = {
    "read": re.compile(r"\bread|gelesen|読", re.IGNORECASE),
    "written": re.compile(r"\bwrit|\bwrote|\bedit|\bchanged|geschrieben|geändert|書", re.IGNORECASE),
    "deleted": re.compile(r"delet|remov|gelöscht|削除", re.IGNORECASE),
}
SEGMENT: Final = re.compile(r"[\n;|]")


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
