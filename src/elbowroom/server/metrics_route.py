"""`GET /metrics`: what Prometheus reads, in its text format 0.0.4; and what counts HTTP requests for it."""

import time
from typing import Final

from aiohttp import hdrs, web

from elbowroom.server.guard import Handler
from elbowroom.server.keys import SHARED, STARTED
from elbowroom.server.metrics import Metrics
from elbowroom.server.metrics_now import StateNow

METRICS: Final = "/metrics"
TEXT_FORMAT: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTED: web.AppKey[Metrics] = web.AppKey("COUNTED", Metrics)
UNSEEN: Final = 499
"""The status of an answer whose client left before there was one."""


def add_metrics_route(app: web.Application) -> None:
    """Add the route."""
    app.router.add_get(METRICS, show_metrics)


async def show_metrics(request: web.Request) -> web.Response:
    """Answer with all metrics as they are now."""
    now = StateNow(request.app[SHARED], request.app[STARTED])
    headers = {hdrs.CONTENT_TYPE: TEXT_FORMAT, hdrs.CACHE_CONTROL: "no-store"}
    return web.Response(body=request.app[COUNTED].text(now), headers=headers)


@web.middleware
async def count_requests(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Count a request with its status and its time, whatever becomes of it."""
    began, status = time.monotonic(), UNSEEN
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        route = route_of(request)
        method = request.method if route else ""
        request.app[COUNTED].requested(route, method, status, time.monotonic() - began)


def route_of(request: web.Request) -> str:
    """Return the pattern of a request's path, as the documentation writes it; empty where there is no such route."""
    resource = request.match_info.route.resource
    return resource.canonical.replace("{base}", "v1/").removesuffix("{end}") if resource is not None else ""
