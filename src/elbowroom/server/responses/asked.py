"""Reads a request to answer: what it says, and the history from which it goes on."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.answering import is_turn
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import ChatRequest, CompactionRequest
from elbowroom.agents.turn import Shared
from elbowroom.context.compaction import Seal
from elbowroom.context.transcript import Message, as_dicts, calls_of
from elbowroom.errors import Conflict, NotFound, RequestError
from elbowroom.server.chat import seal_of, unsealed
from elbowroom.server.conversations import hold
from elbowroom.server.dialect import as_chat
from elbowroom.server.request import at_leisure, conversation_name, keeper_of, read_request
from elbowroom.server.responses.body import ResponsesRequest, parse_responses_request
from elbowroom.server.responses.encode import RESPONSE, turn_of
from elbowroom.server.responses.input import (
    answer_of_item,
    beside_compaction,
    compactions_in,
    messages_of,
    references_in,
    resolved,
    without_trigger,
)
from elbowroom.server.responses.kept import (
    KeptConversation,
    KeptResponse,
    find_response,
    find_responses,
    is_being_given,
    read_conversation,
)
from elbowroom.server.state import CATALOG, SHARED

MOST_REFERRED: Final = 1_000
"""How many responses a request's references may belong to: each is looked up by itself."""
SEALED: Final = "encrypted_content"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to answer: as it was parsed, as a chat, and with the target that it names.

    With a `seal` its client gets compactions as items; where it `only_compacts` it gets one and no answer.
    """

    request: ResponsesRequest
    chat: ChatRequest
    target: Target
    seal: Seal | None = None
    only_compacts: bool = False

    @property
    def is_kept(self) -> bool:
        """Tell whether its answer is a turn that is to be kept."""
        is_turn_of_chat = is_turn(self.target, self.chat) and not self.only_compacts
        return self.request.stores and is_turn_of_chat and not self.chat.caller.is_temporary


async def read_asked(request: web.Request, until: ExitStack | None = None, *, only_compacts: bool = False) -> Asked:
    """Read a request, with the history of the previous response and the items that it refers to.

    The conversation that it names is kept for its answer `until` that stack is closed. It `only_compacts` by its route,
    or where its input ends with the order to.
    """
    asked = await read_request(request, partial(parse_responses_request, needs_input=not only_compacts))
    owner = keeper_of(request, asked.body)
    if asked.conversation and until is not None:
        await hold(request.app[SHARED], owner, conversation_name(asked.conversation), until)
    before = await _before(request, owner, asked)
    given, is_ordered = without_trigger(asked.input)
    references = await at_leisure(request, lambda: references_in(given))
    known = await _referred(request.app[SHARED], owner, references)
    target = await request.app[CATALOG].get().resolve(asked.model)
    seal_for = partial(seal_of, request, target, asked.body)
    items = await at_leisure(request, lambda: resolved(given, known))
    said = await asyncio.to_thread(before.history) if before is not None else ()
    messages, is_new = await read_messages(request, items, said, seal_for)
    only_compacts = only_compacts or is_ordered
    if not messages or not (is_new or only_compacts):
        raise RequestError("input has to hold at least one message, call or result.", param="input")
    if only_compacts:
        asked = replace(asked, compaction=asked.compaction or CompactionRequest())
    parsed = partial(asked.chat, messages)  # what was said before may be long where the body is short
    chat = await (at_leisure(request, parsed) if before is None else asyncio.to_thread(parsed))
    chat = await as_chat(request, chat, target, asked.body)
    if before is not None:
        row = before.conversation.row
        chat = replace(chat, caller=replace(chat.caller, chat_id=row.name or row.id))
    seal = await seal_for() if asked.compaction is not None else None
    return Asked(asked, chat, target, seal, only_compacts)


async def read_messages(
    request: web.Request, items: Any, before: Sequence[Message], seal_for: Callable[[], Awaitable[Seal]]
) -> tuple[list[dict[str, Any]], bool]:
    """Return the messages of a request after those `before`, and whether it has brought any.

    A compaction among its items, which is opened by the seal, stands for all that comes before it.
    """
    places = compactions_in(items)
    if not places:
        new = await at_leisure(request, lambda: messages_of(items))
        if before:
            _check_results(items, new, before)
        return [*as_dicts(before), *new], bool(new)
    seal = await seal_for()
    for place in places[:-1]:
        seal.opened(items[place].get(SEALED), f"input[{place}].{SEALED}")
    last = places[-1]
    compacted = await unsealed(request.app[SHARED], seal, items[last].get(SEALED), f"input[{last}].{SEALED}")
    earlier = [*before, *await at_leisure(request, lambda: messages_of(items[:last]))]
    later = await at_leisure(request, lambda: messages_of(items[last + 1 :], last + 1))
    return [*as_dicts([*beside_compaction(earlier, compacted), *compacted]), *later], True


def _check_results(items: Any, new: Sequence[Message], before: Sequence[Message]) -> None:
    """Raise RequestError where a new result is of no call that is known, and would be taken for another call's.

    A client that sends the history itself may have shortened it: its results are told as a text. Old clients name the
    item of a shell's call instead of the call.
    """
    calls = {call.get("id") for message in (*before, *new) for call in calls_of(message)}
    calls |= {item.get("id") for item in items if "call_id" not in item} if isinstance(items, list) else set()
    named = (message.get("tool_call_id") for message in new if message.get("role") == "tool")
    if (unknown := next((call_id for call_id in named if call_id not in calls), None)) is not None:
        raise RequestError(
            f"No tool call found for function call output with call_id {str(unknown)[:80]!r}. Give each output the "
            "call_id of its call, as the response before or the conversation has it.",
            param="input",
        )


async def _before(request: web.Request, owner: str, asked: ResponsesRequest) -> KeptResponse | KeptConversation | None:
    """Return the response or the conversation from which a request goes on."""
    if asked.conversation:
        return await kept_conversation(request.app[SHARED], owner, asked.conversation)
    if (response_id := asked.previous) is None:
        return None
    await refuse_running(request, owner, response_id)
    found = await find_response(request.app[SHARED], owner, response_id)
    if found is None:
        raise NotFound(
            f"You have no response {response_id[:80]!r} to go on from: it was not kept (store is false, in the request "
            "or in the settings), was deleted, or is somebody else's. Send the conversation in input instead.",
            code="previous_response_not_found",
            param="previous_response_id",
        )
    return found


async def kept_conversation(shared: Shared, owner: str, named: str) -> KeptConversation:
    """Return a conversation by its id. Raises NotFound and StoreOpening."""
    found = await read_conversation(shared, owner, conversation_name(named))
    if found is None:
        raise NotFound(
            f"You have no conversation {named[:80]!r}: it was never kept, was deleted, or is somebody else's. Make one "
            "with POST /v1/conversations.",
            code="conversation_not_found",
            param="conversation",
        )
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


async def refuse_running(request: web.Request, owner: str, response_id: str) -> None:
    """Raise Conflict while a response is being given."""
    if await is_being_given(request.app[SHARED], owner, turn_of(response_id)):
        raise Conflict(
            f"The response {response_id!r} is being given. Wait for its end, or stop it with POST "
            f"/v1/responses/{response_id}/cancel, and ask again.",
            code="response_running",
        )
