"""`/v1/responses`: OpenAI's newer API over the same answers as chats; kept responses are read from their turns."""

import asyncio
import time
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answer import Answer, AnswerEvent, Notice, Sink, ToolCall, assistant_message
from elbowroom.agents.answering import answer, is_turn
from elbowroom.agents.catalog import Target
from elbowroom.agents.conversations import TurnRecorder
from elbowroom.agents.request import ChatRequest
from elbowroom.agents.turn import RunSettings, Shared
from elbowroom.context.branch import ConversationTree, Node
from elbowroom.context.conversation import Conversation, KeptMessage
from elbowroom.context.transcript import Message, calls_of, text_of
from elbowroom.errors import NotFound, RequestError
from elbowroom.providers.base import ReasoningDelta, TextDelta
from elbowroom.server.chat import counted, name_conversation
from elbowroom.server.encode import THOUGHTS, to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.middleware import note_target
from elbowroom.server.request import keeper_of, read_json, with_caller
from elbowroom.server.responses.body import NOTHING_REPEATED, ResponsesRequest, parse_responses_request
from elbowroom.server.responses.encode import RESPONSE, OutputItems, ResponseEncoder, described, response_id_of, turn_of
from elbowroom.server.responses.input import answer_of_item, messages_of, references_in, resolved
from elbowroom.server.state import SHARED, catalog_of, run_settings_of

NOBODY_RUNS: Final = "The model is not told of tools that only OpenAI's servers run: {}."
MOST_REFERRED: Final = 1_000
"""How many responses a request's references may belong to: each is looked up by itself."""


@dataclass(frozen=True, slots=True)
class KeptResponse:
    """A response that is kept as a turn of its conversation, `node` of the `tree`."""

    conversation: Conversation
    tree: ConversationTree
    node: Node
    is_running: bool

    @property
    def id(self) -> str:
        """Return the id of the response."""
        return response_id_of(self.node.last.turn)

    @property
    def name(self) -> str:
        """Return the name by which the next request finds the conversation."""
        row = self.conversation.row
        return row.name or row.id

    @property
    def is_last(self) -> bool:
        """Tell whether nothing was said after it."""
        return not self.tree.goes_on_after(self.node)

    @property
    def is_alone(self) -> bool:
        """Tell whether its conversation has no other answer."""
        return {kept.turn for kept in self.conversation.messages} <= {"", self.node.last.turn}

    def history(self) -> list[Message]:
        """Return the messages up to it, as the client has them, without the `instructions` that were sent."""
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        messages: list[Message] = []
        for turn, said in groupby(branch, key=lambda kept: kept.turn):
            sent = list(said)
            messages += [_answer(sent)] if turn else [kept.message for kept in sent if not _instructs(kept)]
        return messages

    def items(self) -> list[dict[str, Any]]:
        """Return its output items."""
        items = OutputItems(self.id)
        for event in _said(self.node.messages):
            for _ in items.take(event):
                pass
        for _ in items.close():
            pass
        return items.done

    def described(self) -> dict[str, Any]:
        """Return the response without the fields that only its request had."""
        first = self.node.messages[0]
        status = "in_progress" if self.is_running else "cancelled" if self.node.is_unfinished else "completed"
        known = described(self.id, first.agent, int(first.at), status, self.items())
        return {**known, **NOTHING_REPEATED, "previous_response_id": self._previous(), "store": True}

    def _previous(self) -> str | None:
        branch = self.tree.branch_to(self.node, with_unfinished=False)
        turns = [kept.turn for kept in branch if kept.turn and kept.turn != self.node.last.turn]
        return response_id_of(turns[-1]) if turns else None


async def find_response(shared: Shared, owner: str, response_id: str) -> KeptResponse | None:
    """Return the owner's response with this id; None where there is none, or it has said nothing yet."""
    found = await find_responses(shared, owner, [response_id])
    return found[0] if found else None


async def find_responses(shared: Shared, owner: str, response_ids: Iterable[str]) -> list[KeptResponse]:
    """Return the owner's responses with these ids as far as they have said something; read a conversation once."""
    kept, found = shared.store.conversations, list[KeptResponse]()
    read: dict[str, tuple[Conversation, ConversationTree]] = {}
    for turn in map(turn_of, response_ids):
        is_running = shared.running.is_running(owner, turn)
        holder = await kept.holder(owner, turn)
        if holder is not None and holder not in read and (conversation := await kept.read(owner, holder)) is not None:
            read[holder] = conversation, await asyncio.to_thread(ConversationTree.of, conversation.messages)
        if holder is not None and holder in read:
            conversation, tree = read[holder]
            nodes = (node for node in tree.nodes if node.last.turn == turn)
            found += [KeptResponse(conversation, tree, node, is_running) for node in nodes]
    return found


def unkept(response_id: str, status: str) -> dict[str, Any]:
    """Return a response that is not kept, with its status."""
    return {**described(response_id, "", int(time.time()), status, ()), **NOTHING_REPEATED, "store": False}


def _instructs(kept: KeptMessage) -> bool:
    """Tell whether this was sent as `instructions`; a system message of an `input` is a list of parts."""
    return kept.message.get("role") == "system" and isinstance(kept.message.get("content"), str)


def _answer(said: Sequence[KeptMessage]) -> Message:
    """Return a turn as the client's one message of it, with its thoughts where its calls wait for results."""
    texts = [event.text for event in _said(said) if isinstance(event, TextDelta)]
    message = assistant_message("".join(texts), _client_calls(said))
    thoughts = [kept.reasoning for kept in said if kept.reasoning]
    return {**message, THOUGHTS: thoughts[-1]} if thoughts and "tool_calls" in message else message


def _said(said: Sequence[KeptMessage]) -> Iterator[AnswerEvent]:
    """Yield what a client was shown of a turn, whose replies are kept as the model gave them."""
    shown = Answer()
    for kept in said:
        if kept.message.get("role") == "assistant":
            shown.begin_step()
            if kept.reasoning:
                yield shown.take(ReasoningDelta(kept.reasoning))
            if text := text_of(kept.message):
                yield shown.take(TextDelta(text))
    yield from _client_calls(said)


def _client_calls(said: Sequence[KeptMessage]) -> list[ToolCall]:
    """Return the calls that the client has to answer: those without a result in a complete turn."""
    if any(kept.status != "complete" for kept in said):
        return []
    answered = {kept.message.get("tool_call_id") for kept in said if kept.message.get("role") == "tool"}
    calls = [call for kept in said for call in calls_of(kept.message) if call.get("id") not in answered]
    return [ToolCall(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in calls]


def add_response_routes(app: web.Application, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    one = f"{base}responses/{{id:[^/]+}}"
    app.router.add_post(f"{base}responses{end}", create_response)
    app.router.add_post(f"{base}responses/input_tokens{end}", count_response)
    app.router.add_get(f"{one}{end}", show_response)
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
        return self.request.stores and is_turn(self.target, self.chat)


async def create_response(request: web.Request) -> web.StreamResponse:
    """Answer one request with the agent or raw model that it names."""
    asked = await _asked(request)
    note_target(asked.target)
    settings = run_settings_of(request.app)
    encoder = _encoder(settings, asked)
    if asked.request.stream:
        stream = EventStream(request, asked.target.name)
        return await stream.answer(encoder, partial(_answered, settings, asked, encoder, stream.response.headers))
    headers: dict[str, str] = {}

    async def keep(events: Sequence[AnswerEvent]) -> None:
        encoder.events(events)

    whole = await _answered(settings, asked, encoder, headers, keep)
    return web.json_response(encoder.response(whole), headers=headers, dumps=to_json)


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


async def show_response(request: web.Request) -> web.Response:
    """Show a response that is kept, or that is being given."""
    response_id = request.match_info["id"]
    is_running = request.app[SHARED].running.is_running(keeper_of(request), turn_of(response_id))
    kept = await find_response(request.app[SHARED], keeper_of(request), response_id)
    if kept is None and not is_running:
        raise _unknown(response_id)
    return web.json_response(kept.described() if kept else unkept(response_id, "in_progress"), dumps=to_json)


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
