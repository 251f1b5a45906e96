"""Reads a JSON body within limits: size, time, depth."""

import asyncio
import json
import math
from typing import Any, NoReturn

from aiohttp import web

from elbowroom.errors import BodyTooLarge, RequestError, RequestTimeout
from elbowroom.logs.request_facts import request_facts
from elbowroom.server.keys import TIMING

MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 128


async def read_json(request: web.Request, most: int = MAX_BODY_BYTES) -> Any:
    """Return the parsed body, of at most so many bytes.

    Raises BodyTooLarge, RequestTimeout, or RequestError where it is no JSON or nested too deeply.
    """
    body = await _read_bytes(request, most)
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_float=_finite, parse_constant=_refuse_constant)
    except RecursionError:
        raise _too_deep() from None
    except UnicodeDecodeError as error:
        raise RequestError(f"The body is not valid JSON: it is not UTF-8 at byte {error.start}.") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from None
    except ValueError:  # the one other thing that json.loads refuses
        raise RequestError("The body is not valid JSON for elbowroom: a number in it has too many digits.") from None
    _check_depth(value)
    request_facts().heard(value)
    return value


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


def _too_deep() -> RequestError:
    return RequestError(f"The body is nested more than {MAX_DEPTH} levels deep.")


def _refuse_constant(name: str) -> NoReturn:
    raise RequestError(f"The body is not valid JSON: {name} is not a JSON number.")


def _finite(digits: str) -> float:
    """Return the number; one that is too large for a float would go upstream as Infinity, which is no JSON."""
    number = float(digits)
    if math.isinf(number):
        raise RequestError(f"The body is not valid JSON for elbowroom: {digits[:40]} is too large a number.")
    return number


def _check_depth(value: Any) -> None:
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item)
            if isinstance(child, (dict, list))
        ]
        if not level:
            return
    raise _too_deep()
