"""The tools of the server as the SDK runs them."""

from collections.abc import Awaitable, Callable
from typing import Any

from agents import FunctionTool
from agents.tool_context import ToolContext

from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.tool_result import result_of

Shown = Callable[[OwnTool, ToolResult], Awaitable[str]]
"""Takes what a tool returned and gives what the model is shown of it."""
Called = Callable[[OwnTool, str], Awaitable[ToolResult]]
"""Calls a tool with arguments as the model wrote them, as `result_of` does."""
Returned = Callable[[str, str], None]
"""Takes a call's id and what the model is shown of its result, as soon as that is there."""


def as_function_tool(
    tool: OwnTool, shown: Shown, called: Called | None = None, returned: Returned | None = None
) -> FunctionTool:
    """Return a tool as the SDK runs it; `called` stands in the place of `result_of`."""
    called = called or result_of

    async def invoke(context: ToolContext[Any], written: str) -> str:
        text = await shown(tool, await called(tool, written))
        if returned is not None:
            returned(context.tool_call_id, text)
        return text

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.parameters),
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )
