"""`POST /v1/completions` and `POST /v1/embeddings`: simple, but counted and answered for real."""

import hashlib
import math

from aiohttp import web

from elbowroom.demo import refusals
from elbowroom.demo.encode import TextEncoding
from elbowroom.demo.generation import Generation
from elbowroom.demo.journal import RECORD
from elbowroom.demo.keys import STUDIO
from elbowroom.demo.overflow import PromptTooLongError
from elbowroom.demo.requests import json_object, resolve
from elbowroom.demo.script import Script
from elbowroom.demo.turn import Turn, read_prompt, refuse_prompt

_LONGEST_QUOTE = 80


async def completions(request: web.Request) -> web.StreamResponse:
    """Continue a text, with a sentence that says by whom it was not written."""
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
    """Return a unit vector for each text, the same for the same text; as numbers, never as base64."""
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
