"""Says what of a conversation a shorter one still holds, by code alone."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from elbowroom.context.compaction.division import is_summary
from elbowroom.context.compaction.facts import State, find_identifiers
from elbowroom.context.transcript import Group, Message, text_of

STATES: Final[Mapping[State, re.Pattern[str]]] = {
    "read": re.compile(r"\bread|gelesen|読", re.IGNORECASE),
    "written": re.compile(r"\bwrit|\bwrote|\bedit|\bchanged|geschrieben|geändert|書", re.IGNORECASE),
    "deleted": re.compile(r"delet|remov|gelöscht|削除", re.IGNORECASE),
}
SEGMENT: Final = re.compile(r"[\n;|]")
OWN_FIGURES: Final = re.compile(
    r"tool_output_cache(?:_grep)?|\(\d+ steps? (?:is|are) not listed\.\)|"
    r"[\d,]+ characters|[\d,]+ results of earlier calls|\bref(?:_id)?=\"?\w+\"?|"
    r"(?:read|ran) \d+ \w+|\d+ (?:edits?|searches|search|other calls?|of these failed)|\(\d+ times\)|[\d,]+ bytes"
)
"""What elbowroom itself counts in a summary."""


def artifacts_in(text: str, states: Mapping[str, State]) -> list[str]:
    """Return the files that a text names together with what was last done to them."""
    segments = SEGMENT.split(text)
    return [
        path
        for path, state in states.items()
        if any(path in segment and STATES[state].search(segment) for segment in segments)
    ]


def unpaired(prompt: Sequence[Message]) -> int:
    """Return how many calls have no result right after them, and how many results no call before them."""
    waiting: set[str] = set()
    strange = 0
    for message in prompt:
        if message.get("role") == "tool":
            strange += message.get("tool_call_id") not in waiting
            waiting.discard(str(message.get("tool_call_id")))
        else:
            strange += len(waiting)
            waiting = {str(call.get("id")) for call in message.get("tool_calls") or ()}
    return strange + len(waiting)


def made_up_in(prompt: Sequence[Message], history: Sequence[Message]) -> Iterator[str]:
    """Yield the identifiers in the summaries of a prompt that nobody has said."""
    names = (call["function"]["arguments"] for each in history for call in each.get("tool_calls") or ())
    said = "\n".join([all_said(history), *names])
    for message in prompt:
        if is_summary(Group((message,))):
            text = OWN_FIGURES.sub(" ", text_of(message))
            for found in {each.core for each in find_identifiers(text)}:
                if found not in said and " ".join(found.split()) not in " ".join(said.split()):
                    yield found


def all_said(messages: Sequence[Message]) -> str:
    """Return all that messages say, calls included, each in a line of its own."""
    lines: list[str] = []
    for message in messages:
        lines.append(text_of(message))
        lines += [_call(call) for call in message.get("tool_calls") or ()]
    return "\n".join(lines)


def _call(call: Mapping[str, Any]) -> str:
    function = call["function"]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = {"": function["arguments"]}
    return " ".join([function["name"], *(str(value) for value in arguments.values())])
