"""`POST /v1/chat/completions`, streamed and whole."""

import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import replace
from functools import partial

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import LiveTurn
from elbowroom.agents.dry_run import compact_request, count_request
from elbowroom.agents.offered import offered_unasked
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn import RunSettings
from elbowroom.errors import ElbowroomError
from elbowroom.logs.request_facts import request_facts
from elbowroom.server.encode import FrameEncoder, encode_completion, to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.guard import CONVERSATION
from elbowroom.server.middleware import note_answer, note_target, unexpected
from elbowroom.server.request import read_chat_request
from elbowroom.server.state import RUNNING, RUNTIME, AgentRuntime, ClientLeft, catalog_of, chat_key, run_settings_of

log = logging.getLogger(__name__)
OPEN_WEBUI = ("x-openwebui-", "x-elbowroom-message-id")
"""How the headers begin that Open WebUI sends where it is set up to, and nobody else."""
OBSIDIAN = ("app://obsidian.md", "capacitor://localhost")
"""Origins of Obsidian's plugins, on a computer and on a phone; they show the text of an answer and nothing else."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer one chat request with the agent or raw model that it names."""
    chat = await read_chat_request(request)
    target = await catalog_of(request.app).resolve(chat.model)
    note_target(target)
    if chat.stream:
        return await _stream(request, chat, target)
    async with request.app[RUNNING].endable():
        if target.is_relay:
            settings = run_settings_of(request.app)
            completion = await request.app[RUNTIME].relay(target, chat, settings)
            request_facts().take_usage(completion.get("usage"))
            return web.json_response(completion, dumps=to_json)
        headers: dict[str, str] = {}
        answer = await answered(request.app, target, chat, _keep_to_the_end, partial(name_conversation, headers))
    note_answer(answer)
    return web.json_response(encode_completion(answer, chat.model), headers=headers, dumps=to_json)


async def _stream(request: web.Request, chat: ChatRequest, target: Target) -> web.StreamResponse:
    notices = run_settings_of(request.app).compaction.notices
    encoder = FrameEncoder(
        chat.model,
        notices,
        shows_text_only=request.headers.get("Origin") in OBSIDIAN,
        keeps_status=_is_open_webui(request),
    )
    async with EventStream(request, encoder.keep_alive) as stream:

        async def sink(events: Sequence[AnswerEvent]) -> None:
            if frames := encoder.events(events):
                await stream.send(frames)

        try:
            try:
                async with request.app[RUNNING].endable():
                    begun = partial(name_conversation, stream.response.headers)
                    answer = await answered(request.app, target, chat, sink, begun)
            except ClientLeft:
                raise
            except Exception as error:
                if not stream.has_begun:
                    raise
                last = encoder.failure(reported(error, target))
            else:
                note_answer(answer)
                last = encoder.end(answer, wants_usage=chat.wants_usage, usage_at_finish=_is_open_webui(request))
            await stream.send(last)
        except ClientLeft:
            note_client_left(target)
    return stream.response


def note_client_left(target: Target) -> None:
    """Log that nobody reads an answer any more whose headers are out."""
    request_facts().error = "client_left"
    log.info("The client of %s left or stopped reading; its answer was ended.", target.name)


def reported(error: Exception, target: Target) -> ElbowroomError:
    """Log what ended an answer whose headers are out, and return what the client may know of it."""
    request_facts().failed(error)
    if not isinstance(error, ElbowroomError):
        return unexpected(error)
    log.warning("The answer of %s ended early: %s", target.name, error)
    return error


def name_conversation(headers: MutableMapping[str, str], live: LiveTurn) -> None:
    """Let the headers of an answer name its conversation."""
    headers.setdefault(CONVERSATION, live.conversation)


async def _keep_to_the_end(events: Sequence[AnswerEvent]) -> None:
    """Show nothing yet: the answer keeps it all."""


def _is_open_webui(request: web.Request) -> bool:
    return any(name.lower().startswith(OPEN_WEBUI) for name in request.headers)


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


async def input_tokens(request: web.Request) -> web.Response:
    """Count the prompt that this chat request would make; no model is loaded for it."""
    chat = await read_chat_request(request)
    return await counted(request, await catalog_of(request.app).resolve(chat.model), chat)


async def counted(request: web.Request, target: Target, chat: ChatRequest) -> web.Response:
    """Answer how large the prompt of a chat is, in the form of OpenAI's route with what elbowroom knows beside it."""
    offered = await offered_unasked(target, chat, run_settings_of(request.app))
    sized = await count_request(target, offered.request, offered.specs)
    return web.json_response(
        {
            "object": "response.input_tokens",
            "input_tokens": sized.count.tokens,
            "method": sized.count.method,
            "exact": sized.count.is_exact,
            "error_bound": sized.count.error_bound,
            "window": sized.window,
        }
    )


async def compact_conversation(request: web.Request) -> web.StreamResponse:
    """Take the same body as a chat request and answer with its messages, compacted, and their sizes in tokens."""
    chat = await read_chat_request(request)
    target = await catalog_of(request.app).resolve(chat.model)
    async with request.app[RUNNING].endable():
        compacted = await compact_request(target, chat, run_settings_of(request.app))
    answer = {
        "id": request.match_info["id"],
        "object": "conversation.compaction",
        "model": chat.model,
        "compacted": compacted.rung is not None,
        "method": compacted.rung,
        "before": compacted.before,
        "after": compacted.after,
        "seconds": round(compacted.seconds, 3),
        "messages": compacted.messages,
    }
    return web.json_response(answer, dumps=to_json)
