"""Assembles the application."""

import re
from typing import TYPE_CHECKING

from aiohttp import web

from elbowroom.demo import native, refusals, rpc
from elbowroom.demo.chat import chat_completions, completions, embeddings
from elbowroom.demo.journal import Handler
from elbowroom.demo.keys import STUDIO

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

_LARGEST_BODY = 256 * 1024 * 1024


def application(studio: "SimulatedLMStudio") -> web.Application:
    """Return the web application of a simulator; every path outside its routes is an unexpected endpoint."""
    app = web.Application(
        client_max_size=_LARGEST_BODY,
        middlewares=[studio.journal.record, refuse, authenticate, hide],
    )
    app[STUDIO] = studio
    app.on_response_prepare.append(dress)
    app.add_routes(
        [
            web.get("/lmstudio-greeting", native.greeting),
            web.get("/lms-status", native.internal_status),
            web.get("/v1/models", native.openai_models),
            web.get("/api/v0/models", native.v0_models),
            web.get("/api/v0/models/{name:.+}", native.v0_model),
            web.get("/api/v1/models", native.v1_models),
            web.post("/api/v1/models/load", native.v1_load),
            web.post("/api/v1/models/unload", native.v1_unload),
            web.post("/api/v1/models/download", native.v1_download),
            web.get("/api/v1/models/download/status/{job_id}", native.v1_download_status),
            web.post("/v1/chat/completions", chat_completions),
            web.post("/v1/completions", completions),
            web.post("/v1/embeddings", embeddings),
            *(web.get(f"/{namespace}", rpc.serve) for namespace in rpc.NAMESPACES),
            web.route("*", "/{path:.*}", unknown),
        ]
    )
    return app


_TOKEN = re.compile(r"sk-lm-[A-Za-z0-9]{8}:[A-Za-z0-9]{20}")
_OPEN_PATHS = ("/lmstudio-greeting", "/lms-status")


@web.middleware
async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn a refusal into its answer."""
    try:
        return await handler(request)
    except refusals.RefusalError as refusal:
        return refusal.response()


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let only requests with the API token through, where one is set."""
    expected = request.app[STUDIO].api_token
    if expected is None or request.path in _OPEN_PATHS or request.method == "OPTIONS" or _is_websocket(request):
        return await handler(request)
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme != "Bearer" or not token:
        raise refusals.unauthorized(refusals.AUTH_MISSING)
    if not _TOKEN.fullmatch(token):
        raise refusals.unauthorized(refusals.AUTH_MALFORMED + token)
    if token != expected:
        raise refusals.unauthorized(refusals.AUTH_WRONG + token)
    return await handler(request)


@web.middleware
async def hide(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer as an older app, or one whose HTTP server is off, where that is asked for."""
    studio = request.app[STUDIO]
    if not studio.http_server and request.path != "/lms-status" and not _is_websocket(request):
        return web.Response(status=404)
    hidden = {"v1": (), "v0": ("/api/v1/",), "none": ("/api/v1/", "/api/v0/")}[studio.native_api]
    if request.path.startswith(hidden):
        return refusals.unexpected_endpoint(request.method, request.path)
    return await handler(request)


async def dress(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every answer; web pages may read it only where that is on."""
    response.headers["X-Powered-By"] = "Express"
    response.headers.pop("Server", None)
    if request.app[STUDIO].cors:
        response.headers["Access-Control-Allow-Origin"] = "*"
        response.headers["Access-Control-Allow-Headers"] = "*"


async def unknown(request: web.Request) -> web.Response:
    """Answer what no other handler wants: preflights by the switch, all else as an unexpected endpoint."""
    if request.method == "OPTIONS":
        if request.app[STUDIO].cors:
            return web.Response(status=204, headers={"Access-Control-Allow-Methods": "GET,HEAD,PUT,PATCH,POST,DELETE"})
        raise refusals.plain(f"Unexpected endpoint or method. (OPTIONS {request.path})")
    return refusals.unexpected_endpoint(request.method, request.path)


def _is_websocket(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"
