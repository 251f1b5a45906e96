"""`/v1/responses`: OpenAI's newer API over the same answers as chats; kept responses are read from their turns."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink
from elbowroom.agents.answering import answer, is_turn
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn import RunSettings, Shared
from elbowroom.errors import NotFound, RequestError
from elbowroom.server.chat import counted, name_conversation
from elbowroom.server.encode import THOUGHTS, to_json
from elbowroom.server.event_stream import EventStream, json_answer
from elbowroom.server.middleware import note_target
from elbowroom.server.request import at_leisure, keeper_of, read_request, with_caller
from elbowroom.server.responses.body import ResponsesRequest, parse_responses_request
from elbowroom.server.responses.encode import RESPONSE, Event, KeptEncoder, ResponseEncoder, turn_of
from elbowroom.server.responses.input import answer_of_item, messages_of, references_in, resolved
from elbowroom.server.responses.kept import KeptResponse, find_response, find_responses, unkept
from elbowroom.server.state import SHARED, catalog_of, run_settings_of

NOBODY_RUNS: Final = "The model is not told of tools that only OpenAI's servers run: {}."
MOST_REFERRED: Final = 1_000
"""How many responses a request's references may belong to: each is looked up by itself."""
STREAMS: Final = frozenset({"true", "True", "1"})
MOST_EVENTS: Final = 10_000_000
USUAL_ITEMS: Final = 20
MOST_ITEMS: Final = 100


def add_response_routes(app: web.Application, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    one = f"{base}responses/{{id:[^/]+}}"
    app.router.add_post(f"{base}responses{end}", create_response)
    app.router.add_post(f"{base}responses/input_tokens{end}", count_response)
    app.router.add_get(f"{one}{end}", show_response)
    app.router.add_get(f"{one}/input_items{end}", list_input_items)
    app.router.add_delete(f"{one}{end}", delete_response)
    app.router.add_post(f"{one}/cancel{end}", cancel_response)


class ResponseRunning(RequestError):
    """The request cannot be served while the response is still being given."""

    status = 409
    code = "response_running"


class ResponseInUse(RequestError):
    """A response cannot be deleted while later ones go on from it: they would silently lose their beginning."""

    status = 409
    code = "response_in_use"

    def __init__(self, kept: KeptResponse) -> None:
        conversation = kept.conversation.row.id
        super().__init__(
            f"Something was said behind the response {kept.id!r}, which would lose its beginning. Delete the responses "
            f"behind it first, or all of it with DELETE /v1/conversations/{conversation}."
        )


class PreviousNotFound(NotFound):
    """The response to go on from does not exist."""

    code = "previous_response_not_found"
    param = "previous_response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"You have no response {response_id[:80]!r} to go on from: it was not kept (store is false, in the request "
            "or in the settings), was deleted, or is somebody else's. Send the conversation in input instead."
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to answer: as it was parsed, as a chat, and with the target that it names."""

    request: ResponsesRequest
    chat: ChatRequest
    target: Target

    @property
    def is_kept(self) -> bool:
        """Tell whether its answer is a turn that is to be kept."""
        return self.request.stores and is_turn(self.target, self.chat) and not self.chat.caller.is_temporary


async def create_response(request: web.Request) -> web.StreamResponse:
    """Answer one request with the agent or raw model that it names."""
    asked = await _asked(request)
    note_target(asked.target)
    settings = run_settings_of(request.app, asked.chat.caller)
    encoder = _encoder(settings, asked)
    if asked.request.stream:
        stream = EventStream(request, asked.target.name)
        return await stream.answer(encoder, partial(_answered, settings, asked, encoder, stream.response.headers))
    headers: dict[str, str] = {}

    async def keep(events: Sequence[AnswerEvent]) -> None:
        encoder.events(events)

    whole = await _answered(settings, asked, encoder, headers, keep)
    return await json_answer(encoder.response(whole), headers)


async def _answered(
    settings: RunSettings, asked: Asked, encoder: ResponseEncoder, headers: MutableMapping[str, str], sink: Sink
) -> Answer:
    def begun(turn: TurnRecorder) -> None:
        encoder.began(turn.id)
        name_conversation(headers, turn)

    told = _telling_what_is_left_out(asked, sink)
    return await answer(asked.target, asked.chat, settings, told, begun, keeps=asked.request.stores)


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
    asked = await _asked(request)
    return await counted(request, asked.target, asked.chat)


async def show_response(request: web.Request) -> web.StreamResponse:
    """Show a response that is kept, or that is being given; with `stream` as the events that it had."""
    response_id = request.match_info["id"]
    is_running = request.app[SHARED].running.is_running(keeper_of(request), turn_of(response_id))
    kept = await find_response(request.app[SHARED], keeper_of(request), response_id)
    if kept is None and not is_running:
        raise _unknown(response_id)
    if request.query.get("stream") in STREAMS:
        encoder = KeptEncoder(_whole_number(request, "starting_after", -1, 0, MOST_EVENTS))
        return await EventStream(request, response_id).answer(encoder, partial(_retold, request, response_id))
    return web.json_response(kept.described() if kept else unkept(response_id, "in_progress"), dumps=to_json)


async def _retold(
    request: web.Request, response_id: str, sink: Callable[[Sequence[Event]], Awaitable[None]]
) -> dict[str, Any]:
    """Hand the events of a response to the sink once it has ended, and return it."""
    owner, shared = keeper_of(request), request.app[SHARED]
    await shared.running.turn_ended(owner, turn_of(response_id))
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
    items, order = kept.input_items(), request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise RequestError(f"order has to be asc or desc, not {order[:40]!r}.", param="order")
    if order == "desc":
        items.reverse()
    if after := request.query.get("after"):
        places = [place for place, item in enumerate(items) if item["id"] == after]
        if not places:
            raise RequestError(f"after has to be the id of an input item, not {after[:40]!r}.", param="after")
        items = items[places[0] + 1 :]
    page = items[: _whole_number(request, "limit", USUAL_ITEMS, 1, MOST_ITEMS)]
    ends = {"first_id": page[0]["id"], "last_id": page[-1]["id"]} if page else {"first_id": None, "last_id": None}
    listed = {"object": "list", "data": page, **ends, "has_more": len(page) < len(items)}
    return web.json_response(listed, dumps=to_json)


def _whole_number(request: web.Request, name: str, usual: int, least: int, most: int) -> int:
    given = request.query.get(name)
    if given is None:
        return usual
    if not (given.isascii() and given.isdigit() and len(given) <= len(str(most)) and least <= int(given) <= most):
        raise RequestError(f"{name} has to be a whole number from {least} to {most}, not {given[:40]!r}.", param=name)
    return int(given)


async def delete_response(request: web.Request) -> web.Response:
    """Delete a response; with the only one of a conversation, delete the conversation."""
    owner, response_id = keeper_of(request), request.match_info["id"]
    _refuse_running(request, owner, response_id)
    kept = await find_response(request.app[SHARED], owner, response_id)
    if kept is None:
        raise _unknown(response_id)
    if not kept.is_last:
        raise ResponseInUse(kept)
    shared, conversation = request.app[SHARED], kept.conversation.row.id
    await shared.queue.load()
    if kept.is_alone and not shared.running.of(owner, conversation):
        shared.queue.clear(conversation)
        await shared.store.conversations.delete(owner, conversation)
    else:
        await shared.store.conversations.delete_turn(owner, turn_of(kept.id))
    return web.json_response({"id": kept.id, "object": "response", "deleted": True})


async def cancel_response(request: web.Request) -> web.Response:
    """Stop a running response and show what it has said; one that has ended is shown unchanged."""
    owner, response_id, shared = keeper_of(request), request.match_info["id"], request.app[SHARED]
    was_running = shared.running.is_running(owner, turn_of(response_id))
    await shared.running.cancel_turn(owner, turn_of(response_id))
    kept = await find_response(shared, owner, response_id)
    if kept is None and not was_running:
        raise _unknown(response_id)
    return web.json_response(kept.described() if kept else unkept(response_id, "cancelled"), dumps=to_json)


def _encoder(settings: RunSettings, asked: Asked) -> ResponseEncoder:
    is_kept = asked.is_kept and settings.shared.recording.conversations is not None
    return ResponseEncoder(
        asked.chat.model, {**asked.request.echo, "store": is_kept}, settings.compaction.notices, asked.request.tools
    )


async def _asked(request: web.Request) -> Asked:
    """Read a request, with the history of the previous response and the items that it refers to."""
    asked = await read_request(request, parse_responses_request)
    owner = keeper_of(request, asked.body)
    before = await _before(request, owner, asked.previous) if asked.previous is not None else None
    references = await at_leisure(request, lambda: references_in(asked.input))
    known = await _referred(request.app[SHARED], owner, references)
    new = await at_leisure(request, lambda: messages_of(resolved(asked.input, known)))
    if not new:
        raise RequestError("input has to hold at least one message, call or result.", param="input")
    target = await catalog_of(request.app).resolve(asked.model)
    messages = [*(before.history() if before is not None else ()), *new]
    if not target.provider.manages_context:  # which may be one that refuses what it does not know
        messages = [{name: value for name, value in one.items() if name != THOUGHTS} for one in messages]
    chat = await at_leisure(request, lambda: asked.chat(messages))
    caller = with_caller(request, replace(chat, body=asked.body)).caller
    if before is not None:
        caller = replace(caller, chat_id=before.name)
    # A relayed body is sent as it is, and the upstream's stream is read whatever the client wants.
    body = {**chat.body, "stream": True, "stream_options": {"include_usage": True}}
    return Asked(asked, replace(chat, body=body, caller=caller), target)


async def _before(request: web.Request, owner: str, response_id: str) -> KeptResponse:
    _refuse_running(request, owner, response_id)
    found = await find_response(request.app[SHARED], owner, response_id)
    if found is None:
        raise PreviousNotFound(response_id)
    return found


async def _referred(shared: Shared, owner: str, references: Sequence[str]) -> dict[str, Any]:
    """Return the items of kept responses that these references mean, by id."""
    responses = {RESPONSE + key for item_id in references if (key := answer_of_item(item_id))}
    if len(responses) > MOST_REFERRED:
        raise RequestError(
            f"input refers to items of {len(responses):,} responses, and {MOST_REFERRED:,} are looked up at most. Name "
            "the response before with previous_response_id.",
            param="input",
        )
    found = await find_responses(shared, owner, sorted(responses))
    return {item["id"]: item for kept in found for item in kept.items()}


def _refuse_running(request: web.Request, owner: str, response_id: str) -> None:
    if request.app[SHARED].running.is_running(owner, turn_of(response_id)):
        raise ResponseRunning(
            f"The response {response_id!r} is being given. Wait for its end, or stop it with POST "
            f"/v1/responses/{response_id}/cancel, and ask again."
        )


def _unknown(response_id: str) -> NotFound:
    return NotFound(
        f"You have no response {response_id[:80]!r}: it was never kept, was deleted, or is somebody else's."
    )
