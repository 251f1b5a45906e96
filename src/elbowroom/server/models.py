"""`GET /v1/models` and `/v1/models/{id}`."""

from aiohttp import web

from elbowroom.agents.catalog import describe
from elbowroom.errors import ModelNotFound
from elbowroom.server.keys import STARTED, catalog_of


async def list_models(request: web.Request) -> web.Response:
    """List the enabled agents and the raw models of every provider that answers."""
    rows = await catalog_of(request.app).rows()
    return web.json_response({"object": "list", "data": [describe(row, request.app[STARTED]) for row in rows]})


async def show_model(request: web.Request) -> web.Response:
    """Show one model of the list."""
    wanted = request.match_info["id"]
    rows = await catalog_of(request.app).rows()
    for row in rows:
        if row.id == wanted:
            return web.json_response(describe(row, request.app[STARTED]))
    there = ", ".join(row.id for row in rows) or "none"
    raise ModelNotFound(f"There is no model {wanted!r}. Available: {there}.")
