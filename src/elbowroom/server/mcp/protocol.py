"""The Model Context Protocol around the tools, by its own library, whichever way they are carried out."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from elbowroom import __version__
from elbowroom.errors import ElbowroomError
from elbowroom.server.mcp.tools import MCP_TOOLS

Call = Callable[[Any, str, Mapping[str, Any]], Awaitable[str]]
"""Carries out a call, given the HTTP request that it came with, if any, the tool's name and its arguments."""
ABOUT = (
    "What the person has said and read in conversations with local models, kept by elbowroom on this machine. Search "
    "first, then recall or read. Nothing can be changed."
)


def mcp_server(call: Call) -> Server[Any]:
    """Return the server of the protocol; errors of a call are told to the model in words."""

    async def list_tools(
        _: ServerRequestContext[Any], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        hints = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
        return types.ListToolsResult(
            tools=[
                types.Tool(name=tool.name, description=tool.description, input_schema=tool.schema, annotations=hints)
                for tool in MCP_TOOLS
            ]
        )

    async def call_tool(context: ServerRequestContext[Any], asked: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            text, is_error = await call(context.request, asked.name, asked.arguments or {}), False
        except ElbowroomError as error:
            text, is_error = error.message, True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    return Server(
        "elbowroom", version=__version__, instructions=ABOUT, on_list_tools=list_tools, on_call_tool=call_tool
    )
