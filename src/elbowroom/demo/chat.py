"""The routes that run a model: `/v1/chat/completions`, `/v1/completions` and `/v1/embeddings`."""

import hashlib
import math
from typing import TYPE_CHECKING, Any

from aiohttp import web

from elbowroom.demo import refusals
from elbowroom.demo.answer import GARBAGE, Situation, default_answer
from elbowroom.demo.journal import RECORD, STUDIO, RecordedRequest
from elbowroom.demo.overflow import PromptTooLongError, Reading
from elbowroom.demo.perform import ChatEncoding, TextEncoding
from elbowroom.demo.residency import Generation, Instance
from elbowroom.demo.script import Body, Reply, Script
from elbowroom.demo.turn import Turn, read_prompt, refuse_prompt

if TYPE_CHECKING:
    from elbowroom.demo.studio import SimulatedLMStudio

_LONGEST_QUOTE = 80
_TOOL_CHOICES = ("none", "auto", "required")


async def chat_completions(request: web.Request) -> web.StreamResponse:
    """Answer with the first script for the request, else with what the hook returns, else with the default answer."""
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
    if images(messages) and not instance.model.vision:
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


async def completions(request: web.Request) -> web.StreamResponse:
    """Continue a text with a sentence that says that no real model wrote it."""
    studio = request.app[STUDIO]
    body = json_object(request[RECORD])
    prompt = body.get("prompt")
    if not isinstance(prompt, str):
        raise refusals.plain("'prompt' field is required and must be a string")
    instance = await resolve(studio, body, request[RECORD])
    if instance.model.type == "embedding":
        raise refusals.plain(f"Model {instance.id!r} is an embedding model: it cannot complete text.")
    try:
        reading = read_prompt(request, {"messages": [{"role": "user", "content": prompt}]}, instance)
    except PromptTooLongError as refusal:
        return await refuse_prompt(request, body, str(refusal))
    ending = prompt[-_LONGEST_QUOTE:].strip()
    script = Script(f" (A simulated {instance.model.name} would go on after “{ending}” here.)")
    encoding = TextEncoding(studio.heading("cmpl", instance))
    return await Turn(request, body, instance, Generation(reading.prompt_tokens), script, encoding).play()


async def embeddings(request: web.Request) -> web.Response:
    """Return a unit vector for each text, equal for equal texts; as numbers, never as base64."""
    studio = request.app[STUDIO]
    body = json_object(request[RECORD])
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise refusals.plain("'input' field must be a string or an array of strings")
    instance = await resolve(studio, body, request[RECORD], embedding=True)
    split = studio.tokenizer_of(instance.model).split
    tokens = sum(len(split(text)) for text in texts)
    data = [
        {"object": "embedding", "embedding": vector(text, instance.model.embedding_length), "index": index}
        for index, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return web.json_response({"object": "list", "data": data, "model": instance.id, "usage": usage})


def vector(text: str, length: int) -> list[float]:
    """Return a unit vector made of checksums of the text."""
    digests = (hashlib.sha256(f"{place}/{text}".encode()).digest() for place in range(length))
    raw = [int.from_bytes(digest[:4], "big") / 2**31 - 1 for digest in digests]
    size = math.sqrt(sum(value * value for value in raw)) or 1.0
    return [value / size for value in raw]


def json_object(record: RecordedRequest) -> dict[str, Any]:
    """Return the request's JSON object; raise RefusalError if it is anything else."""
    if not isinstance(record.body, dict):
        raise refusals.plain("Invalid JSON: the request body must be a JSON object")
    return record.body


def check_chat(body: dict[str, Any]) -> None:
    """Raise RefusalError for what LM Studio does not take in a chat request."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise refusals.plain("'messages' field is required and must be an array of message objects")
    if not messages:
        raise refusals.plain("'messages' array must not be empty")
    if not all(isinstance(part.get("image_url"), dict) for part in images(messages)):
        raise refusals.plain("'image_url' must be an object with a 'url'")
    stop = body.get("stop")
    if stop is not None and not all(isinstance(one, str) for one in (stop if isinstance(stop, list) else [stop])):
        raise refusals.plain("'stop' must be a string or an array of strings")
    tools = body.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        raise refusals.plain("'tools' must be an array of tool objects")
    choice = body.get("tool_choice")
    if choice is not None and choice not in _TOOL_CHOICES:
        kind = "string" if isinstance(choice, str) else "object"
        supported = ", ".join(_TOOL_CHOICES)
        raise refusals.plain(f"Invalid tool_choice type: '{kind}'. Supported string values: {supported}")
    shape = body.get("response_format")
    if shape is not None and (not isinstance(shape, dict) or shape.get("type") not in ("json_schema", "text")):
        raise refusals.plain(refusals.JSON_OBJECT)


def images(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the parts of messages that are images."""
    contents = (message.get("content") for message in messages)
    parts = (part for content in contents if isinstance(content, list) for part in content)
    return [part for part in parts if isinstance(part, dict) and part.get("type") == "image_url"]


async def resolve(
    studio: "SimulatedLMStudio", body: dict[str, Any], record: RecordedRequest, *, embedding: bool = False
) -> Instance:
    """Return the instance that answers; with just-in-time loading, load the named model first.

    For an unknown name the only loaded model answers. Raises RefusalError if none or several are loaded.
    """
    residency = studio.residency
    residency.expire()
    name = body.get("model")
    name = name if isinstance(name, str) else ""
    ttl = body.get("ttl")
    instance = residency.named(name)
    if instance is None and name in residency.models and studio.just_in_time:
        record.phase = "loading"
        seconds = float(ttl) if isinstance(ttl, int | float) else studio.idle_ttl_seconds
        instance = await residency.load_just_in_time(name, seconds, evict=studio.auto_evict)
    if instance is None:
        instance = residency.fallback(embedding=embedding)
    residency.touch(instance)
    record.instance_id, record.window = instance.id, instance.context_length
    return instance
