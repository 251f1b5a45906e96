"""The SDK's Model for an agent of a request: each of the Runner's calls is an upstream request, shown to the client."""

from collections.abc import AsyncIterator, Collection
from functools import partial
from typing import Any

from agents import AgentOutputSchemaBase, Handoff, ModelResponse, ModelSettings, ModelTracing, Tool
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model

from elbowroom.agents.reply import Reply
from elbowroom.agents.run_limits import RunLimits
from elbowroom.agents.sdk_items import completed_event, to_messages, to_tool_specs
from elbowroom.agents.turn import Turn

STAND_IN: TResponseInputItem = {"role": "user", "content": "(the conversation, which the model has from its request)"}
"""The Runner's whole input. The client's history never passes through the Runner, which would re-key and drop
parts of it; the model puts it where this stands."""


class ManagedModel(Model):
    """Answers each of the Runner's calls with a step of the turn, until the run has come to its `limits`.

    `client_tools` are the names of tools that the client runs itself. What the Runner hands in begins with STAND_IN
    and goes on with the steps so far, those of agents before a handover included.
    """

    def __init__(self, turn: Turn, client_tools: Collection[str], limits: RunLimits) -> None:
        self._turn = turn
        self._client_tools = client_tools
        self._limits = limits

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],  # noqa: A002  # the SDK names it
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any = None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Ask the model, hand its words to the sink as they come, and yield one completed event.

        Where the run would end with that and a person has said more, the model is asked again, of which the Runner
        knows nothing.
        """
        appended = to_messages([] if isinstance(input, str) else input[1:])
        if why := self._limits.why_stop(appended):
            await self._turn.stop(appended, why)
            yield completed_event(_saying(why), (), self._turn.target.model, None)
            return
        own_tools = [tool for tool in tools if tool.name not in self._client_tools]
        has_own = bool(own_tools or handoffs)
        ask = partial(
            self._turn.step,
            instructions=system_instructions,
            appended=appended,
            own_tools=to_tool_specs(own_tools, handoffs),
            is_for_client=lambda name: not has_own or name in self._client_tools,
        )
        reply = await ask()
        while self._limits.may_go_on and await self._turn.goes_on_behind(appended, reply):
            reply = await ask()
        # Without tools of its own the run ends here, and the client has all calls already.
        calls = reply.tool_calls if has_own else []
        known = {tool.name for tool in tools} | {handoff.tool_name for handoff in handoffs}
        for call in calls:
            if call.name not in known:
                self._limits.note_failure(call.name, call.arguments)
        usages = self._turn.answer.usages
        yield completed_event(reply, calls, self._turn.target.model, usages[-1] if usages else None)

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """Refuse: the SDK wants this method, and calls it only in runs that are not streamed."""
        raise NotImplementedError("agents are run with Runner.run_streamed")


def _saying(text: str) -> Reply:
    reply = Reply(())
    reply.text.append(text)
    return reply
