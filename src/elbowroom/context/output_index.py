"""A list of the results that a compaction takes out of the model's sight, so that each can still be found and read."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from elbowroom.context.division import is_summary
from elbowroom.context.tool_calls import calls_of
from elbowroom.context.tool_kinds import kind_of
from elbowroom.context.tool_output import ToolOutputRef
from elbowroom.context.tool_stubs import is_stub, stub
from elbowroom.context.tool_stubs import ref_of as ref_of_stub
from elbowroom.context.transcript import Group, Message, text_of
from elbowroom.settings.tool_sections import ToolKind

NOTE: Final = re.compile(
    r'[\d,]+ results of earlier calls are listed, each with its id, by tool_output_cache\(ref_id="(?P<ref>\w+)"\)\.'
)


def results_in(messages: Sequence[Message]) -> Iterator[tuple[Message, str, str]]:
    """Yield each message with the name and the arguments of the call that it answers; both empty where it is none."""
    calls: dict[str, Mapping[str, object]] = {}  # ids of clients may be anything
    for message in messages:
        for call in calls_of(message):
            if isinstance(function := call.get("function"), Mapping):
                calls[str(call.get("id"))] = function
        answered = calls.get(str(message.get("tool_call_id"))) if message.get("role") == "tool" else None
        yield message, str((answered or {}).get("name") or ""), str((answered or {}).get("arguments") or "")


def index_of(
    messages: Sequence[Message], kinds: Mapping[str, ToolKind], ref_of: Callable[[Message], str | None]
) -> tuple[str, int]:
    """Return one line for each result that can be read again, oldest first, and how many these are.

    Lists that earlier compactions have left are named first. Where there is nothing but one of these, it is enough.
    """
    lines = [f"[an earlier list; ref={ref}]" for ref in lists_named_in(messages)]
    count = 0
    for message, name, arguments in results_in(messages):
        text = text_of(message)
        if message.get("role") != "tool" or (ref := ref_of(message)) is None:
            continue
        is_ours = is_stub(text) and ref_of_stub(text) == ref
        line = text if is_ours else stub(kind_of(name, kinds), name or "a tool", arguments, text, ref)
        lines.append(line.partition("\n")[0])
        count += 1
    return ("\n".join(lines), count) if count else ("", 0)


def note_on(ref: ToolOutputRef, count: int) -> str:
    """Return what stands in a summary for the results that are gone."""
    return f'{count:,} results of earlier calls are listed, each with its id, by tool_output_cache(ref_id="{ref.id}").'


def lists_named_in(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the lists that earlier compactions have left, oldest first."""
    summaries = (text_of(message) for message in messages if is_summary(Group((message,))))
    return [found["ref"] for text in summaries for found in NOTE.finditer(text)]
