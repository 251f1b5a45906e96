"""`POST /v1/embeddings` and `/v1/completions`: passed on to the provider of the model that they name."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import Any

from aiohttp import web

from elbowroom.agents.admission import Ticket
from elbowroom.agents.catalog import Target
from elbowroom.agents.gate import Gate
from elbowroom.errors import ModelNotFound, RequestError
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio_models import find_model
from elbowroom.server.body import read_json
from elbowroom.server.chat import note_client_left, reported
from elbowroom.server.client_left import ClientLeft
from elbowroom.server.encode import DONE, to_json
from elbowroom.server.event_stream import EventStream
from elbowroom.server.keys import RUNNING, SHARED, catalog_of
from elbowroom.server.packed_embeddings import packed_as_asked
from elbowroom.server.prompt_room import Room, room_for
from elbowroom.server.request_log import note_target


def add_passed_routes(app: web.Application, base: str, end: str) -> None:
    """Add the routes between what may stand before and behind them."""
    app.router.add_post(f"{base}embeddings{end}", embeddings)
    app.router.add_post(f"{base}completions{end}", completions)


async def embeddings(request: web.Request) -> web.Response:
    """Pass a request for embeddings on, and answer with them in the form that was asked for."""
    body = _checked(await read_json(request))
    target = await catalog_of(request.app).resolve(body["model"], embeds=True)
    note_target(target)
    if target.provider.manages_context:  # such a one may let any model answer for one that it does not know
        models = await target.provider.models()
        if find_model(models, target.model) is None:
            there = ", ".join(info.id for info in models if info.kind == "embedding") or "none"
            raise ModelNotFound(f"There is no model {target.model!r} for embeddings. There are: {there}.")
    sent = {**body, "model": target.model}
    async with request.app[RUNNING].endable(), target.provider.passed("embeddings", sent) as answer:
        found = await answer.whole()
    request_facts().take_usage(found.get("usage"))
    found = packed_as_asked(found, body.get("encoding_format"))
    return web.json_response({**found, "model": body["model"]}, dumps=to_json)


async def completions(request: web.Request) -> web.StreamResponse:
    """Pass a prompt on that fits its model's window with its continuation, and answer with that as it comes.

    Raises ContextOverflow where it does not: what the engine would do is to leave out a part without a word.
    """
    body = _checked(await read_json(request))
    target = await catalog_of(request.app).resolve(body["model"])
    note_target(target)
    if body.get("stream") is True:
        return await _stream(request, target, body)
    async with request.app[RUNNING].endable(), aclosing(_passed(request.app, target, body)) as chunks:
        found = [chunk async for chunk in chunks]
    request_facts().take_usage(found[0].get("usage"))
    return web.json_response({**found[0], "model": body["model"]}, dumps=to_json)


async def _stream(request: web.Request, target: Target, body: dict[str, Any]) -> web.StreamResponse:
    async with EventStream(request) as stream:
        try:
            try:
                passed = _passed(request.app, target, body)
                async with request.app[RUNNING].endable(), aclosing(passed) as chunks:
                    async for chunk in chunks:
                        await stream.send(_frame({**chunk, "model": body["model"]}))
                last = DONE
            except ClientLeft:
                raise
            except Exception as error:
                if not stream.has_begun:
                    raise
                last = _frame(reported(error, target).as_openai())
            await stream.send(last)
        except ClientLeft:
            note_client_left(target)
    return stream.response


async def _passed(app: web.Application, target: Target, body: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the chunks of a continuation, or the whole of it.

    All that it may need of a shared window is held meanwhile: it cannot be stopped where it outgrows less.
    """
    info, room = await _room(target, body)
    sent = {**body, "model": target.model, **({"max_tokens": room.answer} if room else {})}
    entered: AbstractAsyncContextManager[Ticket | None] = nullcontext()
    if room is not None:
        gate, held = Gate(app[SHARED].admission), room.prompt + room.answer
        entered = gate.entered(target.provider, info, window=room.window, prompt=room.prompt, tokens=held)
    async with entered as ticket, aclosing(_chunks(target, sent)) as chunks:
        async for chunk in chunks:
            if ticket is not None:
                ticket.first_token()
            yield chunk


async def _chunks(target: Target, sent: dict[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
    async with target.provider.passed("completions", sent) as answer:
        if sent.get("stream") is True:
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    yield chunk
        else:
            yield await answer.whole()


async def _room(target: Target, body: dict[str, Any]) -> tuple[ModelInfo, Room | None]:
    """Return the model as it is loaded, and where its window is known, how this request fits into it."""
    info = await target.provider.ready(target.model)
    if not target.provider.manages_context or info.loaded_context is None:
        return info, None
    counter = await target.provider.counter(info)
    return info, await room_for(body.get("prompt"), body.get("max_tokens"), counter, info.loaded_context)


def _checked(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise RequestError("The body has to be a JSON object with a model.")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise RequestError("model is missing: name a model of GET /v1/models.", param="model")
    if not isinstance(body.get("stream"), bool | None):
        raise RequestError("stream has to be true or false.", param="stream")
    return body


def _frame(value: dict[str, Any]) -> bytes:
    return f"data: {to_json(value)}\n\n".encode("ascii")
