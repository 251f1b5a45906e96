"""`/v1/conversations` as OpenAI's clients use it: made, described and filled with items, beside what the page shows."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from aiohttp import hdrs, web

from elbowroom.agents.conversations import new_id
from elbowroom.context.compaction import Seal
from elbowroom.context.conversation import ConversationBegun
from elbowroom.context.transcript import Message
from elbowroom.errors import Conflict, NotFound, RequestError
from elbowroom.server.conversations import changing, describe_for_openai, owner_asking
from elbowroom.server.encode import to_json
from elbowroom.server.request import conversation_name, read_json
from elbowroom.server.responses.asked import kept_conversation, read_messages
from elbowroom.server.responses.kept import KeptConversation
from elbowroom.server.responses.routes import json_of_page
from elbowroom.server.state import SHARED

MOST_ITEMS: Final = 20
"""How many items can be added at a time."""
MOST_PAIRS, LONGEST_KEY, LONGEST_VALUE = 16, 64, 512
METADATA: Final = (
    f"metadata has to be an object with at most {MOST_PAIRS} texts of at most {LONGEST_VALUE} characters, whose names "
    f"have at most {LONGEST_KEY}."
)
IN_USE: Final = "item_in_use"
NOTHING_KEPT: Final = (
    "Conversations are not kept here: set store.conversations = true in the settings, or send the whole history in "
    "input each time."
)
REASONING: Final = "reasoning"


def add_item_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    one = f"{base}conversations/{{id:[^/]+}}"
    router.add_post(f"{base}conversations{end}", create_conversation)
    router.add_post(f"{one}{end}", describe_conversation)
    router.add_get(f"{one}/items{end}", list_items)
    router.add_post(f"{one}/items{end}", add_items)
    router.add_get(f"{one}/items/{{item:[^/]+}}{end}", show_item)
    router.add_delete(f"{one}/items/{{item:[^/]+}}{end}", delete_item)


async def create_conversation(request: web.Request) -> web.Response:
    """Make a conversation with metadata and its first items, both of which may be missing."""
    body = await _body(request)
    owner, shared = owner_asking(request), request.app[SHARED]
    metadata, items = _metadata(body), _items(body, needed=False)
    if shared.recording.conversations is None:
        raise RequestError(NOTHING_KEPT)
    new = await _messages(request, items, owner)
    conversation = new_id(owner, "")
    shared.store.conversations.note([ConversationBegun(conversation, owner, "", "", time.time())])
    if metadata:
        await shared.store.conversations.describe(conversation, metadata)
    if new:
        await shared.recording.add(owner, conversation, "", new)
    made = await kept_conversation(shared, owner, conversation)
    return _answer(describe_for_openai(made.conversation.row))


async def describe_conversation(request: web.Request) -> web.Response:
    """Put other metadata in the place of a conversation's."""
    metadata = _metadata(await _body(request))
    row = (await _asked(request)).conversation.row
    await request.app[SHARED].store.conversations.describe(row.id, metadata)
    return _answer(describe_for_openai(replace(row, metadata=metadata)))


async def list_items(request: web.Request) -> web.Response:
    """List what was said in the branch that was used last, page by page."""
    said = await asyncio.to_thread((await _asked(request)).items)
    return json_of_page(request, [item for _, items in said for item in items])


async def add_items(request: web.Request) -> web.Response:
    """Add items to the end of the branch that was used last; answer with them as they are kept."""
    items = _items(await _body(request), needed=True)
    owner, shared = owner_asking(request), request.app[SHARED]
    if shared.recording.conversations is None:
        raise RequestError(NOTHING_KEPT)
    new = await _messages(request, items, owner)
    if not new:
        raise RequestError("items has to hold at least one message, call or result.", param="items")
    async with changing(request.app[SHARED], owner, conversation_name(request.match_info["id"])):
        before = await _asked(request)
        said = [*await asyncio.to_thread(before.history), *new]
        await shared.recording.add(owner, before.conversation.row.id, before.agent, said)
        after = await asyncio.to_thread((await _asked(request)).items)
    data = [item for _, said in after[-len(new) :] for item in said]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]}
    return _answer({"object": "list", "data": data, **ends, "has_more": False})


async def show_item(request: web.Request) -> web.Response:
    """Show one item."""
    _, items = await _found(request, await _asked(request))
    return _answer(next(item for item in items if item["id"] == request.match_info["item"]))


async def delete_item(request: web.Request) -> web.Response:
    """Delete one item; answer with its conversation. Raises Conflict for one that other items stand on."""
    owner = owner_asking(request)
    async with changing(request.app[SHARED], owner, conversation_name(request.match_info["id"])):
        kept = await _asked(request)
        await _delete(request, owner, kept)
    return _answer(describe_for_openai(kept.conversation.row))


async def _delete(request: web.Request, owner: str, kept: KeptConversation) -> None:
    said, items = await _found(request, kept)
    store = request.app[SHARED].store.conversations
    if len([item for item in items if item["type"] != REASONING]) > 1:
        raise Conflict(
            "This item is one message with the items beside it, which would be deleted as well.", code=IN_USE
        )
    if not said[-1].turn:
        for copy in kept.copies_of(said[-1]):
            await store.unhear(kept.conversation.row.id, copy)
    elif kept.is_last(said):
        await store.delete_turn(owner, said[-1].turn)
    else:
        raise Conflict(
            "Something was said after this answer, which would lose what it follows. Delete that first.", code=IN_USE
        )


async def _asked(request: web.Request) -> KeptConversation:
    return await kept_conversation(request.app[SHARED], owner_asking(request), request.match_info["id"])


async def _found(request: web.Request, kept: KeptConversation) -> tuple[Sequence[Any], list[dict[str, Any]]]:
    item_id = request.match_info["item"]
    if (found := await asyncio.to_thread(kept.item, item_id)) is None:
        raise NotFound(f"The conversation {kept.conversation.row.id!r} has no item {item_id[:80]!r}.")
    return found


async def _messages(request: web.Request, items: list[Any], owner: str) -> list[Message]:
    """Return the messages of items that no model is named for. Raises RequestError."""

    async def seal_for_any_model() -> Seal:
        return Seal(await request.app[SHARED].store.secret(), owner, "")

    messages, _ = await read_messages(request, items, (), seal_for_any_model)
    return list(messages)


async def _body(request: web.Request) -> Mapping[str, Any]:
    body = await read_json(request) if request.can_read_body else {}
    if not isinstance(body, dict):
        raise RequestError('The body has to be a JSON object, such as {"metadata": {}}.')
    return body


def _items(body: Mapping[str, Any], *, needed: bool) -> list[Any]:
    items = [] if body.get("items") is None else body["items"]
    least = int(needed)
    if not isinstance(items, list) or not least <= len(items) <= MOST_ITEMS:
        raise RequestError(f"items has to be a list of {least} to {MOST_ITEMS} items.", param="items")
    return items


def _metadata(body: Mapping[str, Any]) -> dict[str, str]:
    metadata = {} if body.get("metadata") is None else body["metadata"]
    if not isinstance(metadata, dict) or len(metadata) > MOST_PAIRS or not all(map(_fits, metadata.items())):
        raise RequestError(METADATA, param="metadata")
    return metadata


def _fits(pair: tuple[Any, Any]) -> bool:
    key, value = pair
    return isinstance(value, str) and len(key) <= LONGEST_KEY and len(value) <= LONGEST_VALUE


def _answer(value: dict[str, Any]) -> web.Response:
    return web.json_response(value, dumps=to_json, headers={hdrs.CACHE_CONTROL: "no-store"})
