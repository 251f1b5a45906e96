"""Runs one request to its answer: the agent with its tools by the SDK, step after step."""

from collections.abc import Sequence
from typing import Any

from agents import Agent, FunctionTool, MaxTurnsExceeded, RunConfig, Runner, Tool
from agents.exceptions import AgentsException

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.managed_model import STAND_IN, ManagedModel
from elbowroom.agents.relay import relay_stream
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.errors import ElbowroomError, RequestError

RAW_MODEL_TURNS = 1


async def run_request(target: Target, request: ChatRequest, sink: Sink, tools: Sequence[Tool] = ()) -> Answer:
    """Answer a request; `tools` are the agent's own.

    The sink has had everything visible by the time this returns. Raises ElbowroomError. Cancelling it closes
    the upstream at once.
    """
    if target.is_relay:
        return await relay_stream(target, request, sink)
    answer = Answer()
    client_tools = _client_tools(request, tools)
    model = ManagedModel(target, request, client_tools.keys(), answer, sink)
    agent = Agent[None](
        name=target.name,
        instructions=target.agent.instructions if target.agent else None,
        model=model,
        tools=[*tools, *client_tools.values()] if tools else [],
    )
    result = Runner.run_streamed(
        agent,
        [STAND_IN],
        max_turns=max_turns(target),
        run_config=RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model"),
    )
    try:
        async for _ in result.stream_events():
            pass  # the sink has had it already
    except MaxTurnsExceeded as error:
        raise ElbowroomError(
            f"The agent {target.name!r} used all its {max_turns(target)} turns without finishing. "
            "Ask it to go on, or raise max_turns in its settings.",
            code="max_turns_exceeded",
        ) from error
    except AgentsException as error:
        raise ElbowroomError(f"The run of {target.name!r} failed: {error}") from error
    finally:
        result.cancel()
    return answer


def max_turns(target: Target) -> int:
    """Return how many model steps a run may take."""
    return target.agent.max_turns if target.agent else RAW_MODEL_TURNS


def _client_tools(request: ChatRequest, own: Sequence[Tool]) -> dict[str, FunctionTool]:
    """Return the client's tools by name, in a form that ends the run instead of being executed."""
    own_names = {tool.name for tool in own}
    tools: dict[str, FunctionTool] = {}
    for spec in request.tools:
        if (name := tool_name(spec)) is None:
            continue
        if name in own_names:
            raise RequestError(f"The tool name {name!r} is taken: the agent has a tool of that name.", param="tools")
        tools[name] = _client_tool(name, spec["function"])
    return tools


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
