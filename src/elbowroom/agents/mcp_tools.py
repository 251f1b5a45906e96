"""The tools of an MCP server as tools of an agent."""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp import types

from elbowroom.agents.distinct_names import LONGEST_NAME, shortened
from elbowroom.agents.mcp_schemas import object_schema
from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.reply import name_in_lm_studio
from elbowroom.settings.tool_sections import ToolKind

Call = Callable[[str, Mapping[str, Any], bool], Awaitable[ToolResult]]
"""Calls a tool by the name that the server gave it; the flag tells that a second call does no harm."""


@dataclass(frozen=True, slots=True)
class McpTool:
    """A tool with the `name` that its server gave it, which may be no name that a model can call."""

    name: str
    tool: OwnTool


def mcp_tools(server: str, listed: Sequence[types.Tool], call: Call) -> list[McpTool]:
    """Return the tools of a server, in its order, under names that models can call and that are distinct."""
    tools: dict[str, McpTool] = {}
    for one in listed:
        name = _callable_name(one.name)
        if name in tools and tools[name].name != one.name:
            name = shortened(name, one.name)
        if name not in tools:  # a name that is listed twice means one tool
            tools[name] = McpTool(one.name, _own_tool(server, name, one, call))
    return list(tools.values())


def mend_tool_list(result: Mapping[str, Any]) -> None:
    """Change the answer to a question for tools, as it came, where one odd tool would make it no answer at all.

    What a tool says of its results is left out: they are taken as they are, whether they keep to it or not.
    """
    for tool in tools if isinstance(tools := result.get("tools"), list) else ():
        if not isinstance(tool, dict):
            continue
        tool.pop("outputSchema", None)
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or schema.get("type") != "object":
            tool["inputSchema"] = object_schema(schema)


def _own_tool(server: str, name: str, listed: types.Tool, call: Call) -> OwnTool:
    told = listed.name
    can_repeat = _can_repeat(listed.annotations)

    async def invoke(arguments: Mapping[str, Any]) -> ToolResult:
        return await call(told, arguments, can_repeat)

    return OwnTool(
        name=name,
        description=listed.description or listed.title or "",
        parameters=object_schema(listed.input_schema),
        call=invoke,
        kind=_kind(listed.annotations),
        source=server,
        timeout=None,  # the server has limits of its own
    )


def _callable_name(name: str) -> str:
    fitting = name_in_lm_studio(name)
    if not fitting.strip("_"):
        return f"tool_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return fitting if len(fitting) <= LONGEST_NAME else shortened(fitting, name)


def _kind(hints: types.ToolAnnotations | None) -> ToolKind:
    if hints is None:
        return "other"
    if hints.read_only_hint:
        return "read"
    return "write" if hints.read_only_hint is False or hints.destructive_hint is not None else "other"


def _can_repeat(hints: types.ToolAnnotations | None) -> bool:
    return hints is not None and bool(hints.read_only_hint or hints.idempotent_hint)
