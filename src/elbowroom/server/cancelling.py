"""`POST /v1/conversations/{id}/cancel`: stop what is running for a conversation."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from elbowroom.agents.shared import Shared
from elbowroom.errors import NotFound, RequestError
from elbowroom.server.body import read_json
from elbowroom.server.caller import CONVERSATION, conversation_name, keeper_of
from elbowroom.server.keys import SHARED


@dataclass(frozen=True, slots=True)
class Wish:
    """How a conversation is to be stopped: whether what waits in its queue is dropped, and whether it may explain."""

    clears_queue: bool = False
    last_words: bool = False

    @classmethod
    def of(cls, body: Any) -> "Wish":
        """Return what a body asks for. Raises RequestError that names the field and what belongs there."""
        if not isinstance(body, dict):
            raise RequestError('The body has to be a JSON object, such as {"queue": "keep", "grace": false}.')
        queue, grace = body.get("queue", "keep"), body.get("grace", False)
        if queue not in ("keep", "clear"):
            raise RequestError('queue has to be "keep" or "clear".', param="queue")
        if not isinstance(grace, bool):
            raise RequestError("grace has to be true or false.", param="grace")
        return cls(queue == "clear", grace)


def add_cancel_route(app: web.Application, base: str, end: str) -> None:
    """Add the route between what may stand before and behind it."""
    app.router.add_post(f"{base}conversations/{{id}}/cancel{end}", cancel_conversation)


async def cancel_conversation(request: web.Request) -> web.Response:
    """Stop all turns of a conversation; answer when they have ended."""
    wish = Wish.of(await read_json(request) if request.can_read_body else {})
    shared, owner = request.app[SHARED], keeper_of(request)
    conversation = await _found(shared, owner, request.match_info["id"])
    await shared.queue.load()
    # What is put in the queue from now on is meant for what comes next.
    queued = [item.id for item in (*shared.queue.waiting(conversation), *shared.queue.taken(conversation))]
    cancelled = await shared.running.cancel(owner, conversation, last_words=wish.last_words)
    await shared.background.end(conversation)
    if wish.clears_queue:
        shared.queue.remove(conversation, queued)
    return web.json_response(
        {
            "id": conversation,
            "object": "conversation.cancelled",
            "cancelled": cancelled,
            "status": shared.running.status(owner, conversation).status,
            "queue": len(shared.queue.waiting(conversation)),
        }
    )


async def _found(shared: Shared, owner: str, named: str) -> str:
    """Return the id of the owner's conversation with this id, or else this name. Raises NotFound."""
    name = conversation_name(named)
    if (running := shared.running.find(owner, name)) is not None:
        return running
    if (row := await shared.store.conversations.find(owner, name)) is not None:
        return row.id
    raise NotFound(
        f"You have no conversation {named!r}: it was never kept, was deleted, or is somebody else's. Name it by the "
        f"{CONVERSATION} that came with its answer, or as the client calls it."
    )
