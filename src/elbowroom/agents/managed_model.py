"""The SDK's Model for one request: each of the Runner's model calls is one upstream request, streamed to the client."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any

from agents import AgentOutputSchemaBase, Handoff, ItemHelpers, ModelResponse, ModelSettings, ModelTracing, Tool
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model, ModelProvider
from agents.usage import Usage
from openai.types.responses import ResponseCompletedEvent

from elbowroom.agents.answer import AnswerEvent
from elbowroom.agents.request import own_request
from elbowroom.agents.sdk_items import completed_event, to_messages, to_tool_specs
from elbowroom.agents.turn import Turn

STAND_IN: TResponseInputItem = {"role": "user", "content": "(the conversation, which the model has from its request)"}
"""The Runner's whole input. The client's history never passes through the Runner, which would re-key and drop
parts of it; the model puts it where this stands."""


class ManagedModel(Model):
    """Answers each of the Runner's calls with a step of the turn.

    `client_tools` are the names of tools that the client runs itself. What the Runner hands in begins with
    STAND_IN and goes on with the steps so far; input that does not is that of an agent which serves as a tool.
    """

    def __init__(self, turn: Turn, client_tools: Collection[str]) -> None:
        self._turn = turn
        self._client_tools = client_tools

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
        """Ask the model once, hand its words to the sink as they come, and yield one completed event."""
        if not isinstance(input, list) or input[:1] != [STAND_IN]:
            # The run of an agent that serves as a tool: it knows what it is asked, and the client sees none of it.
            asked = own_request(self._turn.target.name, to_messages(ItemHelpers.input_to_new_input_list(input)))
            asked = replace(asked, caller=self._turn.request.caller)
            inner = ManagedModel(Turn(self._turn.target, asked, _show_nobody, self._turn.settings), ())
            stream = inner.stream_response(
                system_instructions, [STAND_IN], model_settings, tools, output_schema, handoffs, tracing
            )
            async for event in stream:
                yield event
            return
        own_tools = [tool for tool in tools if tool.name not in self._client_tools]
        has_own = bool(own_tools or handoffs)
        reply = await self._turn.step(
            instructions=system_instructions,
            appended=to_messages(input[1:]),
            own_tools=to_tool_specs(own_tools, handoffs),
            is_for_client=lambda name: not has_own or name in self._client_tools,
        )
        # Without tools of its own the run ends here, and the client has all calls already.
        calls = reply.tool_calls if has_own else []
        usages = self._turn.answer.usages
        yield completed_event(reply, calls, self._turn.target.model, usages[-1] if usages else None)

    def named(self, model: str) -> "ManagedModel":
        """Return the same with another model of the provider."""
        return ManagedModel(self._turn.with_model(model), self._client_tools)

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        """Ask the model once and return the whole; agents that serve as tools are run this way."""
        async for event in self.stream_response(*args, **named):
            if isinstance(event, ResponseCompletedEvent) and (used := event.response.usage) is not None:
                usage = Usage(
                    requests=1,
                    input_tokens=used.input_tokens,
                    output_tokens=used.output_tokens,
                    total_tokens=used.total_tokens,
                )
                return ModelResponse(output=event.response.output, usage=usage, response_id=None)
        raise RuntimeError("stream_response ended without its completed event")


class RunModels(ModelProvider):
    """Gives the agents of a run its model: one without a model of its own would ask OpenAI's servers otherwise."""

    def __init__(self, model: ManagedModel) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> ManagedModel:
        """Return the run's model, or the one of that name at the same provider."""
        return self._model if model_name is None else self._model.named(model_name)


async def _show_nobody(events: Sequence[AnswerEvent]) -> None:
    """Keep what an agent that serves as a tool says from the client: it is the tool's result."""
