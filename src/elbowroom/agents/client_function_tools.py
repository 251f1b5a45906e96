"""The client's tools as the SDK knows them: it never runs them, but ends the run where one is called."""

from typing import Any

from agents import FunctionTool

from elbowroom.agents.request import ChatRequest, tool_name


def client_function_tools(request: ChatRequest) -> dict[str, FunctionTool]:
    """Return the client's tools by name, in a form that ends the run instead of being executed."""
    named = ((tool_name(spec), spec) for spec in request.tools)
    return {name: _client_tool(name, spec["function"]) for name, spec in named if name is not None}


def _client_tool(name: str, function: dict[str, Any]) -> FunctionTool:
    async def refuse(context: Any, arguments: str) -> str:
        raise RuntimeError(f"the client's tool {name!r} was about to run on the server")

    return FunctionTool(
        name=name,
        description=function.get("description") or "",
        params_json_schema=function.get("parameters") or {"type": "object", "properties": {}},
        on_invoke_tool=refuse,
        strict_json_schema=False,
        needs_approval=True,
    )
