"""Raw models of providers without context management: passed through, with the wire kept clean."""

from typing import Any

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.request_body import relay_body
from elbowroom.agents.step import Step
from elbowroom.providers.base import ModelInfo

NOT_RELAYED = frozenset({"event", "selected_model_id"})


async def relay_stream(target: Target, request: ChatRequest, sink: Sink) -> Answer:
    """Send the client's body on and hand each piece of the answer to the sink."""
    answer = Answer()
    offered = [name for tool in request.tools if (name := tool_name(tool))]
    step = Step(answer, sink, offered, lambda name: True)
    info = ModelInfo(id=target.model, provider=target.provider.id, name=target.model)
    await step.run(target.provider, relay_body(request, target.model), info)
    return answer


async def relay_completion(target: Target, request: ChatRequest) -> dict[str, Any]:
    """Send the client's body on and return the completion, without what could push events into a browser."""
    completion = await target.provider.complete(relay_body(request, target.model))
    kept = {key: value for key, value in completion.items() if key not in NOT_RELAYED}
    return {**kept, "model": target.name}
