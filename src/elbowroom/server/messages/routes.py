"""`POST /v1/messages` of Anthropic's API, streamed and whole, and the count of its tokens."""

from asyncio import to_thread
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answer import Answer, Sink
from elbowroom.agents.answering import Begun, answer
from elbowroom.agents.catalog import Target
from elbowroom.agents.dry_run import compact_request
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn import RunSettings
from elbowroom.context.compaction import Seal
from elbowroom.context.ledger import Chain
from elbowroom.context.seam import without_notices
from elbowroom.context.transcript import Message, as_dicts
from elbowroom.server.chat import seal_of, sized, unsealed
from elbowroom.server.dialect import Answering, answered, as_chat
from elbowroom.server.messages.body import MessagesRequest, parse_messages_request
from elbowroom.server.messages.diagnostics import Diagnoses
from elbowroom.server.messages.encode import MessageEncoder
from elbowroom.server.middleware import note_target
from elbowroom.server.request import at_leisure, conversation_name, read_request
from elbowroom.server.state import CATALOG, SHARED, run_settings_of


def add_message_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    router.add_post(f"{base}messages{end}", create_message)
    router.add_post(f"{base}messages/count_tokens{end}", count_tokens)
    router.add_get("/api/hello", say_hello)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to answer: as it was parsed, the target that it names, and the `diagnostics` that it wants.

    `seal` makes compactions for its client, where that wants any.
    """

    request: MessagesRequest
    target: Target
    diagnostics: Any = None
    seal: Seal | None = None


INTERLEAVED: Final = "interleaved-thinking-"
"""How the beta of Anthropic's API is called with which a model thinks between its calls."""
DIAGNOSES: web.AppKey[Diagnoses] = web.AppKey("DIAGNOSES", Diagnoses)


async def create_message(request: web.Request) -> web.StreamResponse:
    """Answer one request with the agent or raw model that it names."""
    asked = await _asked(request)
    note_target(asked.target)
    chat = asked.request.chat
    settings = run_settings_of(request.app, chat.caller, asked.target)
    notices, wanted = settings.compaction.notices, asked.request.wanted
    encoder = MessageEncoder(chat.model, asked.request.thinking, notices, wanted, asked.seal)
    run: Answering = partial(_answer, settings, asked)
    if isinstance(asked.diagnostics, Mapping):
        run = await _diagnosed(request, asked, encoder, run)
    return await answered(request, chat, asked.target.name, encoder, run)


async def _diagnosed(request: web.Request, asked: Asked, encoder: MessageEncoder, run: Answering) -> Answering:
    """Return what answers as `run` does, and says in the message what has changed since an earlier one."""
    diagnoses, chat = request.app[DIAGNOSES], asked.request.chat
    compared = await at_leisure(request, lambda: diagnoses.of(asked.diagnostics, chat))
    encoder.tell(compared.diagnosis)

    async def diagnosed(sink: Sink, begun: Begun) -> Answer:
        whole = await run(sink, begun)
        diagnoses.answered(encoder.message_id, compared, whole)
        return whole

    return diagnosed


async def _answer(settings: RunSettings, asked: Asked, sink: Sink, begun: Begun) -> Answer:
    if asked.request.wanted.only_compacts:
        return await _compacted(settings, asked, sink)
    return await answer(asked.target, asked.request.chat, settings, sink, begun)


async def _compacted(settings: RunSettings, asked: Asked, sink: Sink) -> Answer:
    """Hand the sink a compaction of what was sent; return an answer without words."""
    with settings.shared.running.entered(caller=asked.request.chat.caller):
        await compact_request(asked.target, asked.request.chat, settings, sink)
    return Answer()


async def count_tokens(request: web.Request) -> web.Response:
    """Count the prompt that this request would make; no model is loaded for it."""
    asked = await _asked(request, needs_limit=False)
    original = await _size(request, asked, asked.request.chat.messages)
    if not asked.request.wanted.is_told:
        return web.json_response({"input_tokens": original})
    edited = await _edited(request, asked) if asked.request.chat.edits else None
    left = await _size(request, asked, edited) if edited is not None else original
    return web.json_response({"input_tokens": left, "context_management": {"original_input_tokens": original}})


async def _size(request: web.Request, asked: Asked, messages: Sequence[Message]) -> int:
    """Return the size of the prompt that the request makes with these messages."""
    chat = replace(asked.request.chat, messages=as_dicts(messages))
    return (await sized(request, asked.target, chat)).count.tokens


async def _edited(request: web.Request, asked: Asked) -> Sequence[Message] | None:
    """Return the messages after the edits that the client wants; None where these change nothing."""
    chat, target = asked.request.chat, asked.target
    messages, settings = without_notices(chat.messages), run_settings_of(request.app, chat.caller, target)
    if not target.provider.manages_context:
        return None
    chain = await to_thread(Chain.of, chat.caller.keeps_as, target.name, messages)
    edits = settings.edits(target, chat)
    done = await edits.applied_to(messages, chain, partial(_size, request, asked))
    return done.messages if done.applied else None


async def say_hello(request: web.Request) -> web.Response:
    """Answer a client that asks whether anybody is there."""
    return web.json_response({"message": "elbowroom"})


async def _asked(request: web.Request, *, needs_limit: bool = True) -> Asked:
    """Read a request, with its caller and the session that the client names."""
    interleaves = INTERLEAVED in request.headers.get("anthropic-beta", "")
    parse = partial(parse_messages_request, needs_limit=needs_limit, thinks_between_calls=interleaves)
    body, asked = await read_request(request, lambda body: (body, parse(body)))
    target = await request.app[CATALOG].get().resolve(asked.chat.model)
    is_sealing = asked.compaction is not None or asked.wanted.compaction is not None
    seal = await seal_of(request, target, body) if is_sealing else None
    chat = await _with_compaction(request, asked, seal) if seal is not None else asked.chat
    chat = await as_chat(request, chat, target, body, conversation_name(asked.session) if asked.session else "")
    return Asked(replace(asked, chat=chat), target, body.get("diagnostics"), seal)


async def _with_compaction(request: web.Request, asked: MessagesRequest, seal: Seal) -> ChatRequest:
    """Return the chat of a request with the messages for which the compaction in it stands."""
    chat, compaction = asked.chat, asked.compaction
    if compaction is None:
        return chat
    kept = await unsealed(request.app[SHARED], seal, compaction.item, compaction.where)
    before, after = chat.messages[: compaction.at], chat.messages[compaction.at + 1 :]
    return replace(chat, messages=(*before, *as_dicts(kept), *after))
