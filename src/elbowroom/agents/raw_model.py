"""Answers by a raw model: no instructions, no tools of its own. The SDK has nothing to do there."""

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.relay import relay_stream
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.run_settings import RunSettings
from elbowroom.agents.running_turns import stoppable
from elbowroom.agents.turn import Turn


async def answer_raw(target: Target, request: ChatRequest, sink: Sink, settings: RunSettings) -> Answer:
    """Answer with the model that the client named; the sink has had everything visible by the time this returns."""
    if target.is_relay:
        return await relay_stream(target, request, sink)
    turn = Turn(target, request, sink, settings)
    is_whole = False
    try:
        with stoppable(settings.running):
            reply = await turn.step()
            while await turn.goes_on_behind((), reply):
                reply = await turn.step()
            is_whole = True
        if not is_whole:
            await turn.interrupted()
    finally:
        turn.end(is_whole=is_whole)
        if settings.live is not None:
            settings.live.ended("complete" if is_whole else "interrupted", turn.key)
    return turn.answer
