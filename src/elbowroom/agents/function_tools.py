"""The tools of the server as the SDK runs them; every failure becomes a sentence for the model."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from agents import FunctionTool
from agents.tool_context import ToolContext

from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.tool_arguments import parsed_arguments
from elbowroom.context.tool_calls import as_json
from elbowroom.errors import ElbowroomError

log = logging.getLogger(__name__)
LONGEST_ERROR: Final = 1500
ENDING_SECONDS: Final = 1.0
"""How long a tool may take to clean up behind itself when its call is cancelled."""

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


async def result_of(tool: OwnTool, written: str) -> ToolResult:
    """Call a tool with arguments as the model wrote them, and return what comes of it, be it an error in words."""
    arguments = parsed_arguments(written)
    if arguments is None:
        takes = ", ".join(tool.parameters.get("properties") or ()) or "nothing"
        return _failed(f"the arguments are not a JSON object. {tool.name} takes: {takes}.")
    task = asyncio.ensure_future(tool.call(arguments))
    try:
        await asyncio.wait([task], timeout=tool.timeout)
        if not task.done():
            log.warning("%s did not answer within %g seconds.", tool.name, tool.timeout)
            return _failed(
                f"{tool.name} did not answer within {tool.timeout:g} seconds and was stopped. It is not known what it "
                "has done. Ask for less at once, or tell the user."
            )
        return _as_result(task.result())
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task], timeout=ENDING_SECONDS)
        raise
    except ElbowroomError as error:
        return _failed(error.message)
    except Exception as error:
        log.exception("%s failed", tool.name)
        return _failed(f"{tool.name} failed: {str(error) or type(error).__name__}. The same call would fail again.")
    finally:
        task.cancel()


def _as_result(returned: object) -> ToolResult:
    """Return what a tool gave back as a result, whatever it is."""
    if isinstance(returned, ToolResult):
        return returned
    if isinstance(returned, str):
        return ToolResult(returned)
    return ToolResult("" if returned is None else as_json(returned))


def _failed(message: str) -> ToolResult:
    cut = message if len(message) <= LONGEST_ERROR else f"{message[:LONGEST_ERROR]}..."
    return ToolResult(f"Error: {cut}", is_error=True)
