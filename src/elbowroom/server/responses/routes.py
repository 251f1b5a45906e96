"""`/v1/responses`: OpenAI's newer API over the same answers as chats; kept responses are read from their turns."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink
from elbowroom.agents.answering import Begun, answer, ignore
from elbowroom.agents.turn import RunSettings
from elbowroom.errors import Conflict, NotFound, RequestError
from elbowroom.server.chat import counted
from elbowroom.server.conversations import cancelled_elsewhere, changing, ended_elsewhere, whole_number
from elbowroom.server.dialect import answered
from elbowroom.server.encode import PassedEncoder, to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.middleware import note_target
from elbowroom.server.request import keeper_of
from elbowroom.server.responses.asked import Asked, read_asked, refuse_running
from elbowroom.server.responses.background import (
    BACKGROUND,
    BackgroundResponse,
    new_turn,
)
from elbowroom.server.responses.compacting import compact_response, compacted
from elbowroom.server.responses.encode import Event, KeptEncoder, ResponseEncoder, turn_of
from elbowroom.server.responses.kept import find_response, is_being_given, unkept
from elbowroom.server.state import SHARED, run_settings_of

NOBODY_RUNS: Final = "The model is not told of tools that only OpenAI's servers run: {}."
STREAMS: Final = frozenset({"true", "True", "1"})
MOST_EVENTS: Final = 10_000_000
USUAL_ITEMS: Final = 20
MOST_ITEMS: Final = 100


def add_response_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    one = f"{base}responses/{{id:[^/]+}}"
    router.add_post(f"{base}responses{end}", create_response)
    router.add_post(f"{base}responses/input_tokens{end}", count_response)
    router.add_post(f"{base}responses/compact{end}", compact_response)
    router.add_get(f"{one}{end}", show_response)
    router.add_get(f"{one}/input_items{end}", list_input_items)
    router.add_delete(f"{one}{end}", delete_response)
    router.add_post(f"{one}/cancel{end}", cancel_response)


async def create_response(request: web.Request) -> web.StreamResponse:
    """Answer one request with the agent or raw model that it names."""
    with ExitStack() as until:
        asked = await read_asked(request, until)
        note_target(asked.target)
        settings = run_settings_of(request.app, asked.chat.caller, asked.target)
        if asked.request.background:
            return await _answer_in_background(request, settings, asked, until)
        return await _answer_waiting(request, settings, asked, until)


async def _answer_waiting(
    request: web.Request, settings: RunSettings, asked: Asked, until: ExitStack
) -> web.StreamResponse:
    """Answer a client that waits for the whole response or its events; close the stack before it has read the last."""

    async def run(sink: Sink, begun: Begun) -> Answer:
        with until:
            return await _answer(settings, asked, sink, begun)

    return await answered(request, asked.chat, asked.target.name, _encoder(settings, asked), run)


async def _answer_in_background(
    request: web.Request, settings: RunSettings, asked: Asked, until: ExitStack
) -> web.StreamResponse:
    """Begin to answer, and show the response as it is now, or its events as they come. Raises RequestError.

    What the stack closes belongs to the answer from its beginning on.
    """
    if not asked.is_kept or settings.shared.recording.conversations is None:
        raise RequestError(
            "background needs a response that is kept, and this one would not be: store is false in the request or in "
            "the settings, or the model's provider only passes requests through.",
            param="background",
        )
    encoder = _encoder(settings, asked)
    encoder.take_id(turn := new_turn())
    answering = partial(_answer, settings, asked, turn=turn)
    owner, body = keeper_of(request, asked.request.body), asked.request.body
    begun = request.app[BACKGROUND].begin(owner, encoder, answering, body, until)
    if asked.request.stream:
        return await _followed(request, asked.target.name, begun)
    return web.json_response(begun.response, dumps=to_json)


async def _followed(
    request: web.Request, name: str, response: BackgroundResponse, after: int = -1
) -> web.StreamResponse:
    """Send the frames of a response that is answered in the background, from the one after a number on."""
    encoder = PassedEncoder(b"", KeptEncoder(0).failure)
    return await EventStream(request, name).answer(encoder, partial(response.follow, after))


async def _answer(settings: RunSettings, asked: Asked, sink: Sink, begun: Begun = ignore, turn: str = "") -> Answer:
    if asked.only_compacts:
        return await compacted(settings, asked, sink)
    told = _telling_what_is_left_out(asked, sink)
    return await answer(asked.target, asked.chat, settings, told, begun, keeps=asked.request.stores, turn=turn)


def _telling_what_is_left_out(asked: Asked, sink: Sink) -> Sink:
    """Return a sink that tells, in the first answer of a conversation, which tools the model does not get."""
    left_out = asked.request.tools.left_out
    if not left_out or any(message["role"] == "assistant" for message in asked.chat.messages):
        return sink
    untold = [Notice("left out", NOBODY_RUNS.format(", ".join(left_out)))]

    async def telling(events: Sequence[AnswerEvent]) -> None:
        first = [untold.pop()] if untold else []
        await sink([*first, *events])

    return telling


async def count_response(request: web.Request) -> web.Response:
    """Count the prompt that this request would make; no model is loaded for it."""
    asked = await read_asked(request)
    return await counted(request, asked.target, asked.chat)


async def show_response(request: web.Request) -> web.StreamResponse:
    """Show a response that is kept, or that is being given; with `stream` as the events that it had."""
    response_id = request.match_info["id"]
    if (background := request.app[BACKGROUND].find(keeper_of(request), response_id)) is not None:
        return await _show_background(request, background)
    is_running = await is_being_given(request.app[SHARED], keeper_of(request), turn_of(response_id))
    kept = await find_response(request.app[SHARED], keeper_of(request), response_id)
    if kept is None and not is_running:
        raise _unknown(response_id)
    if request.query.get("stream") in STREAMS:
        encoder = KeptEncoder(whole_number(request, "starting_after", -1, MOST_EVENTS, least=0))
        return await EventStream(request, response_id).answer(encoder, partial(_retold, request, response_id))
    return web.json_response(kept.described() if kept else unkept(response_id, "in_progress"), dumps=to_json)


async def _show_background(request: web.Request, background: BackgroundResponse) -> web.StreamResponse:
    """Show a response that is or was answered in the background; with `stream` its events, also those to come."""
    if request.query.get("stream") not in STREAMS:
        return web.json_response(background.response, dumps=to_json)
    after = whole_number(request, "starting_after", -1, MOST_EVENTS, least=0)
    return await _followed(request, background.response["id"], background, after)


async def _retold(
    request: web.Request, response_id: str, sink: Callable[[Sequence[Event]], Awaitable[None]]
) -> dict[str, Any]:
    """Hand the events of a response to the sink once it has ended, and return it."""
    owner, shared = keeper_of(request), request.app[SHARED]
    await shared.running.turn_ended(owner, turn_of(response_id))
    await ended_elsewhere(shared, owner, turn_of(response_id))
    kept = await find_response(shared, owner, response_id)
    if kept is None:
        raise _unknown(response_id)
    response = kept.described()
    begun = {**response, "status": "in_progress", "output": []}
    await sink([(kind, {"response": begun}) for kind in ("response.created", "response.in_progress")])
    await sink(list(kept.events()))
    return response


async def list_input_items(request: web.Request) -> web.Response:
    """List the items to which a response is the answer, those of earlier turns too, page by page."""
    kept = await find_response(request.app[SHARED], keeper_of(request), request.match_info["id"])
    if kept is None:
        raise _unknown(request.match_info["id"])
    return json_of_page(request, await asyncio.to_thread(kept.input_items))


def json_of_page(request: web.Request, items: list[dict[str, Any]]) -> web.Response:
    """Answer with the page of these items, the oldest first, that the query asks for."""
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order has to be asc or desc, not {order[:40]!r}.", param="order")
    if order == "desc":
        items.reverse()
    if after := request.query.get("after"):
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise RequestError(f"after has to be the id of an input item, not {after[:40]!r}.", param="after")
        items = items[places[0] + 1 :]
    page = items[: whole_number(request, "limit", USUAL_ITEMS, MOST_ITEMS)]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    listed = {"object": "list", "data": page, **ends, "has_more": len(page) < len(items)}
    return web.json_response(listed, dumps=to_json)


async def delete_response(request: web.Request) -> web.Response:
    """Delete a response; with the only one of a conversation, delete the conversation."""
    shared, owner, response_id = request.app[SHARED], keeper_of(request), request.match_info["id"]
    await refuse_running(request, owner, response_id)
    if (kept := await find_response(shared, owner, response_id)) is None:
        raise _unknown(response_id)
    async with changing(shared, owner, kept.conversation.row.id) as conversation:
        kept = await find_response(shared, owner, response_id)  # as other changes have left it
        if kept is None:
            raise _unknown(response_id)
        if not kept.is_last:
            raise Conflict(
                f"Something was said after the response {kept.id!r}, which would lose its beginning. Delete the "
                f"responses behind it first, or all of it with DELETE /v1/conversations/{conversation}.",
                code="response_in_use",
            )
        if kept.is_alone:
            await shared.queue.taken_back(conversation)
            await shared.store.conversations.delete(owner, conversation)
        else:
            await shared.store.conversations.delete_turn(owner, turn_of(kept.id))
        await shared.store.check_deleted()
    request.app[BACKGROUND].forget(owner, response_id)
    return web.json_response({"id": kept.id, "object": "response", "deleted": True})


async def cancel_response(request: web.Request) -> web.Response:
    """Stop a running response and show what it has said; one that has ended is shown unchanged."""
    owner, response_id, shared = keeper_of(request), request.match_info["id"], request.app[SHARED]
    was_running = shared.running.is_running(owner, turn_of(response_id))
    await shared.running.cancel_turn(owner, turn_of(response_id))
    if (background := request.app[BACKGROUND].find(owner, response_id)) is not None:
        if not was_running:
            await request.app[BACKGROUND].stop(owner, response_id)
        await background.has_ended()
        return web.json_response(background.response, dumps=to_json)
    was_elsewhere = not was_running and await cancelled_elsewhere(shared, owner, turn_of(response_id))
    kept = await find_response(shared, owner, response_id)
    if kept is not None and was_elsewhere:
        return web.json_response({**kept.described(), "status": "cancelled"}, dumps=to_json)
    if kept is None and not was_running:
        raise _unknown(response_id)
    return web.json_response(kept.described() if kept else unkept(response_id, "cancelled"), dumps=to_json)


def _encoder(settings: RunSettings, asked: Asked) -> ResponseEncoder:
    is_kept = asked.is_kept and settings.shared.recording.conversations is not None
    agent = asked.target.agent
    sampling = agent.sampling.as_request_fields() if agent is not None else {}
    return ResponseEncoder(
        asked.chat.model,
        {**asked.request.repeated(sampling), "store": is_kept},
        settings.compaction.notices,
        asked.request.tools,
        asked.seal,
        only_compacts=asked.only_compacts,
    )


def _unknown(response_id: str) -> NotFound:
    return NotFound(
        f"You have no response {response_id[:80]!r}: it was never kept, was deleted, or is somebody else's."
    )
