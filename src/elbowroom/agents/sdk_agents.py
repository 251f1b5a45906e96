"""The SDK's agents for one request: the one that was asked, and those to which the conversation is handed over."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeAlias

from agents import Agent, Handoff, RunContextWrapper
from agents.agent import AgentBase

from elbowroom.agents.agent_tools import NamedAgent, RunAgent, agent_tools, agents_named, free_name
from elbowroom.agents.answer import Notice, Sink
from elbowroom.agents.client_function_tools import clashes, client_function_tools
from elbowroom.agents.client_tools import with_arranged_tools
from elbowroom.agents.distinct_names import distinct
from elbowroom.agents.function_tools import as_function_tool
from elbowroom.agents.managed_model import ManagedModel
from elbowroom.agents.output_keeper import NOTHING, OutputKeeper
from elbowroom.agents.own_tool import OwnTool, ToolResult
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.run_limits import RunLimits
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.turn import Turn
from elbowroom.context.message_content import whole_characters
from elbowroom.context.tool_output import ToolOutputRef
from elbowroom.context.tool_view import READ_TOOL, SEARCH_TOOL
from elbowroom.errors import RequestError
from elbowroom.settings.tool_names import TOOL_OUTPUT_CACHE

log = logging.getLogger(__name__)
SdkAgent: TypeAlias = Agent[None]


class Handover(Handoff[None, SdkAgent]):
    """The SDK's tool by which an agent hands the conversation over; `next_agent` makes the one that goes on."""

    @classmethod
    def to(cls, name: str, agent: NamedAgent, next_agent: Callable[[], Awaitable[SdkAgent]]) -> "Handover":
        """Return the tool with this name."""
        title = agent.settings.display_name

        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> SdkAgent:
            return await next_agent()

        does = f"Hand the conversation over to {title}, who answers the user from here on."
        return cls(
            tool_name=name,
            tool_description=f"{does} {agent.settings.tool_description}".strip(),
            input_json_schema={"type": "object", "properties": {}},
            on_invoke_handoff=hand_over,
            agent_name=title,
            strict_json_schema=False,
        )

    def get_transfer_message(self, agent: AgentBase[Any]) -> str:
        """Return the result of the call, which the agent that goes on is the one to read."""
        return f"The conversation was handed over. {agent.name} answers the user from here on."


@dataclass(frozen=True, slots=True)
class _Equipped:
    """An agent with the request as it is to get it, and what it can call."""

    agent: NamedAgent
    request: ChatRequest
    tools: Sequence[OwnTool]
    handovers: Sequence[Handover]
    keeper: OutputKeeper | None

    @property
    def clashes(self) -> dict[str, str]:
        """Return the names of the client's tools that are taken, each with the tool of the agent's own."""
        own = [*(tool.name for tool in self.tools), *(handover.tool_name for handover in self.handovers)]
        return clashes(self.request, own)


@dataclass(slots=True)
class SdkAgents:
    """Makes the agents of a run, each when it is needed and with a turn of its own; all add to the answer of `limits`.

    `run` runs agents that serve as tools; `until_end` is left when the run has ended. `turns` are those of the agents
    so far, the last of which answers now.
    """

    request: ChatRequest
    sink: Sink
    settings: RunSettings
    limits: RunLimits
    run: RunAgent
    until_end: ExitStack
    turns: list[Turn] = field(default_factory=list)
    _refs: dict[str, ToolOutputRef] = field(default_factory=dict)

    async def first(self, agent: NamedAgent) -> SdkAgent:
        """Return the agent that was asked. Raises RequestError where the client has a tool with the name of its own."""
        equipped = await self._equipped(agent)
        for name, taken in equipped.clashes.items():
            raise RequestError(f"The tool name {name!r} is taken: the agent has its own {taken!r}.", param="tools")
        return self._made(equipped)

    async def next(self, agent: NamedAgent) -> SdkAgent:
        """Return an agent that goes on with the conversation, and tell the person that it does.

        A tool of the client with the name of one of its own is not offered to it, since the answer has begun already.
        """
        await self.sink([Notice("handed over", f"{agent.settings.display_name} answers now.")])
        self.until_end.enter_context(agent.answering(self.settings, self.request.caller))
        equipped = await self._equipped(agent)
        if taken := equipped.clashes:
            log.warning("%s has its own %s: those of the client are left out.", agent.target.name, ", ".join(taken))
            left = tuple(spec for spec in equipped.request.tools if tool_name(spec) not in taken)
            equipped = replace(equipped, request=replace(equipped.request, tools=left))
        return self._made(equipped)

    async def _equipped(self, agent: NamedAgent) -> _Equipped:
        request = with_arranged_tools(self.request, agent.settings.client_tools)
        of_client = [name for spec in request.tools if (name := tool_name(spec)) is not None]
        tools = distinct(await self.settings.shared.toolbox(agent.target, request.caller), of_client)
        taken = [READ_TOOL, SEARCH_TOOL, *(tool.name for tool in tools)]
        for tool in agent_tools(agent, request.caller, self.sink, self.settings, self.run):
            tools.append(replace(tool, name=free_name(tool.name, taken)))
            taken.append(tools[-1].name)
        keeper = self._keeper(agent, tools)
        tools += keeper.readers if keeper else []
        handovers: list[Handover] = []
        for other in agents_named(agent.settings.handoffs, self.settings):
            name = free_name(f"transfer_to_{other.settings.id}", taken)
            handovers.append(Handover.to(name, other, partial(self.next, other)))
            taken.append(name)
        return _Equipped(agent, request, tools, handovers, keeper)

    def _keeper(self, agent: NamedAgent, tools: Sequence[OwnTool]) -> OutputKeeper | None:
        """Return what keeps the results of its tools, None where it has none or nobody looks after its window."""
        chosen = agent.settings.tool_output.over(self.settings.tool_output)
        has_tools = bool(tools) or TOOL_OUTPUT_CACHE in agent.settings.tools
        if not (chosen.enabled and has_tools and agent.target.provider.manages_context):
            return None
        outputs, owner = self.settings.shared.store.tool_outputs, self.request.caller.owner
        return OutputKeeper(outputs, owner, chosen, tools, self._refs)

    def _made(self, equipped: _Equipped) -> SdkAgent:
        agent, settings = equipped.agent, equipped.agent.settings
        keeper, answer = equipped.keeper, self.limits.answer
        turn = Turn(agent.target, equipped.request, self.sink, self.settings, keeper, answer)
        self.turns.append(turn)
        chosen = settings.tool_output.over(self.settings.tool_output)
        declared = {tool.name: tool.kind for tool in equipped.tools if tool.kind != "other"}
        self.limits.kinds.update({**declared, **chosen.kinds})
        shown = keeper.shown if keeper else _as_it_is
        own = [as_function_tool(tool, shown, self.limits.called) for tool in equipped.tools]
        of_client = client_function_tools(equipped.request) if own or equipped.handovers else {}
        return SdkAgent(
            name=settings.display_name,
            instructions=settings.instructions,
            model=ManagedModel(turn, of_client.keys(), self.limits),
            tools=[*own, *of_client.values()],
            handoffs=[*equipped.handovers],
        )


async def _as_it_is(tool: OwnTool, result: ToolResult) -> str:
    return whole_characters(result.text) or NOTHING
