"""Tools of the server for tests, made from plain functions."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, get_type_hints

from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller
from elbowroom.agents.tools.tool import ServerTool, Toolbox
from elbowroom.errors import ElbowroomError

TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean"}
Given = Callable[[Target], Sequence[ServerTool]]


def own_tool(function: Callable[..., Awaitable[Any]], name: str = "", **more: Any) -> ServerTool:
    """Return a tool that calls an async function with the arguments of that name; its docstring is the description."""
    hints = get_type_hints(function)
    parameters = inspect.signature(function).parameters
    properties = {parameter: {"type": TYPES[hints[parameter]]} for parameter in parameters}

    async def call(arguments: Mapping[str, Any]) -> Any:
        if wrong := [name for name, value in arguments.items() if type(value) is not hints.get(name)]:
            raise ElbowroomError(f"{', '.join(wrong)}: not what belongs there")
        return await function(**arguments)

    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return ServerTool(name or getattr(function, "__name__", ""), function.__doc__ or "", schema, call, **more)


def toolbox_of(given: Given) -> Toolbox:
    """Return a toolbox that gives an agent what a function says, for every caller."""

    async def tools(target: Target, caller: Caller) -> Sequence[ServerTool]:
        return given(target)

    return tools
