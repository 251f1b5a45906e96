"""`POST /v1/chat/completions`: from the body to an answer."""

from typing import Any

from aiohttp import web

from elbowroom.demo import refusals
from elbowroom.demo.answer import GARBAGE, Situation, default_answer
from elbowroom.demo.encode import ChatEncoding
from elbowroom.demo.generation import Generation
from elbowroom.demo.journal import RECORD
from elbowroom.demo.keys import STUDIO
from elbowroom.demo.overflow import PromptTooLongError, Reading
from elbowroom.demo.requests import check_chat, has_images, json_object, resolve
from elbowroom.demo.residency import Instance
from elbowroom.demo.script import Body, Reply, Script
from elbowroom.demo.turn import Turn, read_prompt, refuse_prompt


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer with the next script that fits the request, or as the hook says, or with the default answer."""
    studio = request.app[STUDIO]
    body = json_object(request[RECORD])
    queued = studio.scripts.peek(body)
    planned = queued or studio.hooked(body)
    if planned is not None and planned.reply is not None:
        studio.scripts.take(body)
        return _ready_made(planned.reply)
    check_chat(body)
    instance = await resolve(studio, body, request[RECORD])
    _check_abilities(body["messages"], instance)
    try:
        reading = read_prompt(request, body, instance)
    except PromptTooLongError as refusal:
        return await refuse_prompt(request, body, str(refusal))
    script = studio.scripts.take(body) or (None if queued else planned) or _unscripted(body, instance, reading)
    encoding = ChatEncoding(studio.heading("chatcmpl", instance), instance.model.reasoning_field)
    return await Turn(request, body, instance, Generation(reading.prompt_tokens), script, encoding).play()


def _ready_made(reply: Reply) -> web.Response:
    if isinstance(reply.body, bytes):
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
    if isinstance(reply.body, str):
        return web.Response(status=reply.status, text=reply.body, headers=reply.headers)
    return web.json_response(reply.body, status=reply.status, headers=reply.headers)


def _check_abilities(messages: list[dict[str, Any]], instance: Instance) -> None:
    if instance.model.type == "embedding":
        raise refusals.plain(f"Model {instance.id!r} is an embedding model: it cannot chat.")
    if has_images(messages) and not instance.model.vision:
        raise refusals.plain(refusals.NO_IMAGES)


def _unscripted(body: Body, instance: Instance, reading: Reading) -> Script:
    match reading.outcome:
        case "empty":
            return Script()
        case "garbage":
            return Script(GARBAGE)
        case "read":
            name, window = instance.model.name, instance.context_length
            return default_answer(Situation(name, window, len(body["messages"]), reading, body))
