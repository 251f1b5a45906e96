"""How many tokens texts, messages and the tools of a client have, by the simulated model's vocabulary."""

import json
from functools import lru_cache
from typing import Any, Final

from compacting import qwen

from elbowroom.context.transcript import Message

FRAME: Final = 5
ARGUMENTS: Final = {
    "read_file": "path", "write_file": "path", "delete_file": "path", "run_command": "command", "web_search": "query",
}  # fmt: skip
"""The tools of a client, each with its one argument."""
TOOLS: Final = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {argument: {"type": "string"}}}},
    }
    for name, argument in ARGUMENTS.items()
]
"""What the client brings where its conversation calls tools."""


@lru_cache(maxsize=20_000)
def tokens(text: str) -> int:
    """Return the tokens of a text."""
    return qwen().count_text(text)


def size_of(message: Message) -> int:
    """Return about how many tokens a message takes in a prompt."""
    calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls") or ()]
    return sum(map(tokens, [str(message.get("content") or ""), *calls])) + FRAME


@lru_cache
def tokens_of_tools() -> int:
    """Return the tokens of the tools that the client brings."""
    return qwen().count_chat([], TOOLS).tokens


def size_of_tools(tools: list[dict[str, Any]]) -> int:
    """Return the tokens of these tools, or of none."""
    return tokens_of_tools() if tools else 0
