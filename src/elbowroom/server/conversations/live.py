"""Conversations that are being answered: `/api/live` lists them, and `/v1/conversations/{id}/cancel` stops one.

Where several servers share a database, another one may run the answer: then that one is asked.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

from aiohttp import hdrs, web

from elbowroom.agents.running import ENDING_SECONDS, GRACE_SECONDS, Running, RunningAnswer, stopped
from elbowroom.agents.turn import Shared
from elbowroom.context.conversation import ContextFill, ConversationRow
from elbowroom.errors import Conflict, Forbidden, NotFound, RequestError
from elbowroom.server.conversations.encode import describe_fill, describe_queue
from elbowroom.server.encode import to_json
from elbowroom.server.guard import CONVERSATION
from elbowroom.server.request import USER, caller_without_chat, conversation_name, keeper_of, read_json
from elbowroom.server.state import FIND, PATIENCE_SECONDS, SHARED, find_conversation
from elbowroom.store import owner_key
from elbowroom.store.questions import Conversations

ROUTE: Final = "/api/live"
CANCEL: Final = "cancel"
FILL: Final = "fill"
LIVE: Final = "live"
"""What a server is asked by another one."""


def owner_asking(request: web.Request) -> str:
    """Return the owner of the meant conversations. Raises Forbidden where the caller cannot be identified."""
    caller = caller_without_chat(request)
    if not caller.may_have_hidden:
        raise Forbidden(
            "Several people use this elbowroom, and nothing tells whose conversations are meant. Name the user with "
            f"the header {USER}, or set server.token."
        )
    return caller.owner


async def refuse_running(request: web.Request, row: ConversationRow, then: str) -> None:
    """Raise Conflict where a conversation is being answered; `then` is what can be done after that."""
    shared = request.app[SHARED]
    is_here = shared.running.status(owner_asking(request), row.id).status == "running"
    if is_here or await answering_elsewhere(shared, row.id):
        raise Conflict(
            f"The conversation {row.id!r} is being answered. Wait for the answer or stop it with POST "
            f"/v1/conversations/{row.id}/cancel, and {then}.",
            code="conversation_running",
        )


@asynccontextmanager
async def changing_idle(request: web.Request, row: ConversationRow, then: str) -> AsyncIterator[None]:
    """Keep answers and other changes of a conversation out of the block, a compaction in the background too.

    Raises Conflict where it is being answered, `then` is what can be done after that, ConversationLocked where an
    answer begins meanwhile, and NotFound where it is deleted meanwhile.
    """
    shared = request.app[SHARED]
    await refuse_running(request, row, then)
    async with shared.recording.locks.changing(row.id):
        await shared.background.end(row.id)
        if await shared.store.conversations.find(owner_asking(request), row.id) is None:
            shared.store.check_reachable()
            raise unknown(request)
        yield


def unknown(request: web.Request) -> NotFound:
    """Return the error that the caller has no conversation as the address names it."""
    named = request.match_info["id"]
    return NotFound(f"You have no conversation {named!r}: it was never kept, was deleted, or is somebody else's.")


async def answering_elsewhere(shared: Shared, conversation: str) -> list[str]:
    """Return the other servers that answer a conversation now."""
    return await shared.store.servers.answering(conversation)


async def fill_elsewhere(shared: Shared, conversation: str, servers: Sequence[str]) -> ContextFill | None:
    """Return how full the window of a conversation is that other servers answer; None where nobody tells."""
    given = {"conversation": conversation}
    told = await shared.store.servers.ask_all(servers, FILL, given, PATIENCE_SECONDS)
    return next((ContextFill(*answer["fill"]) for answer in told if answer["fill"] is not None), None)


async def writer_elsewhere(shared: Shared, owner: str, turn: str) -> str | None:
    """Return the other server that writes the owner's turn now; None for none."""
    server = await shared.store.servers.writer(turn)
    is_own = server is not None and await shared.store.conversations.holder(owner, turn) is not None
    return server if is_own else None


async def cancelled_elsewhere(shared: Shared, owner: str, turn: str) -> bool:
    """Stop the owner's turn where another server writes it; tell whether one did."""
    server = await shared.store.servers.writer(turn)
    conversation = await shared.store.conversations.holder(owner, turn) if server is not None else None
    if server is None or conversation is None:
        return False
    given = {"conversation": conversation, "last_words": False, "turn": turn}
    told = await shared.store.servers.ask_all([server], CANCEL, given, ENDING_SECONDS + PATIENCE_SECONDS)
    return any(answer["cancelled"] for answer in told)


async def ended_elsewhere(shared: Shared, owner: str, turn: str) -> None:
    """Wait until no other server writes the owner's turn."""
    while await writer_elsewhere(shared, owner, turn) is not None:  # noqa: ASYNC110  # nothing here tells of it
        await asyncio.sleep(PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class Wish:
    """How to stop a conversation: whether its queue is cleared, and whether the model may say last words."""

    clears_queue: bool = True
    last_words: bool = False

    @classmethod
    def of(cls, body: Any) -> "Wish":
        """Return the wish of a body. Raises RequestError that names the field and what belongs there."""
        if not isinstance(body, dict):
            raise RequestError('The body has to be a JSON object, such as {"queue": "clear", "grace": false}.')
        queue, grace = body.get("queue", "clear"), body.get("grace", False)
        if queue not in ("keep", "clear"):
            raise RequestError('queue has to be "keep" or "clear".', param="queue")
        if not isinstance(grace, bool):
            raise RequestError("grace has to be true or false.", param="grace")
        return cls(queue == "clear", grace)


def add_cancel_route(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add the route; `base` is its prefix and `end` its suffix."""
    router.add_post(f"{base}conversations/{{id}}/cancel{end}", cancel_conversation)


async def cancel_conversation(request: web.Request) -> web.Response:
    """Stop all turns of a conversation; answer when they have ended."""
    wish = Wish.of(await read_json(request) if request.can_read_body else {})
    shared, owner = request.app[SHARED], keeper_of(request)
    named = request.match_info["id"]
    conversation = await find_conversation(shared, owner, conversation_name(named))
    if conversation is None:
        raise NotFound(
            f"You have no conversation {named!r}: it was never kept, was deleted, or is somebody else's. Name it by "
            f"the {CONVERSATION} that came with its answer, or as the client calls it."
        )
    # Messages that are queued from now on are meant for the next turn.
    waiting = await shared.queue.listed(conversation) if wish.clears_queue else []
    queued = {item.id for item in (*waiting, *shared.queue.taken(conversation))}
    turns, dropping = shared.running.of(owner, conversation), queued if wish.clears_queue else ()
    cancelled = await shared.running.cancel(owner, conversation, last_words=wish.last_words, dropping=dropping)
    await shared.background.end(conversation)
    elsewhere = await _cancelled_elsewhere(shared, conversation, wish, dropping)
    is_told = any(turn.has_told for turn in turns) or any(answer.get("has_told") for answer in elsewhere)
    dropped = await shared.queue.emptied(conversation, dropping, is_told=is_told) if dropping else ()
    return web.json_response(
        {
            "id": conversation,
            "object": "conversation.cancelled",
            "cancelled": cancelled + sum(answer["cancelled"] for answer in elsewhere),
            "status": shared.running.status(owner, conversation).status,
            "queue": len(await shared.queue.listed(conversation)),
            "dropped": describe_queue(conversation, dropped),
        },
        dumps=to_json,
    )


async def _cancelled_elsewhere(
    shared: Shared, conversation: str, wish: Wish, dropping: Collection[str]
) -> list[Mapping[str, Any]]:
    """Stop the turns of a conversation that other servers run; return what those say of it.

    All servers are asked: a turn that has just begun is not in the database yet.
    """
    seconds = ENDING_SECONDS + (GRACE_SECONDS if wish.last_words else 0) + PATIENCE_SECONDS
    given = {"conversation": conversation, "last_words": wish.last_words, "dropping": sorted(dropping)}
    servers = shared.store.servers
    return [*await servers.ask_all(await servers.others(), CANCEL, given, seconds)]


def add_live_route(app: web.Application) -> None:
    """Add the route, and let other servers ask what runs here."""
    app.router.add_get(ROUTE, list_live)
    told = ToldToOthers(app[SHARED])
    operations = {CANCEL: told.cancel, FILL: told.fill, FIND: told.find, LIVE: told.live}
    app[SHARED].store.servers.offer(operations)


async def list_live(request: web.Request) -> web.Response:
    """List the caller's running turns, the one that has run longest first, and what is compacted in the background."""
    shared, owner = request.app[SHARED], owner_asking(request)
    servers = shared.store.servers
    told: list[Mapping[str, Any]] = [await _told(shared, owner_key(owner))]
    told += await servers.ask_all(await servers.others(), LIVE, {"owner": owner_key(owner)}, PATIENCE_SECONDS)
    shown = {
        "object": "list",
        "data": sorted((turn for answer in told for turn in answer["data"]), key=lambda turn: turn["began"]),
        "background": sorted(one for answer in told for one in answer["background"]),
        "refilled": sum(answer["refilled"] for answer in told),
    }
    headers = {hdrs.CACHE_CONTROL: "no-store", "X-Content-Type-Options": "nosniff"}
    return web.json_response(shown, dumps=to_json, headers=headers)


class ToldToOthers:
    """What other servers ask of this one; they have looked whose a conversation is, and give owners as hashes."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def cancel(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Stop all turns of a conversation, or the one that is named; answer when the database has that."""
        conversation, one = given["conversation"], given.get("turn")
        turns = [turn for turn in self._shared.running.of_conversation(conversation) if one in (None, turn.id)]
        cancelled = await stopped(turns, last_words=given["last_words"], dropping=given.get("dropping", ()))
        if one is None:
            await self._shared.background.end(conversation)
        await self._shared.store.conversations.settled()
        return {"cancelled": cancelled, "has_told": any(turn.has_told for turn in turns)}

    async def find(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell which conversation of an owner runs here under a name or an id, once the database has it."""
        if (likely := self._found(given)) is not None:
            await self._shared.recording.found_out(likely)
            await self._shared.store.conversations.settled()
        found = self._found(given)
        return {} if found is None else {"found": found}

    def _found(self, given: Mapping[str, Any]) -> str | None:
        owners = {turn.owner for turn in _turns_of(self._shared.running, given["owner"])}
        found = (self._shared.running.find(owner, given["name"]) for owner in owners)
        return next(found, None)

    async def fill(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell how full the window of a conversation is now."""
        turns = self._shared.running.of_conversation(given["conversation"])
        fill = turns[0].fill if turns else None
        return {"fill": None if fill is None else astuple(fill)}

    async def live(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Tell of the running turns of an owner."""
        return await _told(self._shared, given["owner"])


async def _told(shared: Shared, owner: str) -> dict[str, Any]:
    """Return an owner's turns here, what is compacted in the background, and how often the gauge of anybody changed."""
    running = shared.running
    compacting = shared.background.compacting(lambda one: owner_key(one) == owner)
    own = await _described(shared, _turns_of(running, owner))
    return {"data": own, "background": compacting, "refilled": running.refilled}


def _turns_of(running: Running, owner: str) -> list[RunningAnswer]:
    turns = (turn for one in running.conversations() for turn in running.of_conversation(one))
    return [turn for turn in turns if owner_key(turn.owner) == owner]


async def _described(shared: Shared, turns: Sequence[RunningAnswer]) -> list[dict[str, Any]]:
    """Return those of the turns that have not ended by now."""
    data = []
    for turn in turns:
        row = await _row_of(shared.recording.conversations, turn)
        if not turn.ended.done():
            data.append(_describe_turn(turn, row))
    return data


async def _row_of(kept: Conversations | None, turn: RunningAnswer) -> ConversationRow | None:
    """Return the row of a turn's conversation; None where the store does not have it or is slow."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await kept.find(turn.owner, turn.conversation) if kept is not None else None
    return None


def _describe_turn(turn: RunningAnswer, row: ConversationRow | None) -> dict[str, Any]:
    """Return a turn as it is now; until its prompt is measured, with the fill that the last turn left."""
    before = row.fill if row is not None else None
    fill = before if turn.fill is None else replace(turn.fill, turn=before.turn if before is not None else 0)
    return {
        "conversation": turn.conversation,
        "title": row.title if row is not None else "",
        "agent": turn.agent,
        "model": turn.model,
        "phase": turn.phase,
        "doing": turn.doing if turn.phase == "tool" and turn.doing else None,
        "fill": describe_fill(fill) if fill is not None else None,
        "began": int(turn.since),
    }
