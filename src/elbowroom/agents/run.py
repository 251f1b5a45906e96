"""Runs an agent to its answer: with its tools, by the SDK, step after step."""

from collections.abc import Sequence
from typing import Any

from agents import Agent, FunctionTool, MaxTurnsExceeded, RunConfig, Runner
from agents.exceptions import AgentsException

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.caller import Caller
from elbowroom.agents.catalog import Target
from elbowroom.agents.function_tools import as_function_tool
from elbowroom.agents.managed_model import STAND_IN, ManagedModel, RunModels
from elbowroom.agents.output_keeper import NOTHING, OutputKeeper
from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.reply import name_in_lm_studio
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.turn import Turn
from elbowroom.context.message_content import whole_characters
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.settings.model import AgentSettings
from elbowroom.settings.tool_names import TOOL_OUTPUT_CACHE


async def run_agent(
    target: Target,
    agent_settings: AgentSettings,
    request: ChatRequest,
    sink: Sink,
    settings: RunSettings,
) -> Answer:
    """Answer a request with the target's agent.

    The sink has had everything visible by the time this returns. Raises ElbowroomError. Cancelling it closes
    the upstream at once.
    """
    tools = await settings.shared.toolbox(target, request.caller)
    keeper = _keeper(target, agent_settings, request.caller, tools, settings)
    if keeper is not None:
        tools = [*tools, *keeper.readers]
    turn = Turn(target, request, sink, settings, keeper)
    client_tools = _client_tools(request, tools)
    shown = keeper.shown if keeper is not None else _as_it_is
    model = ManagedModel(turn, client_tools.keys())
    agent = Agent[None](
        name=target.name,
        instructions=agent_settings.instructions,
        model=model,
        tools=[*(as_function_tool(tool, shown) for tool in tools), *client_tools.values()] if tools else [],
    )
    result = Runner.run_streamed(
        agent,
        [STAND_IN],
        max_turns=agent_settings.max_turns,
        run_config=RunConfig(
            model_provider=RunModels(model),
            tracing_disabled=True,
            tool_not_found_behavior="return_error_to_model",
        ),
    )
    is_whole = False
    try:
        async for _ in result.stream_events():
            pass  # the sink has had it already
        is_whole = True
    except MaxTurnsExceeded as error:
        raise ElbowroomError(
            f"The agent {target.name!r} used all its {agent_settings.max_turns} turns without finishing. "
            "Ask it to go on, or raise max_turns in its settings.",
            code="max_turns_exceeded",
        ) from error
    except AgentsException as error:
        raise ElbowroomError(f"The run of {target.name!r} failed: {error}") from error
    finally:
        result.cancel()
        turn.end(is_whole=is_whole)
    return turn.answer


def _keeper(
    target: Target, agent: AgentSettings, caller: Caller, tools: Sequence[OwnTool], settings: RunSettings
) -> OutputKeeper | None:
    """Return what keeps the results of an agent's tools, None where it has none or nobody looks after its window."""
    chosen = agent.tool_output.over(settings.tool_output)
    has_tools = bool(tools) or TOOL_OUTPUT_CACHE in agent.tools
    if not (chosen.enabled and has_tools and target.provider.manages_context):
        return None
    return OutputKeeper(settings.shared.store.tool_outputs, caller.owner, chosen, tools)


async def _as_it_is(tool: OwnTool, result: ToolResult) -> str:
    return whole_characters(result.text) or NOTHING


def _client_tools(request: ChatRequest, own: Sequence[OwnTool]) -> dict[str, FunctionTool]:
    """Return the client's tools by name, in a form that ends the run instead of being executed."""
    own_names = {name_in_lm_studio(tool.name): tool.name for tool in own}
    tools: dict[str, FunctionTool] = {}
    for spec in request.tools:
        if (name := tool_name(spec)) is None:
            continue
        if taken := own_names.get(name_in_lm_studio(name)):
            raise RequestError(f"The tool name {name!r} is taken: the agent has its own {taken!r}.", param="tools")
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
