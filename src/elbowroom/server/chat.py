"""`POST /v1/chat/completions`, streamed and whole."""

import logging
from collections.abc import MutableMapping, Sequence
from functools import partial

from aiohttp import web

from elbowroom.agents.answer import AnswerEvent
from elbowroom.agents.catalog import Target
from elbowroom.agents.live_turn import LiveTurn
from elbowroom.agents.request import ChatRequest
from elbowroom.errors import ElbowroomError
from elbowroom.logs.request_facts import request_facts
from elbowroom.server.answering import answered
from elbowroom.server.caller import CONVERSATION, read_chat_request
from elbowroom.server.client_left import ClientLeft
from elbowroom.server.encode import FrameEncoder, encode_completion, to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.failures import unexpected
from elbowroom.server.keys import RUNNING, RUNTIME, catalog_of, run_settings_of
from elbowroom.server.request_log import note_answer, note_target

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
