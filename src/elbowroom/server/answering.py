"""Answers a chat request as a turn of its conversation, which a person may stop."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest
from elbowroom.server.keys import RUNTIME, run_settings_of

Named = Callable[[str], object]
"""Takes the id of the conversation as soon as it is known."""


async def answered(app: web.Application, target: Target, chat: ChatRequest, sink: Sink, named: Named) -> Answer:
    """Return the answer; the sink has had everything visible by then. One that a person has stopped is what it was.

    Tasks and requests that are relayed are no turns. Raises ElbowroomError.
    """
    settings, runtime = run_settings_of(app), app[RUNTIME]
    if target.is_relay or chat.caller.is_task:
        return await runtime.run(target, chat, sink, settings)
    shared = settings.shared
    live = await shared.recording.begin(target, chat)
    named(live.conversation)
    answer = Answer(is_interrupted=True)  # where it is stopped before it begins
    try:
        with shared.running.entered(chat.caller.owner, live.conversation, chat.caller.chat_id) as turn:

            def seen(events: Sequence[AnswerEvent]) -> Awaitable[None]:
                turn.saw(events)
                return sink(events)

            answer = await runtime.run(target, chat, seen, replace(settings, running=turn, live=live))
    finally:
        live.ended("interrupted", "")  # where the run has not come to its own end
    return answer
