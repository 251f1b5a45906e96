"""`/api/memories`: list and delete what agents remember of the caller."""

from collections.abc import Sequence

from aiohttp import web

from elbowroom.context.memories import delete_memory, described, memories_of
from elbowroom.errors import NotFound
from elbowroom.server.conversations.routes import owner_asking
from elbowroom.server.encode import to_json
from elbowroom.server.guard import for_own_page
from elbowroom.server.state import SETTINGS, SHARED


def add_memory_routes(app: web.Application) -> None:
    """Add both routes."""
    app.router.add_get("/api/memories", for_own_page(list_memories))
    app.router.add_delete("/api/memories/{id}", for_own_page(forget_memory))


async def list_memories(request: web.Request) -> web.Response:
    """List what agents remember of the caller, the newest first; with `agent` what this one remembers."""
    found = await memories_of(request.app[SHARED].store.memories, owner_asking(request), _agents(request))
    data = [described(agent, memory) for agent, memory in found]
    return web.json_response({"object": "list", "data": data}, dumps=to_json)


async def forget_memory(request: web.Request) -> web.Response:
    """Delete one memory of the caller. Raises NotFound."""
    wanted, memories = request.match_info["id"], request.app[SHARED].store.memories
    if not await delete_memory(memories, owner_asking(request), _agents(request), wanted):
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
