"""`POST /v1/messages` of Anthropic's API, streamed and whole, and the count of its tokens."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Sink
from elbowroom.agents.answering import answer
from elbowroom.agents.catalog import Target
from elbowroom.agents.turn import RunSettings
from elbowroom.server.chat import name_conversation, sized
from elbowroom.server.encode import THOUGHTS
from elbowroom.server.event_stream import EventStream, json_answer
from elbowroom.server.messages.body import MessagesRequest, parse_messages_request
from elbowroom.server.messages.diagnostics import Diagnoses
from elbowroom.server.messages.encode import MessageEncoder
from elbowroom.server.middleware import note_target
from elbowroom.server.request import conversation_name, read_request, with_caller
from elbowroom.server.state import catalog_of, run_settings_of


def add_message_routes(app: web.Application, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    app[DIAGNOSES] = Diagnoses()
    app.router.add_post(f"{base}messages{end}", create_message)
    app.router.add_post(f"{base}messages/count_tokens{end}", count_tokens)
    app.router.add_get("/api/hello", say_hello)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to answer: as it was parsed, the target that it names, and the `diagnostics` that it wants."""

    request: MessagesRequest
    target: Target
    diagnostics: Any = None


Answering = Callable[[RunSettings, Asked, MutableMapping[str, str], Sink], Awaitable[Answer]]
DIAGNOSES: web.AppKey[Diagnoses] = web.AppKey("DIAGNOSES", Diagnoses)


async def create_message(request: web.Request) -> web.StreamResponse:
    """Answer one request with the agent or raw model that it names."""
    asked = await _asked(request)
    note_target(asked.target)
    chat = asked.request.chat
    settings = run_settings_of(request.app, chat.caller)
    encoder = MessageEncoder(chat.model, asked.request.thinking, settings.compaction.notices)
    answered = _diagnosed(request, asked, encoder)
    if chat.stream:
        stream = EventStream(request, asked.target.name, encoder.keep_alive)
        return await stream.answer(encoder, partial(answered, settings, asked, stream.response.headers))
    headers: dict[str, str] = {}

    async def keep(events: Sequence[AnswerEvent]) -> None:
        encoder.events(events)

    whole = await answered(settings, asked, headers, keep)
    return await json_answer(encoder.whole(whole), headers)


def _diagnosed(request: web.Request, asked: Asked, encoder: MessageEncoder) -> Answering:
    """Return what answers a request; where that asks for it, its message says what has changed since an earlier one."""
    if not isinstance(asked.diagnostics, Mapping):
        return _answered
    diagnoses = request.app[DIAGNOSES]
    compared = diagnoses.of(asked.diagnostics, asked.request.chat)
    encoder.tell(compared.diagnosis)

    async def answered(settings: RunSettings, asked: Asked, headers: MutableMapping[str, str], sink: Sink) -> Answer:
        whole = await _answered(settings, asked, headers, sink)
        diagnoses.answered(encoder.message_id, compared, whole)
        return whole

    return answered


async def _answered(settings: RunSettings, asked: Asked, headers: MutableMapping[str, str], sink: Sink) -> Answer:
    begun = partial(name_conversation, headers)
    return await answer(asked.target, asked.request.chat, settings, sink, begun)


async def count_tokens(request: web.Request) -> web.Response:
    """Count the prompt that this request would make; no model is loaded for it."""
    asked = await _asked(request)
    counted = await sized(request, asked.target, asked.request.chat)
    return web.json_response({"input_tokens": counted.count.tokens})


async def say_hello(request: web.Request) -> web.Response:
    """Answer a client that asks whether anybody is there."""
    return web.json_response({"message": "elbowroom"})


async def _asked(request: web.Request) -> Asked:
    """Read a request, with its caller and the session that the client names."""
    body, asked = await read_request(request, lambda body: (body, parse_messages_request(body)))
    target = await catalog_of(request.app).resolve(asked.chat.model)
    chat = asked.chat
    if not target.provider.manages_context:  # which may be one that refuses what it does not know
        plain = tuple({name: value for name, value in one.items() if name != THOUGHTS} for one in chat.messages)
        chat = replace(chat, messages=plain)
    caller = with_caller(request, replace(chat, body=body)).caller
    if not caller.chat_id and asked.session:
        caller = replace(caller, chat_id=conversation_name(asked.session))
    # A relayed body is sent as it is, and the upstream's stream is read whatever the client wants.
    sent = {**chat.body, "messages": list(chat.messages), "stream": True, "stream_options": {"include_usage": True}}
    return Asked(replace(asked, chat=replace(chat, body=sent, caller=caller)), target, body.get("diagnostics"))
