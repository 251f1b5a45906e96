"""Answers a chat request as a turn of its conversation, which a person may stop."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.live_turn import LiveTurn
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.run_settings import RunSettings
from elbowroom.server.keys import RUNTIME, run_settings_of
from elbowroom.server.runtime import AgentRuntime, chat_key

Begun = Callable[[LiveTurn], object]
"""Takes the turn as soon as it is known, and with it its conversation."""


async def answered(
    app: web.Application, target: Target, chat: ChatRequest, sink: Sink, begun: Begun, *, keeps: bool = True
) -> Answer:
    """Return the answer; the sink has had everything visible by then. One that a person has stopped is what it was.

    What has happened to the store is told behind the answer, once. Tasks and requests that are relayed are no turns.
    Where it is not kept, nothing of the turn is written. Raises ElbowroomError.
    """
    settings, runtime = run_settings_of(app), app[RUNTIME]
    if chat.caller.may_wait:
        return await runtime.run(target, chat, sink, settings)
    with settings.shared.admission.chat(chat_key(target, chat)):  # before the store is asked, which may be opening yet
        if target.is_relay or chat.caller.is_task:
            return await runtime.run(target, chat, sink, settings)
        live = await settings.shared.recording.begin(target, chat, keeps=keeps)
        begun(live)
        return await _answered_turn(runtime, target, chat, sink, replace(settings, live=live), live)


async def _answered_turn(
    runtime: AgentRuntime, target: Target, chat: ChatRequest, sink: Sink, settings: RunSettings, live: LiveTurn
) -> Answer:
    try:
        with settings.shared.running.entered(live.owner, live.conversation, chat.caller.chat_id, live.id) as turn:

            def seen(events: Sequence[AnswerEvent]) -> Awaitable[None]:
                turn.saw(events)
                return sink(events)

            answer = await runtime.run(target, chat, seen, replace(settings, running=turn))
            if chat.stream and (news := settings.shared.store.news()):
                await sink([Notice("store", text) for text in news])
            return answer
    finally:
        live.ended("interrupted", "")  # unless it has ended by itself
    return Answer(is_interrupted=True)  # it was stopped before it began
