"""What comes of a call of one of the server's tools; every failure becomes a sentence for the model."""

import asyncio
import logging
from typing import Final

from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.tool_arguments import parsed_arguments
from elbowroom.context.tool_calls import as_json
from elbowroom.errors import ElbowroomError

log = logging.getLogger(__name__)
LONGEST_ERROR: Final = 1500
ENDING_SECONDS: Final = 1.0
"""How long a tool may take to clean up behind itself when its call is cancelled."""


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
