"""Translates what goes wrong at an upstream into errors with a sentence for the person.

An upstream fails by not answering, by a status other than 200, or by an error inside a 200. Engines word the same
error in many ways: a prompt that is too long is recognised in all of them.
"""

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

import aiohttp

from elbowroom.errors import (
    ContextOverflow,
    ElbowroomError,
    MediaRefused,
    ModelUnavailable,
    StreamCut,
    UpstreamBusy,
    UpstreamError,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
    what_failed,
)

EXCERPT: Final = 300
"""Characters that are shown of a body that is not JSON."""
MOST_WORDS: Final = 2000
"""Characters that are shown of an upstream's sentence."""
LONGEST_WAIT: Final = 3600
"""Seconds after which a client asks again at the latest, whatever an upstream says."""
LONGEST_RETRY_AFTER: Final = 100
"""Characters of a Retry-After header; a longer one is nonsense."""
MARKUP: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.IGNORECASE | re.DOTALL)
LOST_MODEL: Final = ("model is unloaded", "model has crashed", "model unloaded", "channel error", "no models loaded")

NO_MEDIA: Final = re.compile(
    r"(image|audio|video) input is not supported|does not support (image|audio|video)"
    r"|missing data required for image input|not a multimodal model|at most 0 (image|audio|video)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Source:
    """An upstream as errors tell of it: its name and address, how to start it, how to give it a key, and the key."""

    name: str
    url: str
    start_hint: str = ""
    key_hint: str = ""
    key: str | None = field(default=None, repr=False)

    def quote(self, text: str) -> str:
        """Return words of the upstream as they may be shown and logged.

        In one line, without control characters, and without the key, which some servers repeat.
        """
        if self.key:
            text = text.replace(self.key, "***")
        return "".join(letter if letter.isprintable() else " " for letter in text[:MOST_WORDS])


def connection_failure(error: Exception, source: Source) -> UpstreamError:
    """Say that an upstream cannot be reached, or that it did not answer in time."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return UpstreamUnreachable(f"{source.name} does not answer at {source.url}. {source.start_hint}")
    if isinstance(error, TimeoutError):
        return UpstreamTimeout(f"{source.name} at {source.url} took the request and did not answer in time.")
    if isinstance(error, aiohttp.InvalidURL):
        return UpstreamUnreachable(f"{source.url} is not an address that can be reached: {error}.")
    if isinstance(error, aiohttp.ClientResponseError):
        return UpstreamError(f"What answers at {source.url} does not speak HTTP. Put the right address into base_url.")
    return StreamCut(f"{source.name} at {source.url} closed the connection before it answered ({what_failed(error)}).")


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
        return UpstreamBusy(message, status=status, retry_after=seconds_to_wait(headers.get("Retry-After")))
    if NO_MEDIA.search(text):
        return _refused_media(text, source)
    if _names_lost_model(text):
        return _lost_model(text, source)
    if 400 <= status < 500:
        code, param = _code_and_param(body)
        message = f"{source.name} refuses the request: {text}"
        return UpstreamRejected(message, status=status, code=code, param=param)
    return UpstreamError(f"{source.name} failed with status {status}: {text}")


def failure_of(error: Any, source: Source) -> ElbowroomError:
    """Translate an error that came inside a 200: in a stream, or as the body of an unknown path."""
    text = source.quote(error_text(error))
    whole = json.dumps(error, ensure_ascii=False) if not isinstance(error, str) else error
    if overflow := recognise_overflow(whole):
        return overflow_error(overflow, text, source)
    if NO_MEDIA.search(text):
        return _refused_media(text, source)
    if _names_lost_model(text):
        return _lost_model(text, source)
    return UpstreamError(f"{source.name} reports an error: {text}")


def not_json(body: bytes, source: Source) -> UpstreamError:
    """Say that something came that cannot be read, and how it begins."""
    return UpstreamError(f"{source.name} sent something that is not JSON: {source.quote(_excerpt(body))}")


def seconds_to_wait(header: str | None) -> int | None:
    """Return the seconds that a Retry-After header asks for, an hour at most; None where it makes no sense.

    A date is turned into the seconds that are left until then.
    """
    written = (header or "").strip()
    if len(written) > LONGEST_RETRY_AFTER:
        return None
    if written.isascii() and written.isdigit():
        return min(int(written), LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(written)
        left = (until if until.tzinfo else until.replace(tzinfo=UTC)).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(0, math.ceil(left)), LONGEST_WAIT)


def _names_lost_model(text: str) -> bool:
    return any(words in text.lower() for words in LOST_MODEL)


def _refused_media(text: str, source: Source) -> MediaRefused:
    remedy = "Choose a model that takes pictures or sounds, or leave them out of the conversation."
    return MediaRefused(f"{remedy} {source.name} refuses the request: {text}", status=400)


def _lost_model(text: str, source: Source) -> ModelUnavailable:
    return ModelUnavailable(f"{source.name} does not have the model ready: {text} Load it there and ask again.")


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


def _text_of_body(body: bytes) -> str:
    try:
        return error_text(json.loads(body))
    except (ValueError, RecursionError):
        return _excerpt(body) or "no explanation was given"


def _excerpt(body: bytes) -> str:
    """Return the first words of a body that is not JSON; of a page, what a person would see of it."""
    text = body[: 2**13].decode("utf-8", "replace")
    if "<" in text:
        text = MARKUP.sub(" ", text)
    return " ".join(text.split())[:EXCERPT]


def _code_and_param(body: bytes) -> tuple[str | None, str | None]:
    try:
        error = json.loads(body)["error"]
        code, param = error.get("code"), error.get("param")
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None, None
    return (code if isinstance(code, str) else None), (param if isinstance(param, str) else None)


@dataclass(frozen=True, slots=True)
class Overflow:
    """A prompt that was too long: its size and the window, in tokens, where the engine named them."""

    window: int | None = None
    prompt_tokens: int | None = None


WORDINGS: Final = tuple(
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


def overflow_error(overflow: Overflow, text: str, source: Source) -> ContextOverflow:
    """Say that the prompt did not fit, in the form every client library recognises."""
    window = f"{overflow.window} tokens" if overflow.window else "smaller than this request"
    return ContextOverflow(
        "Shorten the conversation, or load the model with a larger context length. "
        f"This model's maximum context length is {window}. {source.name} says: {text}",
        window=overflow.window,
        prompt_tokens=overflow.prompt_tokens,
    )
