"""`POST /v1/chat/completions`, streamed and whole, and what else can be done with the same body: count and compact."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answering import answer, relay, relay_stream
from elbowroom.agents.catalog import Target
from elbowroom.agents.dry_run import SizedRequest, count_offered
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn import Shared
from elbowroom.context.compaction import Seal
from elbowroom.context.transcript import Message
from elbowroom.server.dialect import answered
from elbowroom.server.encode import FrameEncoder, PassedEncoder
from elbowroom.server.event_stream import EventStream
from elbowroom.server.guard import page_address
from elbowroom.server.middleware import note_target
from elbowroom.server.request import OBSIDIAN, owner_of, read_chat_request
from elbowroom.server.state import CATALOG, SHARED, run_settings_of

EVENTS: Final = "X-Elbowroom-Events"
"""The header by which a client says that it shows notices itself, from their chunks."""


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer one chat request with the agent or raw model that it names."""
    chat = await read_chat_request(request)
    target = await request.app[CATALOG].get().resolve(chat.model)
    note_target(target)
    settings = run_settings_of(request.app, chat.caller, target)
    shows_itself = request.headers.get(EVENTS) == "1"
    shows_text_only = request.headers.get("Origin") in OBSIDIAN and not shows_itself
    if chat.stream and target.is_relay and not shows_text_only:
        passing = EventStream(request, target.name)
        return await passing.answer(PassedEncoder(), partial(relay_stream, target, chat, settings))
    if not chat.stream and target.is_relay:
        return web.Response(body=await relay(target, chat, settings), content_type="application/json")
    notices = settings.compaction.notices
    encoder = FrameEncoder(
        chat.model,
        "event" if shows_itself and notices in ("auto", "content") else notices,
        wants_usage=chat.wants_usage,
        shows_text_only=shows_text_only,
        is_open_webui=chat.caller.is_open_webui,
        page=page_address(request) if chat.caller.is_open_webui else "",
    )
    return await answered(request, chat, target.name, encoder, partial(answer, target, chat, settings))


async def input_tokens(request: web.Request) -> web.Response:
    """Count the prompt that this chat request would make; no model is loaded for it."""
    chat = await read_chat_request(request)
    return await counted(request, await request.app[CATALOG].get().resolve(chat.model), chat)


async def counted(request: web.Request, target: Target, chat: ChatRequest) -> web.Response:
    """Answer how large the prompt of a chat is, in the form of OpenAI's route and with elbowroom's own fields."""
    found = await sized(request, target, chat)
    return web.json_response(
        {
            "object": "response.input_tokens",
            "input_tokens": found.count.tokens,
            "method": found.count.method,
            "exact": found.count.is_exact,
            "error_bound": found.count.error_bound,
            "window": found.window,
        }
    )


async def sized(request: web.Request, target: Target, chat: ChatRequest) -> SizedRequest:
    """Return how large the prompt of a chat is, with all that its model can call."""
    return await count_offered(target, chat, run_settings_of(request.app, chat.caller, target))


async def seal_of(request: web.Request, target: Target, body: Mapping[str, Any]) -> Seal:
    """Return what makes and opens the compaction items of whoever sends this body."""
    agent = target.agent.id if target.agent is not None else ""
    return Seal(await request.app[SHARED].store.secret(), owner_of(request, body), agent)


async def unsealed(shared: Shared, seal: Seal, item: Any, where: str) -> list[Message]:
    """Return the messages that a compaction item stands for. Raises RequestError, which names its place `where`."""
    reference = seal.opened(item, where)
    if (unsaved := shared.notes.unsaved.get(reference.key)) is not None:
        return list(unsaved.messages)
    for each in filter(None, (shared, shared.temporary)):
        for entry in await each.store.ledger.find([reference.key]):
            return list(entry.messages)
    return list(reference.messages)
