"""The tool calls of an assistant message, made safe: each has a name, and its arguments are a JSON object."""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from elbowroom.context.transcript import Message

MALFORMED = "malformed_arguments"
"""The key under which arguments that are no JSON object are kept, as the text they were."""

UNKNOWN_TOOL = "unknown_tool"


def calls_of(message: Message) -> list[Mapping[str, Any]]:
    """Return the tool calls of an assistant message; none for any other."""
    calls = message.get("tool_calls")
    if message.get("role") != "assistant" or not isinstance(calls, list | tuple):
        return []
    return [call for call in calls if isinstance(call, Mapping)]


def with_safe_calls(message: Message) -> Message:
    """Return the message itself if its calls are sound, else a copy with sound ones, or with none where it has none."""
    if "tool_calls" not in message:
        return message
    calls = calls_of(message)
    if not calls:
        return {key: value for key, value in message.items() if key != "tool_calls"}
    return with_calls(message, [safe_call(call) for call in calls])


def with_calls(message: Message, calls: list[Mapping[str, Any]]) -> Message:
    """Return the message with these calls: itself where they are the ones it has."""
    present = message["tool_calls"]
    if len(present) == len(calls) and all(old is new for old, new in zip(present, calls, strict=True)):
        return message
    return {**message, "tool_calls": calls}


def safe_call(call: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the call itself if name and arguments are sound, else a copy that keeps all of their text."""
    function = call.get("function")
    if not isinstance(function, Mapping):
        function = {}
    name, arguments = function.get("name"), function.get("arguments")
    sound_name = name if isinstance(name, str) and name else UNKNOWN_TOOL
    sound_arguments = safe_arguments(arguments)
    if sound_name == name and sound_arguments == arguments:
        return call
    return {"type": "function", **call, "function": {**function, "name": sound_name, "arguments": sound_arguments}}


def safe_arguments(arguments: object) -> str:
    """Return arguments as the text of a JSON object, unchanged where they are that already.

    Nothing at all is `{}`, and a mapping is written as JSON. Any other text is kept under the key `MALFORMED`.
    """
    if isinstance(arguments, str):
        if is_json_object(arguments):
            return arguments
        return as_json({MALFORMED: arguments}) if arguments.strip() else "{}"
    if arguments is None:
        return "{}"
    text = as_json(arguments)
    return text if is_json_object(text) else as_json({MALFORMED: text})


def as_json(value: object) -> str:
    """Write a value as JSON, readable: not ASCII alone."""
    return json.dumps(value, ensure_ascii=False, default=str)


def is_json_object(text: str) -> bool:
    """Tell whether every JSON parser takes the text for an object; Python's own is more generous than most."""
    try:
        value = STRICT.decode(text)
        (as_json(value) if "\\u" in text else text).encode("utf-8")  # half a character can hide in an escape
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def refuse(constant: str) -> NoReturn:
    """Raise ValueError for NaN and Infinity."""
    raise ValueError(constant)


def finite(text: str) -> float:
    """Read a number; one that is too large to be one raises ValueError."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


STRICT = json.JSONDecoder(parse_constant=refuse, parse_float=finite)
"""Reads what every JSON parser reads."""
