"""What the simulated model says when nobody scripted anything: honest, helpful, and without chance."""

import json
import re
from dataclasses import dataclass
from typing import Any

from elbowroom.demo.overflow import Reading
from elbowroom.demo.script import Script, ToolCall
from elbowroom.demo.structured import Material, filled
from elbowroom.demo.tokenizer import content_text

GARBAGE = "Hello! I'm an AI assistant. I can help you with writing, coding and much more. What would you like to do?"
_QUOTE = 160


@dataclass(frozen=True, slots=True)
class Situation:
    """What the model knows when it answers: its name and window, how many messages came, and what it could read."""

    model: str
    window: int
    messages: int
    reading: Reading
    body: dict[str, Any]


def default_answer(situation: Situation) -> Script:
    """Return the answer: JSON where a schema was given, a tool call where one was asked for by name, text otherwise."""
    last = situation.reading.messages[-1]
    text = content_text(last.get("content"))
    if (schema := _schema(situation.body)) is not None:
        return Script(json.dumps(filled(schema, Material(text)), ensure_ascii=False))
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
    return ToolCall(name, filled(chosen.get("parameters") or {"type": "object"}, Material(text.replace(name, ""))))


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
        f"I am a simulated {situation.model}: no real model is running, a small program puts this text together.",
        f"I was sent {_messages(situation.messages)} and read {reading.prompt_tokens} tokens; "
        f"my window holds {situation.window}.",
    ]
    if reading.dropped_messages:
        lines.append(
            f"That was too much: {_messages(reading.dropped_messages)} in the middle were cut, I no longer see them."
        )
    if reading.cut_message:
        lines.append("Of your last message I only see the end.")
    return " ".join(lines)


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _quoted(text: str) -> str:
    flat = " ".join(text.split())
    return f"“{flat}”" if len(flat) <= _QUOTE else f"“{flat[:_QUOTE].rstrip()}…”"
