"""The answer of the simulated model without a script: it says what it is and what it was sent, or fills a schema."""

import json
import re
from dataclasses import dataclass
from typing import Any

from elbowroom.demo.overflow import Reading
from elbowroom.demo.script import Script, ToolCall
from elbowroom.demo.tokenizer import content_text

GARBAGE = "Hello! I'm an AI assistant. I can help you with writing, coding and much more. What's on your mind?"
_QUOTE = 160
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|'([^']+)'|`([^`]+)`")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LONGEST = 200
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Situation:
    """The facts that the answer tells: the model's name and window, the number of messages, and what was read."""

    model: str
    window: int
    messages: int
    reading: Reading
    body: dict[str, Any]


def default_answer(situation: Situation) -> Script:
    """Return JSON where a schema was given, a call where a tool was asked for by name, text otherwise."""
    last = situation.reading.messages[-1]
    text = content_text(last.get("content"))
    if (schema := _schema(situation.body)) is not None:
        return Script(json.dumps(filled(schema, text), ensure_ascii=False))
    if last.get("role") == "user" and (call := _tool_call(situation.body, text)):
        return Script(call)
    return Script("\n\n".join(part for part in (_opening(last, text), _image(last), _account(situation)) if part))


def _schema(body: dict[str, Any]) -> dict[str, Any] | None:
    shape = body.get("response_format")
    if not isinstance(shape, dict) or shape.get("type") != "json_schema":
        return None
    schema = (shape.get("json_schema") or {}).get("schema")
    return schema if isinstance(schema, dict) else {}


def _tool_call(body: dict[str, Any], text: str) -> ToolCall | None:
    functions = [tool.get("function") or {} for tool in body.get("tools") or ()]
    if body.get("tool_choice") == "none" or not functions:
        return None
    named = [one for one in functions if _names(text, str(one.get("name")))]
    if not named and body.get("tool_choice") != "required":
        return None
    chosen = (named or functions)[0]
    name = str(chosen.get("name"))
    arguments = filled(chosen.get("parameters") or {"type": "object"}, text.replace(name, ""))
    return ToolCall(name, arguments if isinstance(arguments, dict) else {})


def _names(text: str, tool: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(tool)}(?!\w)", text) is not None


def _opening(last: dict[str, Any], text: str) -> str:
    match last.get("role"):
        case "tool":
            return f"The tool answered: {_quoted(text)}"
        case "user":
            return f"You wrote: {_quoted(text)}" if text else ""
        case _:
            return f"The last thing I read was: {_quoted(text)}"


def _image(last: dict[str, Any]) -> str:
    content = last.get("content")
    parts = content if isinstance(content, list) else []
    images = [part for part in parts if isinstance(part, dict) and part.get("type") == "image_url"]
    if not images:
        return ""
    kinds = ", ".join(_image_kind(part) for part in images)
    came = "An image came" if len(images) == 1 else f"{len(images)} images came"
    return f"{came} with it ({kinds}). A real vision model would look at it; I can only tell that it arrived."


def _image_kind(part: dict[str, Any]) -> str:
    url = str((part.get("image_url") or {}).get("url", ""))
    kind = re.match(r"data:([\w/+.-]+);base64,", url)
    if kind is None:
        return "by its address"
    return f"{kind[1]}, {(len(url) - kind.end()) * 3 // 4} bytes"


def _account(situation: Situation) -> str:
    reading = situation.reading
    lines = [
        f"I am a simulated {situation.model}: no real model runs, a small program puts this text together.",
        f"I was sent {_messages(situation.messages)}.",
        f"I read {reading.prompt_tokens} tokens; my window holds {situation.window}.",
    ]
    if reading.dropped_messages:
        lines.append(f"That was too much: I no longer see {_messages(reading.dropped_messages)}, cut out silently.")
    if reading.cut_message:
        lines.append("Of your last message I only see the end.")
    return " ".join(lines)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _quoted(text: str) -> str:
    flat = " ".join(text.split())
    return f"“{flat}”" if len(flat) <= _QUOTE else f"“{flat[:_QUOTE].rstrip()}…”"


def filled(schema: Any, text: str) -> Any:
    """Return a value that fits the schema: its required properties, or all where none is required."""
    return _Filling(schema if isinstance(schema, dict) else {}, text).value(schema)


class _Filling:
    """Fills a schema from a text: strings with its quoted parts, then the whole; numbers with its numbers, then 1."""

    def __init__(self, root: dict[str, Any], text: str) -> None:
        self._root = root
        self._quoted = iter([next(filter(None, found)) for found in _QUOTED.findall(text)])
        self._numbers = iter(_NUMBER.findall(text))
        self._text = text.strip()[:_LONGEST] or "text"

    def value(self, given: Any, depth: int = 0) -> Any:
        schema = self._resolved(given)
        if "const" in schema:
            return schema["const"]
        if isinstance(allowed := schema.get("enum"), list) and allowed:
            return next((one for one in allowed if str(one) in self._text), allowed[0])
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(key), list) and options and depth < _DEEPEST:
                return self.value(options[0], depth + 1)
        match _kind(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                wanted = schema.get("minItems", 0) if depth < _DEEPEST else 0
                return [self.value(schema.get("items"), depth + 1) for _ in range(wanted)]
            case "integer":
                return int(float(next(self._numbers, "1")))
            case "number":
                return float(next(self._numbers, "1"))
            case "boolean":
                return True
            case "null":
                return None
            case _:
                return next(self._quoted, self._text)

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, dict) or depth >= _DEEPEST:
            return {}
        required = schema.get("required", list(properties))
        return {name: self.value(properties[name], depth + 1) for name in required if name in properties}

    def _resolved(self, schema: Any) -> dict[str, Any]:
        if not isinstance(schema, dict):
            return {}
        target: Any = self._root
        if isinstance(reference := schema.get("$ref"), str):
            for name in filter(None, reference.removeprefix("#").split("/")):
                target = target.get(name, {}) if isinstance(target, dict) else {}
            return target if isinstance(target, dict) else {}
        return schema


def _kind(schema: dict[str, Any]) -> str:
    kind = schema.get("type") or ("object" if "properties" in schema else "string")
    return str(kind[0] if isinstance(kind, list) else kind)
