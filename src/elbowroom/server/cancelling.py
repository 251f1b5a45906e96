"""`POST /v1/conversations/{id}/cancel`: stop what is running for a conversation."""

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from elbowroom.errors import NotFound, RequestError
from elbowroom.server.body import read_json
from elbowroom.server.caller import owner_of
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
    body = await read_json(request) if request.can_read_body else {}
    wish = Wish.of(body)
    shared, owner = request.app[SHARED], owner_of(request.headers, body)
    conversation = shared.running.find(owner, request.match_info["id"])
    if conversation is None:
        raise NotFound(
            f"There is no conversation {request.match_info['id']!r} here, or it is somebody else's: name it by the "
            "X-Conversation-Id that came with its answer, or as the client calls it."
        )
    cancelled = await shared.running.cancel(owner, conversation, last_words=wish.last_words)
    return web.json_response(
        {
            "id": conversation,
            "object": "conversation.cancelled",
            "cancelled": cancelled,
            "status": shared.running.status(owner, conversation).status,
            "queue": 0,
        }
    )
