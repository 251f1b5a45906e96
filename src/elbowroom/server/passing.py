"""`POST /v1/embeddings` and `/v1/completions`, which are passed on to the provider of their model."""

import asyncio
import base64
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from aiohttp import web

from elbowroom.agents.admission import Admission, Priority, PromptToPlace, Ticket
from elbowroom.agents.catalog import Target
from elbowroom.agents.request import Caller
from elbowroom.agents.turn import Shared
from elbowroom.errors import ContextOverflow, ModelNotFound, RequestError
from elbowroom.logs.request_facts import request_facts
from elbowroom.providers.base import ModelInfo
from elbowroom.providers.lmstudio import find_model
from elbowroom.server.encode import PassedEncoder
from elbowroom.server.event_stream import EventStream, json_answer
from elbowroom.server.middleware import note_target
from elbowroom.server.request import owner_of, read_json
from elbowroom.server.state import CATALOG, run_settings_of
from elbowroom.tokens.count import Counter

FIRST_TOKEN: Final = 1
"""A token that engines put before a prompt, and no client sees."""


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes in tokens: of the largest prompt, of the continuation at most, and of the window."""

    prompt: int
    answer: int
    window: int


async def room_for(prompt: Any, asked: Any, counter: Counter, window: int) -> Room:
    """Return the room of a request; without a limit in it, the continuation may fill the window.

    `prompt` is what OpenAI's route takes: a text, a list of texts, tokens, or a list of such lists. An inexact count
    is taken at its largest. Raises ContextOverflow where the request does not fit, and RequestError.
    """
    sizes = []
    for one in _prompts(prompt):
        sizes.append(await _size(one, counter))
        await asyncio.sleep(0)
    largest = max(sizes)
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int)):
        raise RequestError("max_tokens has to be a whole number.", param="max_tokens")
    wanted = asked if asked is not None and asked > 0 else None
    if largest + (wanted or 1) > window:
        completion = f" ({largest} of the prompt, {wanted} for the completion)" if wanted else " in the prompt"
        raise _Overflow(
            "Shorten the prompt or max_tokens, or load the model with a larger context length. This model's maximum "
            f"context length is {window} tokens, and this request needs {largest + (wanted or 1)}{completion}.",
            window=window,
            prompt_tokens=largest,
        )
    return Room(largest, wanted or window - largest, window)


class _Overflow(ContextOverflow):
    """A bare prompt does not fit."""

    param = "prompt"


def _prompts(prompt: Any) -> list[Any]:
    if isinstance(prompt, str) or _is_tokens(prompt):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) or _is_tokens(one) for one in prompt):
        return prompt
    raise RequestError("prompt has to be a text, a list of texts, or a list of tokens.", param="prompt")


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


async def _size(prompt: Any, counter: Counter) -> int:
    if isinstance(prompt, list):
        return len(prompt)
    count = await counter.count_text(prompt)
    return count.tokens + count.error_bound + FIRST_TOKEN


def add_passed_routes(router: web.UrlDispatcher, base: str, end: str) -> None:
    """Add the routes; `base` is the prefix and `end` the suffix of each route."""
    router.add_post(f"{base}embeddings{end}", embeddings)
    router.add_post(f"{base}completions{end}", completions)


async def embeddings(request: web.Request) -> web.Response:
    """Pass a request for embeddings on, and answer with them in the form that was asked for."""
    body = _checked(await read_json(request))
    target = await request.app[CATALOG].get().resolve(body["model"], embeds=True)
    note_target(target)
    if target.provider.manages_context:  # such an engine may let any model answer for an unknown one
        models = await target.provider.models()
        if find_model(models, target.model) is None:
            there = ", ".join(info.id for info in models if info.kind == "embedding") or "none"
            raise ModelNotFound(f"There is no model {target.model!r} for embeddings. There are: {there}.")
    caller, sent = Caller(owner_of(request, body)), {**body, "model": target.model}
    shared = run_settings_of(request.app, caller).shared

    async def embedded(bound: Target) -> dict[str, Any]:
        async with bound.provider.passed("embeddings", sent) as answer:
            return await answer.whole()

    with shared.running.entered(caller=caller):
        found = await shared.places.on_machine(target, embedded, embeds=True)
    request_facts().take_usage(found.get("usage"))
    found = await asyncio.to_thread(packed_as_asked, found, body.get("encoding_format"))
    return await json_answer({**found, "model": body["model"]})


async def completions(request: web.Request) -> web.StreamResponse:
    """Pass a prompt on, and answer with its continuation as it comes.

    Raises ContextOverflow where prompt and continuation do not fit the window: the engine would silently cut them.
    """
    body = _checked(await read_json(request))
    target = await request.app[CATALOG].get().resolve(body["model"])
    note_target(target)
    caller = Caller(owner_of(request, body))
    shared = run_settings_of(request.app, caller).shared
    if body.get("stream") is True:
        stream = EventStream(request, target.name)
        return await stream.answer(PassedEncoder(), partial(_pass_on, shared, target, body, caller))
    whole: list[bytes] = []

    async def keep(parts: Sequence[bytes]) -> None:
        whole.extend(parts)

    await _pass_on(shared, target, body, caller, keep)
    return web.Response(body=b"".join(whole), content_type="application/json")


async def _pass_on(
    shared: Shared,
    target: Target,
    body: dict[str, Any],
    caller: Caller,
    sink: Callable[[Sequence[bytes]], Awaitable[None]],
) -> None:
    """Hand the frames of a continuation to the sink, or the whole of it."""
    has_begun = False

    async def pass_from(bound: Target) -> None:
        nonlocal has_begun
        async with aclosing(_passed(shared.admission, bound, body)) as parts:
            async for part in parts:
                has_begun = True
                await sink([part])

    with shared.running.entered(caller=caller):
        await shared.places.on_machine(target, pass_from, lambda: _prompt_of(body), has_begun=lambda: has_begun)


def _prompt_of(body: Mapping[str, Any]) -> PromptToPlace:
    prompt = body.get("prompt")
    return PromptToPlace([{"role": "user", "content": prompt}] if isinstance(prompt, str) else ())


async def _passed(admission: Admission, target: Target, body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    """Yield the frames of a continuation, or the whole of it.

    All the tokens that it may need of a shared window are held meanwhile: it cannot be stopped when it outgrows fewer.
    """
    info, room = await _room(target, body)
    sent = {**body, "model": target.model, **({"max_tokens": room.answer} if room else {})}
    entered: AbstractAsyncContextManager[Ticket | None] = nullcontext()
    if room is not None:
        pool, held = (target.provider.id, info.id), room.prompt + room.answer
        entered = admission.admitted(
            pool, capacity=room.window, tokens=held, priority=Priority.CHAT, prompt=room.prompt, slots=info.slots
        )
    async with entered as ticket, aclosing(_parts(target, sent, body["model"])) as parts:
        async for part in parts:
            if ticket is not None:
                ticket.first_token()
            yield part


async def _parts(target: Target, sent: dict[str, Any], name: str) -> AsyncGenerator[bytes, None]:
    async with target.provider.passed("completions", sent) as answer:
        if sent.get("stream") is True:
            async with aclosing(answer.frames(name)) as frames:
                async for some in frames:
                    yield some
        else:
            yield await answer.text(name)
        request_facts().take_usage(answer.usage)


async def _room(target: Target, body: dict[str, Any]) -> tuple[ModelInfo, Room | None]:
    """Return the loaded model, and the room of this request where the model's window is known."""
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


def packed_as_asked(answer: dict[str, Any], encoding: Any) -> dict[str, Any]:
    """Return an answer with its vectors as base64 of little-endian 32-bit floats, where that was asked for.

    Local engines answer with numbers whatever was asked. `openai` for JavaScript asks for base64 by default, and up
    to version 6 reads numbers as base64: its vectors are then short and wrong, without an error.
    """
    rows = answer.get("data")
    if encoding != "base64" or not isinstance(rows, list):
        return answer
    return {**answer, "data": [_packed(row) for row in rows]}


def _packed(row: Any) -> Any:
    vector = row.get("embedding") if isinstance(row, Mapping) else None
    if not isinstance(vector, list):
        return row
    try:
        packed = struct.pack(f"<{len(vector)}f", *vector)
    except (struct.error, OverflowError):
        return row
    return {**row, "embedding": base64.b64encode(packed).decode()}
