"""Answers by a raw model: no instructions, no tools of its own. The SDK has nothing to do there."""

from typing import Any

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import stoppable
from elbowroom.agents.prompt import relay_body
from elbowroom.agents.request import ChatRequest, tool_name
from elbowroom.agents.turn import ReplyStream, RunSettings, Turn
from elbowroom.providers.base import ModelInfo


async def answer_raw(target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
    """Answer with the model that the client named; the sink has had everything visible by the time this returns."""
    if target.is_relay:
        return await relay_stream(target, request, sink)
    turn = Turn(target, request, sink, settings)
    is_whole = False
    try:
        with stoppable(settings.running):
            reply = await turn.step()
            while await turn.continues_after((), reply):
                reply = await turn.step()
            is_whole = True
        if not is_whole:
            await turn.interrupted()
    finally:
        turn.end(is_whole=is_whole)
        if settings.live is not None:
            settings.live.ended("complete" if is_whole else "interrupted", turn.key)
    return turn.answer


NOT_RELAYED = frozenset({"event", "selected_model_id"})


async def relay_stream(target: Target, request: ChatRequest, sink: Sink) -> Answer:
    """Send the client's body on and hand each piece of the answer to the sink."""
    answer = Answer()
    offered = [name for tool in request.tools if (name := tool_name(tool))]
    stream = ReplyStream(answer, sink, offered, lambda name: True)
    info = ModelInfo(id=target.model, provider=target.provider.id, name=target.model)
    await stream.run(target.provider, relay_body(request, target.model), info)
    return answer


async def relay_completion(target: Target, request: ChatRequest) -> dict[str, Any]:
    """Send the client's body on and return the completion, without what could push events into a browser."""
    completion = await target.provider.complete(relay_body(request, target.model))
    kept = {key: value for key, value in completion.items() if key not in NOT_RELAYED}
    return {**kept, "model": target.name}
