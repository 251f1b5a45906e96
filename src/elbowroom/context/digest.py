"""A summary made by code, for when no pruning agent gives a usable one: who said what, and what tools were used for."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from elbowroom.context.call_summary import MOST_TOKENS, summary_of_calls
from elbowroom.context.readable import readable
from elbowroom.context.transcript import Group, Message
from elbowroom.settings.tool_sections import ToolKind

LONGEST_USER = 300
LONGEST_ASSISTANT = 200
LONGEST_RESULT = 120
LONGEST_ARGUMENTS = 100


def digest(
    groups: Sequence[Group],
    size: Callable[[str], int],
    room: int,
    for_calls: int = MOST_TOKENS,
    kinds: Mapping[str, ToolKind] | None = None,
) -> str:
    """Return a line for each message, as many of the newest as fit, in order; nothing where not even one fits.

    Calls in several groups in a row are summed up in one place, in `for_calls` at most, below what the assistant said
    along with them. Where the whole does not fit, the user's words go back further than the answers and the work in
    between. A first line tells how many steps are left out. `size` measures a text; the sizes of all lines together
    stay within `room`. `kinds` are those that are declared of tools.
    """
    room -= size(_left_out(len(groups)))
    lines: list[list[str]] = []
    only_users = False
    unlisted = len(groups)
    for run in reversed(list(_runs(groups))):
        is_users = run[0].kind == "user"
        more = [] if only_users and not is_users else _told(run, size, room, for_calls, kinds or {})
        taken = sum(size(f"{line}\n") for line in more)
        if more and taken <= room:
            lines.append(more)
            room -= taken
            unlisted -= len(run)
        elif more and only_users:
            break
        elif more or len(run) > 1:
            only_users = True
    told = [line for more in reversed(lines) for line in more]
    return "\n".join([_left_out(unlisted), *told] if told and unlisted else told)


def _runs(groups: Sequence[Group]) -> Iterator[tuple[Group, ...]]:
    """Yield what is told together: calls in a row, and any other group alone."""
    for has_calls, run in itertools.groupby(groups, lambda group: group.kind == "tools"):
        together = tuple(run)
        yield from [together] if has_calls else ((group,) for group in together)


def _told(
    run: Sequence[Group], size: Callable[[str], int], room: int, for_calls: int, kinds: Mapping[str, ToolKind]
) -> list[str]:
    """Return the lines for a run: of several groups with calls what they did, and above it what was said with them.

    Of what was said the newest stays. A quarter of the room is left for the words of the user before it.
    """
    if len(run) == 1:
        return _lines(run[0])
    done = summary_of_calls(run, lambda text: size(f"- It {text}\n"), min(room // 2, for_calls), kinds)
    if not done:
        return []
    lines = [f"- It {done}"]
    left = room - room // 4 - size(f"{lines[0]}\n")
    for said in filter(None, (_first(readable(group.messages[0]), LONGEST_ASSISTANT) for group in reversed(run))):
        line = f"- The assistant said: {said}"
        left -= size(f"{line}\n")
        if left < 0:
            break
        lines.insert(0, line)
    return lines


def _left_out(steps: int) -> str:
    """Return the line that tells how many steps are not among the lines."""
    return f"({steps} {'step is' if steps == 1 else 'steps are'} not listed.)"


def _lines(group: Group) -> list[str]:
    first = group.messages[0]
    if group.kind in ("system", "user"):
        speaker = "The user" if group.kind == "user" else "The system"
        said = _first(readable(first), LONGEST_USER)
        return [f"- {speaker} said: {said}"] if said else []
    said = _first(readable(first), LONGEST_ASSISTANT)
    lines = [f"- The assistant said: {said}"] if said else []
    results = {message.get("tool_call_id"): message for message in group.messages[1:]}
    calls = [call for call in first.get("tool_calls") or () if isinstance(call, Mapping)]
    return lines + [f"- It used {_call(call)}: {_result(results.get(call.get('id')))}" for call in calls]


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return " ".join(filter(None, (str(function.get("name") or "a tool"), _first(arguments, LONGEST_ARGUMENTS))))


def _result(message: Message | None) -> str:
    if message is None:
        return "no result"
    text = readable(message)
    beginning = _first(text, LONGEST_RESULT)
    return f"{len(text)} characters, beginning {beginning!r}" if beginning else "nothing"


def _first(text: str, length: int) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text[: 20 * length].split())
    return line if len(line) <= length and len(text) <= 20 * length else f"{line[: length - 1]}…"
