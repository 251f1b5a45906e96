"""LM Studio's routes for its models, on the root: what Open WebUI calls where a connection is said to be LM Studio.

They lead to the first LM Studio of the settings, through elbowroom's own gates and with LM Studio's own key. A model
that is named as elbowroom lists it, `<provider>/<model>`, is that provider's.
"""

from typing import Any, Final

from aiohttp import web

from elbowroom.errors import NotFound, RequestError
from elbowroom.providers.lmstudio import LMStudio
from elbowroom.providers.lmstudio_models import find_owner
from elbowroom.server.body import read_json
from elbowroom.server.keys import PROVIDERS, SETTINGS

MODELS: Final = "/api/v1/models"


def add_lmstudio_routes(app: web.Application) -> None:
    """Add the routes; they stand on the root whatever base address a client has."""
    app.router.add_get(MODELS, list_downloaded)
    app.router.add_post(f"{MODELS}/load", load)
    app.router.add_post(f"{MODELS}/unload", unload)
    app.router.add_post(f"{MODELS}/download", download)
    app.router.add_get(f"{MODELS}/download/status/{{job_id}}", download_status)


async def list_downloaded(request: web.Request) -> web.Response:
    """`GET /api/v1/models`: LM Studio's own list."""
    return web.json_response(await _studios(request)[0].management.catalog())


async def load(request: web.Request) -> web.Response:
    """`POST /api/v1/models/load`: load `model`."""
    studio, body = await _of_body(request, "model")
    return web.json_response(await studio.management.load(body))


async def unload(request: web.Request) -> web.Response:
    """`POST /api/v1/models/unload`: unload the instance `instance_id`."""
    studio, body = await _of_body(request, "instance_id")
    return web.json_response(await studio.management.unload(body))


async def download(request: web.Request) -> web.Response:
    """`POST /api/v1/models/download`: begin to download `model`, by its name in LM Studio's catalog or its address."""
    body = _checked(await read_json(request), "model")
    return web.json_response(await _studios(request)[0].management.download(body))


async def download_status(request: web.Request) -> web.Response:
    """`GET /api/v1/models/download/status/{job_id}`."""
    job_id = request.match_info["job_id"]
    if job_id in (".", ".."):  # which a URL takes for another path
        raise NotFound(f"There is no download {job_id!r}.")
    return web.json_response(await _studios(request)[0].management.download_status(job_id))


async def _of_body(request: web.Request, field: str) -> tuple[LMStudio, dict[str, Any]]:
    """Return the LM Studio that a body means by the name in a field, and the body with its own name for that."""
    body = _checked(await read_json(request), field)
    studios = _studios(request)
    for studio in studios:
        name = body[field].removeprefix(f"{studio.id}/")
        if name != body[field] and find_owner(await studio.models(), name) is not None:
            return studio, {**body, field: name}
    return studios[0], body


def _checked(body: Any, field: str) -> dict[str, Any]:
    if not isinstance(body, dict) or not isinstance(body.get(field), str) or not body[field]:
        raise RequestError(f"The body has to be a JSON object with {field}, a name.", param=field)
    return body


def _studios(request: web.Request) -> list[LMStudio]:
    providers = request.app[PROVIDERS].of(request.app[SETTINGS].current()).values()
    studios = [provider for provider in providers if isinstance(provider, LMStudio)]
    if not studios:
        raise NotFound("No provider of the settings is an LM Studio, whose models this route lists and loads.")
    return studios
