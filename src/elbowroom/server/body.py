"""Reads a JSON body within limits: size, time, depth."""

import asyncio
import json
from typing import Any, NoReturn

from aiohttp import web

from elbowroom.errors import BodyTooLarge, RequestError, RequestTimeout
from elbowroom.server.keys import TIMING

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 128


async def read_json(request: web.Request) -> Any:
    """Return the parsed body.

    Raises BodyTooLarge, RequestTimeout, or RequestError where it is no JSON or nested too deeply.
    """
    text = await _read_text(request)
    try:
        value = json.loads(text.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from None
    _check_depth(value)
    return value


async def _read_text(request: web.Request) -> bytes:
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise _too_large()
    timing = request.app[TIMING]
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(timing.body_total):
            while True:
                async with asyncio.timeout(timing.body_pause):
                    part = await request.content.readany()
                if not part:
                    return b"".join(parts)
                parts.append(part)
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise _too_large()
    except TimeoutError:
        request.protocol.force_close()
        raise RequestTimeout("The request's body took too long to arrive.") from None


def _too_large() -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than the {MAX_BODY_BYTES // 2**20} MiB that elbowroom takes.")


def _too_deep() -> RequestError:
    return RequestError(f"The body is nested more than {MAX_DEPTH} levels deep.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return
    raise _too_deep()
