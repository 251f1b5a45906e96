"""Answers a chat request as a turn of its conversation, which a person may stop."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest
from elbowroom.server.keys import RUNTIME, run_settings_of

Named = Callable[[str], object]
"""Takes the id of the conversation as soon as it is known."""


async def answered(app: web.Application, target: Target, chat: ChatRequest, sink: Sink, named: Named) -> Answer:
    """Return the answer; the sink has had everything visible by then. One that a person has stopped is what it was.

    What has happened to the store is told behind the answer, once. Tasks and requests that are relayed are no turns.
    Raises ElbowroomError.
    """
    settings, runtime = run_settings_of(app), app[RUNTIME]
    if target.is_relay or chat.caller.is_task:
        return await runtime.run(target, chat, sink, settings)
    live = await settings.shared.recording.begin(target, chat)
    named(live.conversation)
    try:
        with settings.shared.running.entered(live.owner, live.conversation, chat.caller.chat_id) as turn:

            def seen(events: Sequence[AnswerEvent]) -> Awaitable[None]:
                turn.saw(events)
                return sink(events)

            answer = await runtime.run(target, chat, seen, replace(settings, running=turn, live=live))
            if chat.stream and (news := settings.shared.store.news()):
                await sink([Notice("store", text) for text in news])
            return answer
    finally:
        live.ended("interrupted", "")  # unless it has ended by itself
    return Answer(is_interrupted=True)  # it was stopped before it began
