"""`POST /v1/conversations/{id}/compact`: compact a conversation by hand."""

from aiohttp import web

from elbowroom.agents.compact_request import compact_request
from elbowroom.server.caller import read_chat_request
from elbowroom.server.encode import to_json
from elbowroom.server.keys import RUNNING, catalog_of, run_settings_of


async def compact_conversation(request: web.Request) -> web.StreamResponse:
    """Take the same body as a chat request and answer with its messages, compacted, and their sizes in tokens."""
    chat = await read_chat_request(request)
    target = await catalog_of(request.app).resolve(chat.model)
    async with request.app[RUNNING].endable():
        compacted = await compact_request(target, chat, run_settings_of(request.app))
    answer = {
        "id": request.match_info["id"],
        "object": "conversation.compaction",
        "model": chat.model,
        "compacted": compacted.rung is not None,
        "method": compacted.rung,
        "before": compacted.before,
        "after": compacted.after,
        "seconds": round(compacted.seconds, 3),
        "messages": compacted.messages,
    }
    return web.json_response(answer, dumps=to_json)
