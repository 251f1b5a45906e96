"""The web application: routes, middlewares, and headers."""

import re
from typing import TYPE_CHECKING

from aiohttp import web

from elbowroom.demo import native, refusals, rpc
from elbowroom.demo.chat import chat_completions, completions, embeddings
from elbowroom.demo.journal import STUDIO, Handler

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

_LARGEST_BODY = 256 * 1024 * 1024
_TOKEN = re.compile(r"sk-lm-[A-Za-z0-9]{8}:[A-Za-z0-9]{20}")
_OPEN_PATHS = ("/lmstudio-greeting", "/lms-status")


def application(studio: "SimulatedLMStudio") -> web.Application:
    """Return the web application of a simulator."""
    app = web.Application(
        client_max_size=_LARGEST_BODY,
        middlewares=[studio.journal.record, answer_refusals, authenticate, hide_routes],
    )
    app[STUDIO] = studio
    app.on_response_prepare.append(set_headers)
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


@web.middleware
async def answer_refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn a RefusalError into its answer."""
    try:
        return await handler(request)
    except refusals.RefusalError as refusal:
        return refusal.response()


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse requests without the API token, if one is set."""
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
async def hide_routes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Hide routes that an older app, or one whose HTTP server is off, does not have."""
    studio = request.app[STUDIO]
    if not studio.http_server and request.path != "/lms-status" and not _is_websocket(request):
        return web.Response(status=404)
    hidden = {"v1": (), "v0": ("/api/v1/",), "none": ("/api/v1/", "/api/v0/")}[studio.native_api]
    if request.path.startswith(hidden):
        return refusals.unexpected_endpoint(request.method, request.path)
    return await handler(request)


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set the headers of every answer; those of CORS only if `cors` is on."""
    response.headers["X-Powered-By"] = "Express"
    response.headers.pop("Server", None)
    if request.app[STUDIO].cors:
        response.headers["Access-Control-Allow-Origin"] = "*"
        response.headers["Access-Control-Allow-Headers"] = "*"


async def unknown(request: web.Request) -> web.Response:
    """Answer preflights if `cors` is on, and all other unknown paths as unexpected endpoints."""
    if request.method == "OPTIONS":
        if request.app[STUDIO].cors:
            return web.Response(status=204, headers={"Access-Control-Allow-Methods": "GET,HEAD,PUT,PATCH,POST,DELETE"})
        raise refusals.plain(f"Unexpected endpoint or method. (OPTIONS {request.path})")
    return refusals.unexpected_endpoint(request.method, request.path)


def _is_websocket(request: web.Request) -> bool:
    return request.headers.get("Upgrade", "").lower() == "websocket"
