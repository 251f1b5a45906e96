"""`/v1/conversations/{id}/queue`: say something to a conversation that is being answered, or that will be."""

from collections.abc import Sequence
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.conversations import Accepted
from elbowroom.context.conversation import QueuedMessage, QueueMode
from elbowroom.context.transcript import is_blank
from elbowroom.errors import Conflict, NotFound, RequestError
from elbowroom.server.conversations.encode import describe_queue
from elbowroom.server.conversations.live import answering_elsewhere
from elbowroom.server.encode import to_json
from elbowroom.server.request import conversation_name, keeper_of, read_json
from elbowroom.server.state import SHARED, find_conversation

KEY: Final = "Idempotency-Key"
"""The header by which a client sends the same message again, where it does not know whether it came."""
LONGEST_KEY: Final = 255
MODES: Final[dict[str, QueueMode]] = {"steer": "steer", "follow_up": "follow_up"}


def add_queue_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route."""
    queue = f"{base}conversations/{{id:[^/]+}}/queue"
    router.add_post(f"{queue}{end}", add_message)
    router.add_get(f"{queue}{end}", list_messages)
    router.add_delete(f"{queue}{end}", clear_queue)
    router.add_delete(f"{queue}/{{message:[^/]+}}{end}", remove_message)


async def add_message(request: web.Request) -> web.Response:
    """Put a message in the queue; answer with its position once it is durable."""
    body = await read_json(request)
    if not isinstance(body, dict):
        raise RequestError('The body has to be a JSON object, such as {"content": "Also check May."}.')
    message, mode = _message_of(body), _mode_of(body)
    owner, shared = keeper_of(request, body), request.app[SHARED]
    conversation, accepted = await _added(request, owner, message, mode, _key_of(request))
    answer = {
        "id": accepted.id,
        "object": "conversation.queued_message",
        "conversation": conversation,
        "mode": mode,
        "position": accepted.position,
        "stored": accepted.is_stored,
        "running": bool(shared.running.of(owner, conversation) or await answering_elsewhere(shared, conversation)),
    }
    return web.json_response(answer, status=202, dumps=to_json)


async def _added(
    request: web.Request, owner: str, message: dict[str, Any], mode: QueueMode, key: str
) -> tuple[str, Accepted]:
    """Put a message in the queue of the conversation that the path names, and return the conversation's id.

    An answer that runs may still be looked for: until it is noted which conversation it belongs to, nothing can wait
    there. What was deleted meanwhile, with its queue, is not found. Raises NotFound.
    """
    shared = request.app[SHARED]
    while True:
        conversation = await _conversation(request, owner)
        await shared.recording.found_out(conversation)
        async with shared.recording.locks.beside_answers(conversation):
            is_kept = await shared.store.conversations.find(owner, conversation) is not None
            is_answered = bool(shared.running.of(owner, conversation))
            if is_kept or (is_answered and not shared.recording.is_sought(conversation)):
                return conversation, await shared.queue.add(conversation, message, mode, key=key, is_kept=is_kept)


async def list_messages(request: web.Request) -> web.Response:
    """List the waiting messages in order, and those that were dropped when the last answer was stopped."""
    conversation, queue = await _conversation(request, keeper_of(request)), request.app[SHARED].queue
    waiting = await queue.listed(conversation)
    return _listed(conversation, waiting, dropped=describe_queue(conversation, queue.dropped(conversation)))


async def clear_queue(request: web.Request) -> web.Response:
    """Remove and return all waiting messages; those that a turn has taken in stay with the turn."""
    conversation = await _conversation(request, keeper_of(request))
    removed, _ = await request.app[SHARED].queue.taken_back(conversation)
    return _listed(conversation, removed)


async def remove_message(request: web.Request) -> web.Response:
    """Remove one waiting message."""
    conversation, message = await _conversation(request, keeper_of(request)), request.match_info["message"]
    removed, taken = await request.app[SHARED].queue.taken_back(conversation, [message])
    if not removed:
        if message in {item.id for item in request.app[SHARED].queue.dropped(conversation)}:
            raise NotFound(f"The message {message!r} was dropped: somebody stopped the answer that it waited for.")
        if message in taken:
            raise Conflict(
                f"The message {message!r} was already taken in: the model has it before it.", code="already_taken_in"
            )
        raise NotFound(
            f"No message {message!r} waits in this conversation: it was taken in or removed before, or there never "
            f"was one. GET {request.path.rpartition('/queue/')[0]}/queue shows what waits."
        )
    deleted = {"id": message, "object": "conversation.queued_message.deleted", "deleted": True}
    return web.json_response(deleted, dumps=to_json)


async def _conversation(request: web.Request, owner: str) -> str:
    """Return the id of the caller's conversation that the path names. Raises NotFound."""
    name = conversation_name(request.match_info["id"])
    if (found := await find_conversation(request.app[SHARED], owner, name)) is None:
        raise NotFound(
            f"There is no conversation {name!r} here, or it is somebody else's: name it by the X-Conversation-Id that "
            "came with its answer, or as the client calls it."
        )
    return found


def _message_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the user's message of a body. Raises RequestError that says what belongs there."""
    message = body.get("message", body)
    if not isinstance(message, dict):
        raise RequestError('message has to be an object, such as {"role": "user", "content": "..."}.', param="message")
    if message.get("role", "user") != "user":
        raise RequestError("Only messages of the role user can wait in a queue.", param="message.role")
    content = message.get("content")
    is_content = isinstance(content, str) or (isinstance(content, list) and all(map(_is_part, content)))
    if not is_content or is_blank(content):
        raise RequestError(
            "content has to be a text or a list of parts as in a chat request, and may not be empty.", param="content"
        )
    return {"role": "user", "content": content}


def _is_part(part: object) -> bool:
    return isinstance(part, dict) and isinstance(part.get("type"), str)


def _mode_of(body: dict[str, Any]) -> QueueMode:
    mode = body.get("mode", "steer")
    if not isinstance(mode, str) or mode not in MODES:
        raise RequestError(
            "mode has to be steer, for the next step of the answer that is being given, or follow_up, for after it.",
            param="mode",
        )
    return MODES[mode]


def _key_of(request: web.Request) -> str:
    key = request.headers.get(KEY, "")
    if len(key) > LONGEST_KEY:
        raise RequestError(f"{KEY} has {len(key):,} characters, and may have {LONGEST_KEY}.", param=KEY)
    return key


def _listed(conversation: str, items: Sequence[QueuedMessage], **more: Any) -> web.Response:
    data = describe_queue(conversation, items)
    return web.json_response({"object": "list", "data": data, **more}, dumps=to_json)
