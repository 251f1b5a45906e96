"""Runs an agent to its answer: with its tools, by the SDK, step after step."""

import asyncio
from contextlib import ExitStack
from typing import Final

from agents import RunConfig, Runner
from agents.exceptions import AgentsException

from elbowroom.agents.agent_tools import NamedAgent
from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.managed_model import STAND_IN
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.run_limits import RunLimits
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.running_turns import stoppable
from elbowroom.agents.sdk_agents import SdkAgent, SdkAgents
from elbowroom.errors import ElbowroomError
from elbowroom.settings.model import AgentSettings

ENDING_SECONDS: Final = 2.0
"""How long a run that is cancelled may take to close what it has open."""


async def run_agent(
    target: Target,
    agent_settings: AgentSettings,
    request: ChatRequest,
    sink: Sink,
    settings: RunSettings,
) -> Answer:
    """Answer a request with the target's agent, and those to which it hands the conversation over.

    The sink has had everything visible by the time this returns. Raises ElbowroomError. Cancelling it closes
    the upstream at once.
    """
    limits = RunLimits(target.name, agent_settings.max_turns, Answer())
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
            if settings.live is not None:
                settings.live.ended("complete" if is_whole else "interrupted", agents.turns[0].key)
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
