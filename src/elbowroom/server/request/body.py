"""Reads the body of a request, within limits of size and time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from aiohttp import hdrs, web

from elbowroom.agents.prompt import is_short
from elbowroom.agents.request import ChatRequest, parse_chat_request
from elbowroom.caches import HISTORIES
from elbowroom.context.canonical import read_ahead
from elbowroom.errors import BodyTooLarge, RequestTimeout
from elbowroom.logs.request_facts import request_facts
from elbowroom.server.request.caller import caller_of, known_by, owner_of
from elbowroom.server.request.decoding import PLAIN, coding_of, opened
from elbowroom.server.request.json_text import parsed
from elbowroom.server.state import SETTINGS, TIMING

MAX_BODY_BYTES = 64 * 1024 * 1024
INLINE_BYTES: Final = 256 * 1024
"""A body up to this size is parsed on the event loop: it takes a few milliseconds at most."""
Read = TypeVar("Read")


async def read_chat_request(request: web.Request) -> ChatRequest:
    """Read and parse the body of a chat request, and add its caller. Raises RequestError and its kin."""
    return await with_caller(request, await read_request(request, parse_chat_request))


async def with_caller(request: web.Request, chat: ChatRequest) -> ChatRequest:
    """Return a parsed chat request with its caller."""
    side_requests, headers = request.app[SETTINGS].current().settings.server.side_requests, request.headers
    owner = owner_of(request, chat.body)
    known = partial(caller_of, headers, chat, owner, knows_side_requests=side_requests)
    caller = known() if is_short(chat.messages) else await asyncio.to_thread(known)
    return replace(chat, caller=replace(caller, known_by=known_by(request, owner)))


async def read_json(request: web.Request, most: int = MAX_BODY_BYTES) -> Any:
    """Return the parsed body, of at most so many bytes, compressed and opened.

    Raises BodyTooLarge, UnsupportedCoding, RequestTimeout, or RequestError where it is no JSON or nested too deeply.
    """
    return await read_request(request, lambda value: value, most)


async def read_request(request: web.Request, read: Callable[[Any], Read], most: int = MAX_BODY_BYTES) -> Read:
    """Return what `read` makes of the parsed body, in a thread where the body is large; raises as both do."""
    coding = coding_of(request) if hdrs.CONTENT_ENCODING in request.headers else PLAIN
    body = await _read_bytes(request, most)
    if coding != PLAIN:
        body = await asyncio.to_thread(opened, coding, body, most)  # a few bytes may hold megabytes
    if len(body) <= INLINE_BYTES:
        request_facts().quotable = (value := parsed(body),)
        return read(value)
    return await asyncio.to_thread(_read_large, body, read)


async def at_leisure(request: web.Request, work: Callable[[], Read]) -> Read:
    """Return what is made of a request; where its body is large or of unknown size, in a thread."""
    size = request.content_length if hdrs.CONTENT_ENCODING not in request.headers else None
    return work() if size is not None and size <= INLINE_BYTES else await asyncio.to_thread(work)


def _read_large(body: bytearray, read: Callable[[Any], Read]) -> Read:
    """Return what is read in a large body, with its texts and images hashed: all take too long for the event loop."""
    request_facts().quotable = (value := parsed(body),)
    messages = value.get("messages") if isinstance(value, dict) else None
    if isinstance(messages, list):
        history = HISTORIES.of(messages)
        read_ahead(history.messages[len(history.known(read_ahead)) :])
        history.keep(read_ahead, [None] * len(messages))
        value["messages"] = [*history.messages]
    return read(value)


async def _read_bytes(request: web.Request, most: int) -> bytearray:
    if (request.content_length or 0) > most:
        raise _too_large(most)
    timing = request.app[TIMING]
    body = bytearray()
    try:
        async with asyncio.timeout(timing.body_total):
            while True:
                async with asyncio.timeout(timing.body_pause):
                    part = await request.content.readany()
                if not part:
                    return body
                body += part
                if len(body) > most:
                    raise _too_large(most)
    except TimeoutError:
        raise RequestTimeout("The request's body took too long to arrive.") from None


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than the {most // 2**20} MiB that elbowroom takes.")
