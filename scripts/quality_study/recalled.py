"""Has the model call the tool that finds what was compacted away, in the real server, and returns what it gets."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

from pruners import is_order

from elbowroom.agents.tools.recall import RECALL_TOOL
from elbowroom.context.transcript import Message
from elbowroom.demo import Script, Text, ToolCall

if TYPE_CHECKING:
    from play import Stage

CALLS: Final = 4
"""How many calls a step makes: all of a step share what is free of the window."""
SHOWN: Final = 2
"""How many messages a call asks for."""


async def recalled(on: "Stage", history: Sequence[Message], labels: Sequence[str]) -> list[str]:
    """Return what one call for each of these labels finds in a conversation; nothing where the tool is not offered."""
    found: list[str] = []
    for start in range(0, len(labels), CALLS):
        found += await _called(on, history, labels[start : start + CALLS])
    return found


async def _called(on: "Stage", history: Sequence[Message], labels: Sequence[str]) -> list[str]:
    """Send the conversation once more to a model that calls the tool; return the results in its next prompt."""
    usual, has_called = on.on_request, False
    found: list[str] = []

    def says(body: dict[str, Any]) -> Script:
        nonlocal has_called
        if is_order(body):
            return usual(body)
        if has_called:
            results = takewhile(lambda message: message["role"] == "tool", reversed(body["messages"]))
            found.extend(str(message["content"]) for message in results)
        elif RECALL_TOOL in (tool["function"]["name"] for tool in body.get("tools", ())):
            has_called = True
            return Script(*(ToolCall(RECALL_TOOL, {"query": label, "limit": SHOWN}) for label in labels))
        return Script(Text("Yes.", whole=True))

    on.studio.on_request = says
    try:
        await on.send(history)
    finally:
        on.studio.on_request = usual
    return found
