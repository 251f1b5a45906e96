"""CORS headers for the origins that the guard lets in, on every kind of response: streams, errors, preflights."""

from aiohttp import hdrs, web

from elbowroom.server.caller import CONVERSATION
from elbowroom.server.guard import RULES
from elbowroom.server.request_log import REQUEST_ID

PREFLIGHT_SECONDS = "600"
EXPOSED = f"{hdrs.RETRY_AFTER}, {CONVERSATION}, {REQUEST_ID}"
"""Headers that web pages may read."""


def set_up_cors(app: web.Application) -> None:
    """Have the headers added when a response is prepared; a middleware would be too late for streams."""
    app.on_response_prepare.append(_add_headers)


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[hdrs.VARY] = hdrs.ORIGIN
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None or not request.app[RULES].get().allows_origin(origin):
        return
    response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
    response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = EXPOSED
    if request.method == hdrs.METH_OPTIONS:
        response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = "GET, POST, PUT, PATCH, DELETE, OPTIONS"
        response.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = PREFLIGHT_SECONDS
        if asked := request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = asked
