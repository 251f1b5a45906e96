"""`GET /v1/models`, `/v1/models/{id}` and `/health`."""

import asyncio
from typing import Any

from aiohttp import web

from elbowroom import __version__
from elbowroom.agents.catalog import describe
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import Provider
from elbowroom.server.state import PROVIDERS, SETTINGS, SHARED, STARTED, catalog_of

PROBE_SECONDS = 1.0


async def list_models(request: web.Request) -> web.Response:
    """List the enabled agents and the raw models of every provider that answers."""
    rows = await catalog_of(request.app).rows()
    return web.json_response({"object": "list", "data": [describe(row, request.app[STARTED]) for row in rows]})


async def show_model(request: web.Request) -> web.Response:
    """Show one model of the list, by any name that a request may give it."""
    row = await catalog_of(request.app).row(request.match_info["id"], embeds=True)
    return web.json_response(describe(row, request.app[STARTED]))


async def health(request: web.Request) -> web.Response:
    """Answer 200 as long as the server runs, 503 while it stops; the body names upstreams that are down."""
    providers = request.app[PROVIDERS].of(request.app[SETTINGS].current())
    states = await asyncio.gather(*(_state(provider) for provider in providers.values()))
    status, code = ("stopping", 503) if request.app[SHARED].running.is_closed else ("ok", 200)
    return web.json_response({"status": status, "version": __version__, "providers": states}, status=code)


async def _state(provider: Provider) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await provider.models()
    except (ElbowroomError, TimeoutError):
        return {"id": provider.id, "reachable": False}
    return {"id": provider.id, "reachable": True}
