"""`GET /health`: the server's own state and whether its upstreams answer, and nothing else."""

import asyncio
from typing import Any

from aiohttp import web

from elbowroom import __version__
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import Provider
from elbowroom.server.keys import PROVIDERS, RUNNING, SETTINGS

PROBE_SECONDS = 1.0


async def health(request: web.Request) -> web.Response:
    """Answer 200 as long as the server runs, 503 while it stops; an upstream that is down is said, not passed on."""
    providers = request.app[PROVIDERS].of(request.app[SETTINGS].current())
    states = await asyncio.gather(*(_state(provider) for provider in providers.values()))
    status, code = ("stopping", 503) if request.app[RUNNING].is_closed else ("ok", 200)
    return web.json_response({"status": status, "version": __version__, "providers": states}, status=code)


async def _state(provider: Provider) -> dict[str, Any]:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await provider.models()
    except (ElbowroomError, TimeoutError):
        return {"id": provider.id, "reachable": False}
    return {"id": provider.id, "reachable": True}
