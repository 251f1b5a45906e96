"""Sends a request to an upstream and returns its answer once that begins well."""

import asyncio
import io
import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from elbowroom.errors import (
    ContextOverflow,
    ElbowroomError,
    ModelUnavailable,
    StreamCut,
    UpstreamBusy,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from elbowroom.logs.request_facts import request_facts


def parse_upstream_json(text: bytes) -> Any:
    """Return the value, with null for numbers that JSON does not have.

    Raises ValueError where it is no JSON, or nested too deeply to be read.
    """
    try:
        value, end = _READER.raw_decode(written := text.decode().removeprefix("\ufeff").strip())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if end != len(written):
        raise ValueError("more than one JSON value")
    return value


def _finite(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


# One reader for all chunks: making one for each, as json.loads does with options, costs more than reading a chunk.
_READER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


@dataclass(frozen=True, slots=True)
class Overflow:
    """A prompt that was too long: its size and the window, in tokens, where the engine named them."""

    window: int | None = None
    prompt_tokens: int | None = None


WORDINGS = tuple(
    re.compile(pattern, re.IGNORECASE | re.DOTALL)
    for pattern in (
        (
            r"tokens to keep from the initial prompt is greater than the context length"
            r"(?:.{0,40}?n_keep:\s*(?P<prompt>\d+)\s*>=\s*n_ctx:\s*(?P<window>\d+))?"
        ),
        (
            r"trying to keep the first (?P<prompt>\d+) tokens when (?:the )?context (?:the )?overflows"
            r"(?:.{0,80}?context length of only (?P<window>\d+) tokens)?"
        ),
        (
            r"input does not fit in context length"
            r"(?:.{0,40}?input has (?P<prompt>\d+) tokens.{0,80}?only supports (?P<window>\d+) tokens)?"
        ),
        r"cannot truncate prompt with n_keep \((?P<prompt>\d+)\) >= n_ctx \((?P<window>\d+)\)",
        r"context size has been exceeded",
        r"reached context length of (?P<window>\d+) tokens",
        r"input length (?P<prompt>\d+) exceeds (?:the )?context length (?P<window>\d+)",
        r"request \((?P<prompt>\d+) tokens\) exceeds the available context size \((?P<window>\d+) tokens\)",
        r"exceeds the available context size",
        r"maximum context length is (?P<window>\d+) tokens(?:.{0,80}?(?P<prompt>\d+) (?:input )?tokens)?",
        (
            r"you passed (?P<prompt>\d+) input tokens.{0,120}?"
            r"context length is only (?P<window>\d+)"
        ),
        r"\bexceed_context_size_error\b|\bcontext_length_exceeded\b",
    )
)


def recognise_overflow(text: str) -> Overflow | None:
    """Return the overflow that this error text speaks of, or None where it speaks of something else.

    The text may be a whole JSON object: llama.cpp names the numbers in fields of their own, too.
    """
    for wording in WORDINGS:
        if found := wording.search(text):
            numbers = found.groupdict()
            return Overflow(
                _number(numbers.get("window") or _field("n_ctx", text)),
                _number(numbers.get("prompt") or _field("n_prompt_tokens", text)),
            )
    return None


def _field(name: str, text: str) -> str | None:
    found = re.search(rf'"{name}":\s*(\d+)', text, re.IGNORECASE)
    return found[1] if found else None


def _number(digits: str | None) -> int | None:
    return int(digits[:12]) if digits else None


EXCERPT = 300
MOST_WORDS = 2000
MARKUP = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
LOST_MODEL = ("model is unloaded", "model has crashed", "model unloaded", "channel error", "no models loaded")


@dataclass(frozen=True, slots=True)
class Source:
    """Who failed: the name people know it by, its address, how to give it a key, and the key it was given."""

    name: str
    url: str
    key_hint: str
    key: str | None = field(default=None, repr=False)

    def quote(self, text: str) -> str:
        """Return words of the upstream as they may be shown and logged.

        In one line, without control characters, and without the key, which some servers repeat.
        """
        if self.key:
            text = text.replace(self.key, "***")
        return "".join(letter if letter.isprintable() else " " for letter in text[:MOST_WORDS])


def error_text(value: Any) -> str:
    """Return the sentence inside an error of any shape: a string, an object with `message`, or nested ones."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        for key in ("message", "error", "detail", "msg"):
            if (inner := value.get(key)) and (text := error_text(inner)):
                return text
    if isinstance(value, list) and value:
        return "; ".join(error_text(item) for item in value[:3])
    return json.dumps(value, ensure_ascii=False)[:EXCERPT]


def error_in(body: Any) -> Any | None:
    """Return the error that a JSON body or event carries, None where it is not an error."""
    if not isinstance(body, dict):
        return None
    if error := body.get("error"):
        return error
    if body.get("object") == "error" or (body.get("type") == "error" and "message" in body):
        return body
    return None


def failure_of(error: Any, source: Source) -> ElbowroomError:
    """Translate an error that came inside a 200: in a stream, or as the body of an unknown path."""
    text = source.quote(error_text(error))
    whole = json.dumps(error, ensure_ascii=False) if not isinstance(error, str) else error
    if overflow := recognise_overflow(whole):
        return overflow_error(overflow, text, source)
    if any(words in text.lower() for words in LOST_MODEL):
        return ModelUnavailable(f"{source.name} does not have the model ready: {text} Load it there and ask again.")
    return UpstreamError(f"{source.name} reports an error: {text}")


def failure_of_response(status: int, body: bytes, headers: Mapping[str, str], source: Source) -> ElbowroomError:
    """Translate a response whose status is not 200."""
    text = source.quote(_text_of_body(body))
    if overflow := recognise_overflow(body.decode("utf-8", "replace")):
        return overflow_error(overflow, text, source)
    if 300 <= status < 400:
        return UpstreamError(
            f"{source.name} at {source.url} redirects to another address, which elbowroom does not follow. "
            "Put the final address into base_url."
        )
    if status in (401, 403):
        return UpstreamError(f"{source.name} refuses elbowroom's access ({status}: {text}). {source.key_hint}")
    if status in (429, 503):
        message = f"{source.name} takes no more requests just now: {text}"
        return UpstreamBusy(message, status=status, retry_after=headers.get("Retry-After"))
    if any(words in text.lower() for words in LOST_MODEL):
        return ModelUnavailable(f"{source.name} does not have the model ready: {text} Load it there and ask again.")
    if 400 <= status < 500:
        code, param = _code_and_param(body)
        message = f"{source.name} refuses the request: {text}"
        return UpstreamRejected(message, status=status, code=code, param=param)
    return UpstreamError(f"{source.name} failed with status {status}: {text}")


def not_json(body: bytes, source: Source) -> UpstreamError:
    """Say that something came that cannot be read, and how it begins."""
    return UpstreamError(f"{source.name} sent something that is not JSON: {source.quote(_excerpt(body))}")


def overflow_error(overflow: Overflow, text: str, source: Source) -> ContextOverflow:
    """Say that the prompt did not fit, in the form every client library recognises."""
    window = f"{overflow.window} tokens" if overflow.window else "smaller than this request"
    return ContextOverflow(
        f"This model's maximum context length is {window}. {source.name} says: {text} "
        "Shorten the conversation, or load the model with a larger context length.",
        window=overflow.window,
        prompt_tokens=overflow.prompt_tokens,
    )


def _text_of_body(body: bytes) -> str:
    try:
        return error_text(parse_upstream_json(body))
    except ValueError:
        return _excerpt(body) or "no explanation was given"


def _excerpt(body: bytes) -> str:
    """Return the first words of a body that is not JSON; of a page, what a person would see of it."""
    text = body[: 2**13].decode("utf-8", "replace")
    if "<" in text:
        text = MARKUP.sub(" ", text)
    return " ".join(text.split())[:EXCERPT]


def _code_and_param(body: bytes) -> tuple[str | None, str | None]:
    try:
        error = parse_upstream_json(body)["error"]
        code, param = error.get("code"), error.get("param")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None, None
    return (code if isinstance(code, str) else None), (param if isinstance(param, str) else None)


RETRY_AFTER_SECONDS = 0.2
LARGE_BODY_BYTES = 64 * 1024
MAX_ERROR_BYTES = 256 * 1024
ERROR_BODY_SECONDS = 3.0


class Poster:
    """Posts JSON to one upstream. Raises only ElbowroomErrors."""

    def __init__(
        self, http: aiohttp.ClientSession, headers: Mapping[str, str], source: Source, start_hint: str
    ) -> None:
        self._http = http
        self._headers = {"Content-Type": "application/json", **headers}
        self._source = source
        self._start_hint = start_hint

    async def post(self, url: str, body: Mapping[str, Any]) -> aiohttp.ClientResponse:
        """Return a response with the status 200, which the caller closes; any other status is raised."""
        request_facts().told(body)
        data = json.dumps(body, separators=(",", ":")).encode()
        try:
            response = await self._connect(url, data)
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(RETRY_AFTER_SECONDS)
            response = await self._connect_or_explain(url, data)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._explained(error) from error
        if response.status != 200:
            try:
                text = await _read_error(response)
            finally:
                response.close()
            raise failure_of_response(response.status, text, response.headers, self._source)
        return response

    async def _connect(self, url: str, data: bytes) -> aiohttp.ClientResponse:
        # As a file it is sent piece by piece; megabytes of images in one piece would hold up the event loop.
        body = data if len(data) < LARGE_BODY_BYTES else io.BytesIO(data)
        return await self._http.post(url, data=body, headers=self._headers, allow_redirects=False)

    async def _connect_or_explain(self, url: str, data: bytes) -> aiohttp.ClientResponse:
        try:
            return await self._connect(url, data)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> UpstreamError:
        return connection_failure(error, self._source, self._start_hint)


async def _read_error(response: aiohttp.ClientResponse) -> bytes:
    """Return what has come of an error's body by the time it is complete, too long or too slow."""
    body = bytearray()
    with suppress(aiohttp.ClientError, TimeoutError):
        async with asyncio.timeout(ERROR_BODY_SECONDS):
            while len(body) < MAX_ERROR_BYTES and (part := await response.content.readany()):
                body += part
    return bytes(body)


def connection_failure(error: Exception, source: Source, start_hint: str) -> UpstreamError:
    """Say that an upstream cannot be reached, or that it did not answer in time."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return UpstreamUnreachable(f"{source.name} does not answer at {source.url}. {start_hint}")
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(f"{source.name} at {source.url} took the request and did not answer in time.")
    if isinstance(error, aiohttp.InvalidURL):
        return UpstreamUnreachable(f"{source.url} is not an address that can be reached: {error}.")
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamError(f"What answers at {source.url} does not speak HTTP. Put the right address into base_url.")
    return StreamCut(f"{source.name} at {source.url} closed the connection before it answered ({error}).")


ANSWER_SECONDS = 10.0


class JsonApi:
    """Requests to one upstream. Raises UpstreamErrors in words for the person."""

    def __init__(
        self, http: aiohttp.ClientSession, headers: Mapping[str, str], source: Source, start_hint: str
    ) -> None:
        self._http = http
        self._headers = {"Content-Type": "application/json", **headers}
        self._source = source
        self._start_hint = start_hint
        self._timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=CONNECT_SECONDS)

    async def get(self, url: str) -> Any:
        """Return the parsed JSON of a 200 answer, or None where the answer is a 404 or not JSON."""
        return await self._ask("GET", url)

    async def post(self, url: str, body: Mapping[str, Any]) -> Any:
        """Send JSON and return the parsed JSON of a 200 answer, or None where the answer is a 404 or not JSON."""
        return await self._ask("POST", url, data=json.dumps(body).encode())

    async def _ask(self, method: str, url: str, data: bytes | None = None) -> Any:
        try:
            async with self._http.request(
                method, url, data=data, headers=self._headers, timeout=self._timeout, allow_redirects=False
            ) as response:
                text = await response.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._failure(error) from error
        if response.status == 404:
            return None
        if response.status != 200:
            raise failure_of_response(response.status, text, response.headers, self._source)
        try:
            return parse_upstream_json(text)
        except ValueError:
            return None

    def _failure(self, error: Exception) -> UpstreamError:
        return connection_failure(error, self._source, self._start_hint)


CONNECT_SECONDS = 1.5
FIRST_BYTE_SECONDS = 1800.0  # a large prompt on a slow machine is read for many minutes
