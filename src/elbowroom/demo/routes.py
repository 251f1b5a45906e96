"""Assembles the application."""

from typing import TYPE_CHECKING

from aiohttp import web

from elbowroom.demo import native, rpc
from elbowroom.demo.access import authenticate, dress, hide, refuse, unknown
from elbowroom.demo.chat import chat_completions
from elbowroom.demo.completions import completions, embeddings
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
