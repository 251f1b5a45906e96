"""`GET /api/live`: the answers that are being given now, and how full their windows are while they grow."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from aiohttp import hdrs, web

from elbowroom.agents.running_turns import RunningTurn
from elbowroom.context.conversation import ConversationRow, Conversations
from elbowroom.server.conversation_encode import describe_fill
from elbowroom.server.conversations import owner_asking
from elbowroom.server.encode import to_json
from elbowroom.server.keys import SHARED

LIVE: Final = "/api/live"
PATIENCE_SECONDS: Final = 1.0


def add_live_route(app: web.Application) -> None:
    """Add the route."""
    app.router.add_get(LIVE, list_live)


async def list_live(request: web.Request) -> web.Response:
    """List the caller's running turns, the one that has run longest first."""
    shared, owner = request.app[SHARED], owner_asking(request)
    data = []
    for turn in shared.running.of(owner):
        row = await _row(shared.recording.conversations, turn)
        if not turn.ended.done():
            data.append(describe_turn(turn, row))
    headers = {hdrs.CACHE_CONTROL: "no-store", "X-Content-Type-Options": "nosniff"}
    return web.json_response({"object": "list", "data": data}, dumps=to_json, headers=headers)


async def _row(kept: Conversations | None, turn: RunningTurn) -> ConversationRow | None:
    """Return what is kept of a turn's conversation; a store that is slow does not keep anybody waiting."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await kept.find(turn.owner, turn.conversation) if kept is not None else None
    return None


def describe_turn(turn: RunningTurn, row: ConversationRow | None) -> dict[str, Any]:
    """Return a turn as it is now; before its prompt is measured, the window is as full as the last step has left it."""
    fill = turn.fill or (row.fill if row is not None else None)
    return {
        "conversation": turn.conversation,
        "title": row.title if row is not None else "",
        "agent": turn.agent,
        "model": turn.model,
        "phase": turn.phase,
        "fill": describe_fill(fill) if fill is not None else None,
        "began": int(turn.since),
    }
