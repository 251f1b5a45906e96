"""`POST /v1/chat/completions`, streamed and whole."""

import logging
from collections.abc import Sequence
from functools import partial

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent
from elbowroom.agents.catalog import Target
from elbowroom.agents.relay import relay_completion
from elbowroom.agents.request import ChatRequest
from elbowroom.errors import ElbowroomError
from elbowroom.logs.request_facts import request_facts
from elbowroom.server.answering import answered
from elbowroom.server.caller import CONVERSATION, read_chat_request
from elbowroom.server.client_left import ClientLeft
from elbowroom.server.encode import FrameEncoder, encode_completion, to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.failures import unexpected
from elbowroom.server.keys import RUNNING, catalog_of, run_settings_of
from elbowroom.server.request_log import note_target

log = logging.getLogger(__name__)
OPEN_WEBUI = "X-OpenWebUI-"
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
            return web.json_response(await relay_completion(target, chat), dumps=to_json)
        headers: dict[str, str] = {}
        named = partial(headers.setdefault, CONVERSATION)
        answer = await answered(request.app, target, chat, _keep_to_the_end, named)
    _note_answer(answer)
    return web.json_response(encode_completion(answer, chat.model), headers=headers, dumps=to_json)


async def _stream(request: web.Request, chat: ChatRequest, target: Target) -> web.StreamResponse:
    notices = run_settings_of(request.app).compaction.notices
    encoder = FrameEncoder(chat.model, notices, shows_text_only=request.headers.get("Origin") in OBSIDIAN)
    async with EventStream(request) as stream:

        async def sink(events: Sequence[AnswerEvent]) -> None:
            if frames := encoder.events(events):
                await stream.send(frames)

        try:
            try:
                async with request.app[RUNNING].endable():
                    named = partial(stream.response.headers.setdefault, CONVERSATION)
                    answer = await answered(request.app, target, chat, sink, named)
            except ClientLeft:
                raise
            except Exception as error:
                if not stream.has_begun:
                    raise
                last = encoder.failure(_reported(error, target))
            else:
                _note_answer(answer)
                last = encoder.end(answer, wants_usage=chat.wants_usage, usage_at_finish=_is_open_webui(request))
            await stream.send(last)
        except ClientLeft:
            request_facts().error = "client_left"
            log.info("The client of %s left or stopped reading; its answer was ended.", target.name)
    return stream.response


def _reported(error: Exception, target: Target) -> ElbowroomError:
    """Log what ended an answer whose headers are out, and return what the client may know of it."""
    if not isinstance(error, ElbowroomError):
        request_facts().error = type(error).__name__
        return unexpected(error)
    request_facts().error = error.code or type(error).__name__
    log.warning("The answer of %s ended early: %s", target.name, error)
    return error


async def _keep_to_the_end(events: Sequence[AnswerEvent]) -> None:
    """Show nothing yet: the answer keeps it all."""


def _is_open_webui(request: web.Request) -> bool:
    return any(name.lower().startswith(OPEN_WEBUI.lower()) for name in request.headers)


def _note_answer(answer: Answer) -> None:
    facts = request_facts()
    facts.take_usage(answer.usage)
    facts.steps, facts.finish_reason = answer.steps, answer.finish_reason
