"""The SDK's Model for one request: each of the Runner's model calls is one upstream request, streamed to the client."""

from collections.abc import AsyncIterator, Collection
from typing import Any

from agents import AgentOutputSchemaBase, Handoff, ModelResponse, ModelSettings, ModelTracing, Tool
from agents.items import TResponseInputItem, TResponseStreamEvent
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseCompletedEvent

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.request_body import step_body, with_instructions
from elbowroom.agents.sdk_items import completed_event, to_messages, to_tool_specs
from elbowroom.agents.step import Step

STAND_IN: TResponseInputItem = {"role": "user", "content": "(the conversation, which the model has from its request)"}
"""The Runner's whole input. The client's history never passes through the Runner, which would re-key and drop
parts of it; the model puts it where this stands."""


class ManagedModel(Model):
    """Answers with one provider's model for one request; `answer` grows with every step.

    `client_tools` are the names of tools that the client runs itself. What the Runner hands in begins with
    STAND_IN and goes on with the steps so far.
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
        self, instructions: str | None, items: str | list[TResponseInputItem], specs: list[dict[str, Any]]
    ) -> dict[str, Any]:
        appended = items[1:] if isinstance(items, list) else []
        messages = with_instructions(self._request.messages, instructions) + to_messages(appended)
        tools = [*specs, *self._request.tools]
        step = self.answer.steps + 1
        return step_body(self._request, self._target.model, self._defaults, messages, tools, step=step)


def _offered(body: dict[str, Any]) -> list[str]:
    return [name for tool in body.get("tools", ()) if (name := tool_name(tool))]
