"""What a model of an agent can call: tools of the server, agents to ask, agents to hand over to, results to read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from elbowroom.agents.agent_tools import NamedAgent, RunAgent, agent_tools, agents_named, free_name
from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.caller import Caller
from elbowroom.agents.catalog import Target
from elbowroom.agents.client_tools import with_arranged_tools
from elbowroom.agents.distinct_names import distinct
from elbowroom.agents.output_keeper import OutputKeeper
from elbowroom.agents.own_tool import OwnTool
from elbowroom.agents.reply import name_in_lm_studio
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.run_settings import RunSettings
from elbowroom.context.tool_output import ToolOutputRef
from elbowroom.context.tool_view import READ_TOOL, SEARCH_TOOL
from elbowroom.settings.tool_names import TOOL_OUTPUT_CACHE

NO_ARGUMENTS: Final[Mapping[str, Any]] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Handoff:
    """An agent to which the conversation can be handed over, by a call of this name."""

    name: str
    agent: NamedAgent

    @property
    def description(self) -> str:
        """Return what the model is told of it."""
        does = f"Hand the conversation over to {self.agent.settings.display_name}, who answers the user from here on."
        return f"{does} {self.agent.settings.tool_description}".strip()


@dataclass(frozen=True, slots=True)
class Offered:
    """What an agent has of its own, for a request as it is to get it; `keeper` keeps what the tools return."""

    request: ChatRequest
    tools: Sequence[OwnTool]
    handoffs: Sequence[Handoff]
    keeper: OutputKeeper | None

    @property
    def clashes(self) -> dict[str, str]:
        """Return the names of the client's tools that LM Studio writes like an own tool's, each with that."""
        names_of_own = [*(tool.name for tool in self.tools), *(handoff.name for handoff in self.handoffs)]
        own = {name_in_lm_studio(name): name for name in names_of_own}
        names = (name for spec in self.request.tools if (name := tool_name(spec)) is not None)
        return {name: taken for name in names if (taken := own.get(name_in_lm_studio(name)))}

    @property
    def specs(self) -> list[dict[str, Any]]:
        """Return the own tools as a chat request lists them."""
        own = [_spec(tool.name, tool.description, tool.parameters) for tool in self.tools]
        return own + [_spec(handoff.name, handoff.description, NO_ARGUMENTS) for handoff in self.handoffs]


async def offered_to(
    agent: NamedAgent,
    request: ChatRequest,
    sink: Sink,
    settings: RunSettings,
    run: RunAgent,
    refs: dict[str, ToolOutputRef] | None = None,
) -> Offered:
    """Return what an agent can call in a request; agents that it asks are run by `run`, and tell the sink.

    `refs` are those that agents before it have in the same conversation, to be added to.
    """
    request = with_arranged_tools(request, agent.settings.client_tools)
    of_client = [name for spec in request.tools if (name := tool_name(spec)) is not None]
    tools = distinct(await settings.shared.toolbox(agent.target, request.caller), of_client)
    taken = [READ_TOOL, SEARCH_TOOL, *(tool.name for tool in tools)]
    for tool in agent_tools(agent, request.caller, sink, settings, run):
        tools.append(replace(tool, name=free_name(tool.name, taken)))
        taken.append(tools[-1].name)
    keeper = _keeper(agent, request.caller, tools, settings, refs)
    tools += keeper.readers if keeper else []
    handoffs: list[Handoff] = []
    for other in agents_named(agent.settings.handoffs, settings):
        handoffs.append(Handoff(free_name(f"transfer_to_{other.settings.id}", taken), other))
        taken.append(handoffs[-1].name)
    return Offered(request, tools, handoffs, keeper)


def _keeper(
    agent: NamedAgent,
    caller: Caller,
    tools: Sequence[OwnTool],
    settings: RunSettings,
    refs: dict[str, ToolOutputRef] | None,
) -> OutputKeeper | None:
    """Return what keeps the results of an agent's tools, None where it has none or nobody looks after its window."""
    chosen = agent.settings.tool_output.over(settings.tool_output)
    has_tools = bool(tools) or TOOL_OUTPUT_CACHE in agent.settings.tools
    if not (chosen.enabled and has_tools and agent.target.provider.manages_context):
        return None
    return OutputKeeper(settings.shared.store.tool_outputs, caller.owner, chosen, tools, refs)


def _spec(name: str, description: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as the SDK writes it into a request."""
    function = {"name": name, "description": description, "parameters": dict(parameters), "strict": False}
    return {"type": "function", "function": function}


async def offered_unasked(target: Target, request: ChatRequest, settings: RunSettings) -> Offered:
    """Return what a target's model can call, for one who asks nobody but wants to know how large a request is."""
    if target.is_relay:
        return Offered(request, (), (), None)
    if target.agent is None:
        return Offered(with_arranged_tools(request, settings.client_tools), (), (), None)
    return await offered_to(NamedAgent(target, target.agent), request, _tell_nobody, settings, _run_nobody)


async def _tell_nobody(events: Sequence[AnswerEvent]) -> None:
    """Nothing happens that anybody would be told of."""


async def _run_nobody(*_: Any) -> Answer:
    raise RuntimeError("an agent was about to be asked while a request was only counted")
