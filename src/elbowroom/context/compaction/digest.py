"""Makes a digest of a conversation without asking a model: a line for each message, the newest first to have room."""

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elbowroom.context.compaction.calls import MOST_TOKENS, calls_in, summary_of_calls, worded
from elbowroom.context.transcript import Group, Message, readable
from elbowroom.settings.model import ToolKind

LONGEST_USER: Final = 300
LONGEST_ASSISTANT: Final = 200
LONGEST_RESULT: Final = 120
LONGEST_ARGUMENTS: Final = 100
BROKEN: Final = re.compile(r"[^\s\u3000-\u9fff\uac00-\ud7af\uff00-\uffef]+$")
"""The beginning of a word or identifier at a cut: a part of a path or number would name something that nobody said."""
BORDER: Final = re.compile(r"\s|$")


def digest(
    groups: Sequence[Group],
    size: Callable[[str], int],
    room: int,
    for_calls: int = MOST_TOKENS,
    kinds: Mapping[str, ToolKind] | None = None,
    *,
    keeps_errors: bool = True,
    older: int = 0,
) -> str:
    """Return a line for each message, as many of the newest as fit, in order; an empty text where not even one fits.

    Calls in several groups in a row are summed up in one place, in at most `for_calls` tokens, below what the assistant
    said along with them. Where not all fits, the user's words go back further than the answers and the work in between.
    A first line tells how many steps are left out, the `older` ones before these groups included. `size` counts a text;
    the sizes of all lines together stay within `room`. `kinds` are the declared kinds of tools. With `keeps_errors`
    what failed is told word for word.
    """
    telling = _Telling(size, for_calls, kinds or {}, keeps_errors=keeps_errors)
    room -= size(_left_out(len(groups) + older))
    lines: list[list[str]] = []
    only_users = False
    unlisted = len(groups) + older
    for run in reversed(list(_runs(groups))):
        is_users = run[0].kind == "user"
        more = [] if only_users and not is_users else _told(run, room, telling)
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
    """Yield the groups that are told together: calls in a row, and every other group alone."""
    for has_calls, run in itertools.groupby(groups, lambda group: group.kind == "tools"):
        together = tuple(run)
        yield from [together] if has_calls else ((group,) for group in together)


@dataclass(frozen=True, slots=True)
class _Telling:
    """How a digest tells of its groups; the fields are the parameters of `digest`."""

    size: Callable[[str], int]
    for_calls: int
    kinds: Mapping[str, ToolKind]
    keeps_errors: bool


def _told(run: Sequence[Group], room: int, telling: _Telling) -> list[str]:
    """Return the lines for a run: of several groups with calls what they did, below what was said with them.

    The newest words stay. A quarter of the room is left for the words of the user before the run.
    """
    size = telling.size
    if len(run) == 1:
        return _lines(run[0], room // 2, telling)
    most = min(room // 2, telling.for_calls)
    done = summary_of_calls(
        run, lambda text: size(f"- It {text}\n"), most, telling.kinds, keeps_errors=telling.keeps_errors
    )
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
    return f"({steps} {'step is' if steps == 1 else 'steps are'} not listed.)"


def _lines(group: Group, most: int, telling: _Telling) -> list[str]:
    """Return the lines for one group; the words of what failed take at most so many tokens."""
    first = group.messages[0]
    if group.kind in ("system", "user"):
        speaker = "The user" if group.kind == "user" else "The system"
        said = _first(readable(first), LONGEST_USER)
        return [f"- {speaker} said: {said}"] if said else []
    said = _first(readable(first), LONGEST_ASSISTANT)
    lines = [f"- The assistant said: {said}"] if said else []
    results = {message.get("tool_call_id"): message for message in group.messages[1:]}
    calls = [call for call in first.get("tool_calls") or () if isinstance(call, Mapping)]
    told = [f"- It used {_call(call)}: {_result(results.get(call.get('id')))}" for call in calls]
    failed = [call.error for call in calls_in(group, telling.kinds)] if telling.keeps_errors else []
    if len(failed) == len(calls):  # else a call has no form that tells its tool
        told = [
            _with_error(line, call, error, most, telling) for line, call, error in zip(told, calls, failed, strict=True)
        ]
    return lines + told


def _with_error(line: str, call: Mapping[str, Any], error: str | None, most: int, telling: _Telling) -> str:
    """Return the line of a call; of one that failed with its words, or their beginning where these have no room."""
    if error is None:
        return line
    for words in worded(error):
        line = f"- It used {_call(call)}, which failed: {words}"
        if telling.size(line) <= min(most, telling.for_calls):
            break
    return line


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
    line = " ".join(text[: 20 * length].split())
    if len(line) <= length and len(text) <= 20 * length:
        return line
    cut = line[: length - 1]
    return f"{cut if BORDER.match(line, length - 1) else BROKEN.sub('', cut) or cut}…"
