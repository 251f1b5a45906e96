"""`/v1/responses`: OpenAI's newer way to ask, over the same runs as chats."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answer import AnswerEvent
from elbowroom.agents.catalog import Target
from elbowroom.agents.live_turn import LiveTurn
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.shared import Shared
from elbowroom.errors import NotFound, RequestError
from elbowroom.server.answering import answered
from elbowroom.server.body import read_json
from elbowroom.server.caller import keeper_of, with_caller
from elbowroom.server.chat import name_conversation, note_client_left, reported
from elbowroom.server.client_left import ClientLeft
from elbowroom.server.counting import counted
from elbowroom.server.encode import to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.keys import RUNNING, SHARED, catalog_of, run_settings_of
from elbowroom.server.request_log import note_answer, note_target
from elbowroom.server.responses_body import ResponsesRequest, parse_responses_request
from elbowroom.server.responses_encode import RESPONSE, ResponseEncoder, turn_of
from elbowroom.server.responses_input import THOUGHTS, answer_of_item, messages_of, references_in, resolved
from elbowroom.server.responses_kept import KeptResponse, find_response, find_responses, unkept

MOST_REFERRED: Final = 1_000
"""To the items of so many responses a request may refer: each of them is looked up by itself."""


def add_response_routes(app: web.Application, base: str, end: str) -> None:
    """Add all routes; `base` and `end` are what may stand around a route."""
    one = f"{base}responses/{{id:[^/]+}}"
    app.router.add_post(f"{base}responses{end}", create_response)
    app.router.add_post(f"{base}responses/input_tokens{end}", count_response)
    app.router.add_get(f"{one}{end}", show_response)
    app.router.add_delete(f"{one}{end}", delete_response)
    app.router.add_post(f"{one}/cancel{end}", cancel_response)


class ResponseRunning(RequestError):
    """What is asked for cannot be done while a response is being given."""

    status = 409
    code = "response_running"


class ResponseInUse(RequestError):
    """Others go on from a response: without it they would lose what was said before, and nobody would notice."""

    status = 409
    code = "response_in_use"

    def __init__(self, kept: KeptResponse) -> None:
        conversation = kept.conversation.row.id
        super().__init__(
            f"Something was said behind the response {kept.id!r}, which would lose its beginning. Delete the responses "
            f"behind it first, or all of it with DELETE /v1/conversations/{conversation}."
        )


class PreviousNotFound(NotFound):
    """There is no response to go on from."""

    code = "previous_response_not_found"
    param = "previous_response_id"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"You have no response {response_id[:80]!r} to go on from: it was not kept (store is false, in the request "
            "or in the settings), was deleted, or is somebody else's. Send the conversation in input instead."
        )


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to be answered: as a chat, and as what its response repeats of it."""

    request: ResponsesRequest
    chat: ChatRequest
    target: Target

    @property
    def keeps(self) -> bool:
        """Tell whether its answer is a turn that is to be kept."""
        return self.request.stores and not self.target.is_relay and not self.chat.caller.is_task


async def create_response(request: web.Request) -> web.StreamResponse:
    """Answer one request with the agent or raw model that it names."""
    asked = await _asked(request)
    note_target(asked.target)
    if asked.request.stream:
        return await _stream(request, asked)
    encoder, headers = _encoder(request, asked), dict[str, str]()

    async def keep(events: Sequence[AnswerEvent]) -> None:
        encoder.events(events)

    def begun(live: LiveTurn) -> None:
        encoder.began(live.id)
        name_conversation(headers, live)

    async with request.app[RUNNING].endable():
        answer = await answered(request.app, asked.target, asked.chat, keep, begun, keeps=asked.keeps)
    note_answer(answer)
    return web.json_response(encoder.response(answer), headers=headers, dumps=to_json)


async def count_response(request: web.Request) -> web.Response:
    """Count the prompt that this request would make; no model is loaded for it."""
    asked = await _asked(request)
    return await counted(request, asked.target, asked.chat)


async def show_response(request: web.Request) -> web.Response:
    """Show a response that is kept, or that is being given."""
    response_id = request.match_info["id"]
    is_running = request.app[SHARED].running.is_running(keeper_of(request), turn_of(response_id))
    kept = await find_response(request.app[SHARED], keeper_of(request), response_id)
    if kept is None and not is_running:
        raise _unknown(response_id)
    return web.json_response(kept.described() if kept else unkept(response_id, "in_progress"), dumps=to_json)


async def delete_response(request: web.Request) -> web.Response:
    """Delete what a response has said; with the last one of a conversation all of that goes."""
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
    """Stop a response that is being given, and show it as it is then; one that has ended stays as it was."""
    owner, response_id, shared = keeper_of(request), request.match_info["id"], request.app[SHARED]
    was_running = shared.running.is_running(owner, turn_of(response_id))
    await shared.running.cancel_turn(owner, turn_of(response_id))
    kept = await find_response(shared, owner, response_id)
    if kept is None and not was_running:
        raise _unknown(response_id)
    return web.json_response(kept.described() if kept else unkept(response_id, "cancelled"), dumps=to_json)


async def _stream(request: web.Request, asked: Asked) -> web.StreamResponse:
    encoder = _encoder(request, asked)
    async with EventStream(request) as stream:

        async def sink(events: Sequence[AnswerEvent]) -> None:
            if frames := encoder.events(events):
                await stream.send(frames)

        def begun(live: LiveTurn) -> None:
            encoder.began(live.id)
            name_conversation(stream.response.headers, live)

        try:
            try:
                async with request.app[RUNNING].endable():
                    answer = await answered(request.app, asked.target, asked.chat, sink, begun, keeps=asked.keeps)
            except ClientLeft:
                raise
            except Exception as error:
                if not stream.has_begun:
                    raise
                last = encoder.failure(reported(error, asked.target))
            else:
                note_answer(answer)
                last = encoder.end(answer)
            await stream.send(last)
        except ClientLeft:
            note_client_left(asked.target)
    return stream.response


def _encoder(request: web.Request, asked: Asked) -> ResponseEncoder:
    is_kept = asked.keeps and request.app[SHARED].recording.conversations is not None
    notices = run_settings_of(request.app).compaction.notices
    return ResponseEncoder(asked.chat.model, {**asked.request.echo, "store": is_kept}, notices)


async def _asked(request: web.Request) -> Asked:
    """Read a request: with the history of the response before, and the items that it refers to."""
    asked = parse_responses_request(await read_json(request))
    owner = keeper_of(request, asked.body)
    before = await _before(request, owner, asked.previous) if asked.previous is not None else None
    known = await _referred(request.app[SHARED], owner, references_in(asked.input))
    new = messages_of(resolved(asked.input, known))
    if not new:
        raise RequestError("input has to hold at least one message, call or result.", param="input")
    target = await catalog_of(request.app).resolve(asked.model)
    messages = [*(before.history() if before is not None else ()), *new]
    if not target.provider.manages_context:  # which may be one that refuses what it does not know
        messages = [{name: value for name, value in one.items() if name != THOUGHTS} for one in messages]
    chat = asked.chat(messages)
    caller = with_caller(request, replace(chat, body=asked.body)).caller
    if before is not None:
        caller = replace(caller, chat_id=before.name)
    if target.is_relay:  # the upstream's stream is read whatever the client wants
        chat = replace(chat, body={**chat.body, "stream": True, "stream_options": {"include_usage": True}})
    return Asked(asked, replace(chat, caller=caller), target)


async def _before(request: web.Request, owner: str, response_id: str) -> KeptResponse:
    _refuse_running(request, owner, response_id)
    found = await find_response(request.app[SHARED], owner, response_id)
    if found is None:
        raise PreviousNotFound(response_id)
    return found


async def _referred(shared: Shared, owner: str, references: Sequence[str]) -> dict[str, Any]:
    """Return the items of kept responses that are referred to, by their ids."""
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
