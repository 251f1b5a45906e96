"""The SDK's Model for one request: each of the Runner's model calls is one upstream request, streamed to the client."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any

from agents import AgentOutputSchemaBase, Handoff, ItemHelpers, ModelResponse, ModelSettings, ModelTracing, Tool
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model, ModelProvider
from agents.usage import Usage
from openai.types.responses import ResponseCompletedEvent

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest, own_request, tool_name
from elbowroom.agents.request_body import step_body, with_instructions
from elbowroom.agents.sdk_items import completed_event, to_messages, to_tool_specs
from elbowroom.agents.step import Step

STAND_IN: TResponseInputItem = {"role": "user", "content": "(the conversation, which the model has from its request)"}
"""The Runner's whole input. The client's history never passes through the Runner, which would re-key and drop
parts of it; the model puts it where this stands."""


class ManagedModel(Model):
    """Answers with one provider's model for one request; `answer` grows with every step.

    `client_tools` are the names of tools that the client runs itself. What the Runner hands in begins with
    STAND_IN and goes on with the steps so far; input that does not is that of an agent which serves as a tool.
    """

    def __init__(
        self, target: Target, request: ChatRequest, client_tools: Collection[str], answer: Answer, sink: Sink
    ) -> None:
        self._target = target
        self._request = request
        self._client_tools = client_tools
        self._sink = sink
        self._defaults = target.agent.sampling.as_request_fields() if target.agent else {}
        self.answer = answer

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
            asked = own_request(self._target.name, to_messages(ItemHelpers.input_to_new_input_list(input)))
            inner = ManagedModel(self._target, asked, (), Answer(), _show_nobody)
            stream = inner.stream_response(
                system_instructions, [STAND_IN], model_settings, tools, output_schema, handoffs, tracing
            )
            async for event in stream:
                yield event
            return
        own_tools = [tool for tool in tools if tool.name not in self._client_tools]
        body = self._body(system_instructions, input, to_tool_specs(own_tools, handoffs))
        info = await self._target.provider.ready(self._target.model)
        has_own = bool(own_tools or handoffs)
        step = Step(self.answer, self._sink, _offered(body), lambda name: not has_own or name in self._client_tools)
        reply = await step.run(self._target.provider, body, info)
        # Without tools of its own the run ends here, and the client has all calls already.
        calls = reply.tool_calls if has_own else []
        usage = self.answer.usages[-1] if self.answer.usages else None
        yield completed_event(reply, calls, self._target.model, usage)

    def named(self, model: str) -> "ManagedModel":
        """Return the same with another model of the provider."""
        target = replace(self._target, model=model)
        return ManagedModel(target, self._request, self._client_tools, self.answer, self._sink)

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

    def _body(
        self, instructions: str | None, items: list[TResponseInputItem], specs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        messages = with_instructions(self._request.messages, instructions) + to_messages(items[1:])
        tools = [*specs, *self._request.tools]
        step = self.answer.steps + 1
        return step_body(self._request, self._target.model, self._defaults, messages, tools, step=step)


class RunModels(ModelProvider):
    """Gives the agents of a run its model: one without a model of its own would ask OpenAI's servers otherwise."""

    def __init__(self, model: ManagedModel) -> None:
        self._model = model

    def get_model(self, model_name: str | None) -> ManagedModel:
        """Return the run's model, or the one of that name at the same provider."""
        return self._model if model_name is None else self._model.named(model_name)


async def _show_nobody(events: Sequence[AnswerEvent]) -> None:
    """Keep what an agent that serves as a tool says from the client: it is the tool's result."""


def _offered(body: dict[str, Any]) -> list[str]:
    return [name for tool in body.get("tools", ()) if (name := tool_name(tool))]
