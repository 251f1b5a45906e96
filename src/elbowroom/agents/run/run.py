"""Runs an agent to its answer: with its tools, by the SDK, step after step."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeAlias

from agents import Agent, RunConfig, RunContextWrapper, Runner
from agents import Handoff as SdkHandoff
from agents.agent import AgentBase
from agents.exceptions import AgentsException

from elbowroom.agents.answer import Answer, AnswerGuard, Notice, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import HANDED_OVER
from elbowroom.agents.offered import NO_ARGUMENTS, Handoff, NamedAgent, Offered, RunAgent, offered_to
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.run.model import STAND_IN, ManagedModel, RunLimits, as_function_tool, client_function_tools
from elbowroom.agents.running import stoppable
from elbowroom.agents.tools import OwnTool, ToolResult
from elbowroom.agents.tools.outputs import NOTHING
from elbowroom.agents.turn import RunSettings, Turn
from elbowroom.context.outputs import ToolOutputRef
from elbowroom.context.transcript import whole_characters
from elbowroom.errors import ElbowroomError, RequestError
from elbowroom.settings.model import AgentSettings

log = logging.getLogger(__name__)
SdkAgent: TypeAlias = Agent[None]


class Handover(SdkHandoff[None, SdkAgent]):
    """The SDK's tool by which an agent hands the conversation over; `next_agent` makes the one that goes on."""

    @classmethod
    def by(cls, handoff: Handoff, next_agent: Callable[[], Awaitable[SdkAgent]]) -> "Handover":
        """Return the SDK's form of a handoff."""

        async def hand_over(context: RunContextWrapper[Any], arguments: str) -> SdkAgent:
            return await next_agent()

        return cls(
            tool_name=handoff.name,
            tool_description=handoff.description,
            input_json_schema=dict(NO_ARGUMENTS),
            on_invoke_handoff=hand_over,
            agent_name=handoff.agent.settings.display_name,
            strict_json_schema=False,
        )

    def get_transfer_message(self, agent: AgentBase[Any]) -> str:
        """Return the result of the call, which the agent that goes on is the one to read."""
        return f"{HANDED_OVER} {agent.name} answers the user from here on."


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
        offered = await self._offered(agent)
        for name, taken in offered.clashes.items():
            raise RequestError(f"The tool name {name!r} is taken: the agent has its own {taken!r}.", param="tools")
        return self._made(agent, offered)

    async def next(self, agent: NamedAgent) -> SdkAgent:
        """Return an agent that goes on with the conversation, and tell the person that it does.

        A tool of the client with the name of one of its own is not offered to it, since the answer has begun already.
        """
        await self.sink([Notice("handed over", f"{agent.settings.display_name} answers now.")])
        self.until_end.enter_context(agent.answering(self.settings, self.request.caller))
        offered = await self._offered(agent)
        if taken := offered.clashes:
            log.warning("%s has its own %s: those of the client are left out.", agent.target.name, ", ".join(taken))
            left = tuple(spec for spec in offered.request.tools if tool_name(spec) not in taken)
            offered = replace(offered, request=replace(offered.request, tools=left))
        return self._made(agent, offered)

    async def _called(self, tool: OwnTool, written: str) -> ToolResult:
        result = await self.limits.called(tool, written)
        self.settings.shared.observations.tool_called(has_failed=result.is_error)
        return result

    async def _offered(self, agent: NamedAgent) -> Offered:
        return await offered_to(agent, self.request, self.sink, self.settings, self.run, self._refs)

    def _made(self, agent: NamedAgent, offered: Offered) -> SdkAgent:
        settings, keeper, answer = agent.settings, offered.keeper, self.limits.answer
        if answer.guard is None and (offered.tools or offered.handoffs):
            answer.guard = AnswerGuard.after(self.request.messages)
        intake = self.turns[0].intake if self.turns else None
        turn = Turn(agent.target, offered.request, self.sink, self.settings, keeper, answer, intake)
        self.turns.append(turn)
        chosen = settings.tool_output.over(self.settings.tool_output)
        declared = {tool.name: tool.kind for tool in offered.tools if tool.kind != "other"}
        self.limits.kinds.update({**declared, **chosen.kinds})
        shown = keeper.shown if keeper else _as_it_is
        own = [as_function_tool(tool, shown, self._called, turn.returned) for tool in offered.tools]
        handovers = [Handover.by(handoff, partial(self.next, handoff.agent)) for handoff in offered.handoffs]
        of_client = client_function_tools(offered.request) if own or handovers else {}
        return SdkAgent(
            name=settings.display_name,
            instructions=settings.instructions,
            model=ManagedModel(turn, of_client.keys(), self.limits),
            tools=[*own, *of_client.values()],
            handoffs=[*handovers],
        )


async def _as_it_is(tool: OwnTool, result: ToolResult) -> str:
    return whole_characters(result.text) or NOTHING


ENDING_SECONDS: Final = 2.0
"""How long a run that is cancelled may take to close what it has open."""


async def run_agent(
    target: Target,
    agent_settings: AgentSettings,
    request: ChatRequest,
    sink: Sink,
    settings: RunSettings,
    answer: Answer | None = None,
) -> Answer:
    """Answer a request with the target's agent, and those to which it hands the conversation over.

    Adds to the `answer`, by default a new one, and returns it; the sink has had all of it by then. Raises
    ElbowroomError. Cancelling it closes the upstream at once.
    """
    limits = RunLimits(target.name, agent_settings.max_turns, answer or Answer())
    is_whole = False
    with ExitStack() as until_end:
        agents = SdkAgents(request, sink, settings, limits, run_agent, until_end)
        first = await agents.first(NamedAgent(target, agent_settings))
        try:
            with stoppable(settings.running):
                await _run_to_the_end(first, limits)
                is_whole = True
            if not is_whole:
                await agents.turns[-1].interrupted()
        except AgentsException as error:
            raise ElbowroomError(f"The run of {target.name!r} failed: {error}") from error
        finally:
            *handed_over, last = agents.turns
            for turn in handed_over:
                turn.end(is_whole=is_whole, is_handed_over=True)
            last.end(is_whole=is_whole)
    return limits.answer


async def _run_to_the_end(first: SdkAgent, limits: RunLimits) -> None:
    result = Runner.run_streamed(
        first,
        [STAND_IN],
        max_turns=None,  # the model itself ends a run that has come to its limits
        run_config=RunConfig(tracing_disabled=True, tool_not_found_behavior="return_error_to_model"),
    )
    try:
        async for _ in result.stream_events():
            pass  # the sink has had it already
    finally:
        result.cancel()
        if (loop := result.run_loop_task) is not None and not loop.done():
            await asyncio.wait([loop], timeout=ENDING_SECONDS)
        await limits.calls_ended()  # for which the SDK does not wait
