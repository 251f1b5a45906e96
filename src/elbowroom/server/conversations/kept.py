"""What is kept beside conversations: `/v1/tool_outputs/{ref}` shows an output of a tool, `/api/memories` memories."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final

from aiohttp import hdrs, web

from elbowroom.context.memories import delete_memory, described, memories_of
from elbowroom.context.outputs import Block, ToolOutputRef, utf8
from elbowroom.errors import NotFound
from elbowroom.server.conversations.live import owner_asking
from elbowroom.server.encode import to_json
from elbowroom.server.guard import for_own_page
from elbowroom.server.state import SETTINGS, SHARED

SHOWN: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""What a browser may show; everything else is saved as a file, since it may be a page with scripts."""
HARMLESS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": "default-src 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
    hdrs.CACHE_CONTROL: "private, no-cache",
}


def add_kept_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add all routes; `base` is the prefix and `end` the suffix of each route under /v1."""
    router.add_get(f"{base}tool_outputs/{{ref:[^/]+}}{end}", show_output)
    router.add_get("/api/memories", for_own_page(list_memories))
    router.add_delete("/api/memories/{id}", for_own_page(forget_memory))


async def show_output(request: web.Request) -> web.StreamResponse:
    """Answer with an output of one of the caller's tools as the tool returned it, be it text or an image."""
    store, owner, wanted = request.app[SHARED].store, owner_asking(request), request.match_info["ref"]
    await store.ready()
    outputs = store.tool_outputs
    ref = await outputs.find(owner, wanted)
    if ref is None:
        store.check_reachable()
        raise NotFound(
            f"There is no output of a tool with the reference {wanted[:40]!r} here, or it is somebody else's."
        )
    if not ref.mime_type:
        return await _send_text(request, ref, outputs.blocks(owner, ref.id))
    media = await outputs.media(owner, ref.id)
    if media is None:
        store.check_reachable()
        raise NotFound(f"The output {ref.id!r} cannot be read now.")
    mime_type, data = media
    headers = dict(HARMLESS)
    if mime_type not in SHOWN:
        mime_type = "application/octet-stream"
        headers[hdrs.CONTENT_DISPOSITION] = f'attachment; filename="{ref.id}"'
    return web.Response(body=data, content_type=mime_type, headers=headers)


async def _send_text(request: web.Request, ref: ToolOutputRef, blocks: AsyncIterator[Block]) -> web.StreamResponse:
    response = web.StreamResponse(
        headers={**HARMLESS, hdrs.CONTENT_TYPE: "text/plain; charset=utf-8", hdrs.CONTENT_LENGTH: str(ref.bytes)}
    )
    await response.prepare(request)
    left = ref.bytes
    async for block in blocks:
        await response.write(part := utf8(block.text))
        left -= len(part)
    if left:  # the rest cannot be read: the client would wait for it as long as the connection is open
        response.force_close()
    return response


async def list_memories(request: web.Request) -> web.Response:
    """List what agents remember of the caller, the newest first; with `agent` what this one remembers."""
    store, owner = request.app[SHARED].store, owner_asking(request)
    await store.ready()
    async with store.in_time():
        found = await memories_of(store.memories, owner, _agents(request))
    store.check_reachable()  # else these are only those that are in memory
    data = [described(agent, memory) for agent, memory in found]
    return web.json_response({"object": "list", "data": data}, dumps=to_json)


async def forget_memory(request: web.Request) -> web.Response:
    """Delete one memory of the caller. Raises NotFound, StoreOpening and StoreAway."""
    wanted, store, owner = request.match_info["id"], request.app[SHARED].store, owner_asking(request)
    await store.ready()
    if not await delete_memory(store.memories, owner, _agents(request), wanted):
        store.check_reachable()
        raise NotFound(
            f"There is no memory {wanted[:40]!r} here, or it is somebody else's. GET /api/memories lists those that "
            "there are; for an agent that was removed from the settings, name it as in ?agent=writer."
        )
    return web.json_response({"id": wanted, "object": "memory.deleted", "deleted": True}, dumps=to_json)


def _agents(request: web.Request) -> Sequence[str]:
    """Return the agent that the query names, which need not be in the settings any more; else all of the settings."""
    if named := request.query.get("agent"):
        return [named]
    return [agent.id for agent in request.app[SETTINGS].current().settings.agents]
