"""The model lists, and LM Studio's own routes for loading, unloading and downloading."""

import time
from typing import Any

from aiohttp import web

from elbowroom.demo import listing, refusals
from elbowroom.demo.chat import json_object
from elbowroom.demo.journal import RECORD, STUDIO


async def greeting(_: web.Request) -> web.Response:
    """`GET /lmstudio-greeting`."""
    return web.json_response({"lmstudio": True})


async def internal_status(_: web.Request) -> web.Response:
    """`GET /lms-status`, on the internal port even while the HTTP server is off."""
    return web.json_response({"status": "ok"})


async def openai_models(request: web.Request) -> web.Response:
    """`GET /v1/models`."""
    studio = request.app[STUDIO]
    studio.residency.expire()
    rows = listing.openai_rows(studio.residency, just_in_time=studio.just_in_time)
    return web.json_response({"object": "list", "data": rows})


async def v0_models(request: web.Request) -> web.Response:
    """`GET /api/v0/models`."""
    residency = request.app[STUDIO].residency
    residency.expire()
    return web.json_response({"object": "list", "data": listing.v0_rows(residency)})


async def v0_model(request: web.Request) -> web.Response:
    """`GET /api/v0/models/{id}`, where the id may have slashes in it."""
    residency = request.app[STUDIO].residency
    residency.expire()
    name = request.match_info["name"]
    for row in listing.v0_rows(residency):
        if row["id"] == name:
            return web.json_response(row)
    raise refusals.RefusalError({"error": f"Model with name '{name}' not found."}, 404)


async def v1_models(request: web.Request) -> web.Response:
    """`GET /api/v1/models`."""
    residency = request.app[STUDIO].residency
    residency.expire()
    return web.json_response({"models": listing.v1_rows(residency)})


async def v1_load(request: web.Request) -> web.Response:
    """`POST /api/v1/models/load`: makes another instance, even of a loaded model; echoes its window."""
    studio, record = request.app[STUDIO], request[RECORD]
    body = json_object(record)
    key, asked = body.get("model"), body.get("context_length")
    if not isinstance(key, str) or key not in studio.residency.models:
        raise refusals.native(f"Model {key!r} not found")
    record.phase = "loading"
    started = time.monotonic()
    instance = await studio.residency.load_slowly(key, asked if isinstance(asked, int) else None)
    answer: dict[str, Any] = {
        "type": "embedding" if instance.model.type == "embedding" else "llm",
        "instance_id": instance.id,
        "load_time_seconds": round(time.monotonic() - started, 3),
        "status": "loaded",
    }
    if body.get("echo_load_config"):
        answer["load_config"] = listing.instance_config(instance)
    return web.json_response(answer)


async def v1_unload(request: web.Request) -> web.Response:
    """`POST /api/v1/models/unload`."""
    residency = request.app[STUDIO].residency
    name = json_object(request[RECORD]).get("instance_id")
    if not isinstance(name, str) or name not in residency.instances:
        raise refusals.native(f"Model instance {name!r} not found")
    residency.unload(name)
    return web.json_response({"instance_id": name})


async def v1_download(request: web.Request) -> web.Response:
    """`POST /api/v1/models/download`: begins a download of a model that is offered, unless it is there."""
    studio = request.app[STUDIO]
    name = json_object(request[RECORD]).get("model")
    if name in studio.residency.models:
        return web.json_response({"status": "already_downloaded"})
    offered = {model.key: model for model in studio.offered}
    if name not in offered:
        raise refusals.native(f"Model {name!r} not found")
    return web.json_response(studio.downloads.begin(offered[name]).as_json())


async def v1_download_status(request: web.Request) -> web.Response:
    """`GET /api/v1/models/download/status/{job_id}`: a model whose download is complete is on the disk."""
    studio, job_id = request.app[STUDIO], request.match_info["job_id"]
    job = studio.downloads.jobs.get(job_id)
    if job is None:
        raise refusals.native(f"Download job {job_id!r} not found")
    if job.is_complete:
        studio.residency.models.setdefault(job.model.key, job.model)
    return web.json_response(job.as_json())
