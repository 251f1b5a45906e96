"""A short chat with everything that a template has to place: system, tools, a call and its result."""

from __future__ import annotations

from typing import Any, Final

READ_NOTE: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "read_note",
        "description": "Reads one note.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "enum": ["garden.md", "kitchen.md"]}},
            "required": ["path"],
        },
    },
}
READ_GARDEN: Final[dict[str, Any]] = {
    "id": "abcdefghi",
    "type": "function",
    "function": {"name": "read_note", "arguments": '{"path": "garden.md"}'},
}
TOOL_CHAT: Final[dict[str, Any]] = {
    "messages": [
        {"role": "system", "content": "You help with notes."},
        {"role": "user", "content": "What grows? 🌱 Grüße, 你好."},
        {"role": "assistant", "content": "I will look.", "tool_calls": [READ_GARDEN]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": "Beans and peas."},
    ],
    "tools": [READ_NOTE],
    "max_tokens": 8,
}


def chat(text: str, **more: object) -> dict[str, Any]:
    """Make the body of a chat request with one user message, answered with at most 24 tokens."""
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 24, **more}
