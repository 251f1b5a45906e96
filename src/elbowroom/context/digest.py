"""A summary made by code, for when no pruning agent gives a usable one: who said and did what, in one line each."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from elbowroom.context.transcript import Group, Message, text_of

LONGEST_USER = 300
LONGEST_ASSISTANT = 200
LONGEST_RESULT = 120
LONGEST_ARGUMENTS = 100


def digest(groups: Sequence[Group], fits: Callable[[str], bool]) -> str:
    """Return one line for each message, as many of the newest as fit, in order; nothing where not even one fits.

    Where the whole does not fit, the user's words go back further than the answers and the work in between. A first
    line tells how many steps are left out.
    """
    lines: list[str] = []
    steps, only_users = 0, False
    for group in reversed(groups):
        more = [] if only_users and group.kind != "user" else _lines(group)
        if not more:
            continue
        if fits(_told([*more, *lines], len(groups) - steps - 1)):
            lines, steps = [*more, *lines], steps + 1
        elif only_users:
            break
        else:
            only_users = True
    return _told(lines, len(groups) - steps) if lines else ""


def _told(lines: Sequence[str], left_out: int) -> str:
    """Return the lines below one about the steps that are not among them."""
    if not left_out:
        return "\n".join(lines)
    return "\n".join([f"({left_out} {'step is' if left_out == 1 else 'steps are'} not listed.)", *lines])


def _lines(group: Group) -> list[str]:
    first = group.messages[0]
    if group.kind in ("system", "user"):
        speaker = "The user" if group.kind == "user" else "The system"
        said = _first(group.text, LONGEST_USER) or _shown(first)
        return [f"- {speaker} said: {said}"] if said else []
    said = _first(text_of(first), LONGEST_ASSISTANT)
    lines = [f"- The assistant said: {said}"] if said else []
    results = {message.get("tool_call_id"): message for message in group.messages[1:]}
    calls = [call for call in first.get("tool_calls") or () if isinstance(call, Mapping)]
    return lines + [f"- It used {_call(call)}: {_result(results.get(call.get('id')))}" for call in calls]


def _shown(message: Message) -> str:
    """Return what a message without words holds."""
    content = message.get("content")
    return f"({len(content)} parts that are not text)" if isinstance(content, list) and content else ""


def _call(call: Mapping[str, Any]) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments") or ""
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return " ".join(filter(None, (str(function.get("name") or "a tool"), _first(arguments, LONGEST_ARGUMENTS))))


def _result(message: Message | None) -> str:
    if message is None:
        return "no result"
    text = text_of(message)
    beginning = _first(text, LONGEST_RESULT)
    return f"{len(text)} characters, beginning {beginning!r}" if beginning else "nothing"


def _first(text: str, length: int) -> str:
    """Return the beginning of a text in one line."""
    line = " ".join(text[: 20 * length].split())
    return line if len(line) <= length and len(text) <= 20 * length else f"{line[: length - 1]}…"
