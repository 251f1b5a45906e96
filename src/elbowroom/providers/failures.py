"""What upstreams say when something fails, translated into elbowroom's errors.

LM Studio sends most errors as a 400 with a bare string, some as a 200 with an `error` key (an unknown path), and
in a stream that has begun as an `event: error`. Other servers send objects in two shapes.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from elbowroom.errors import (
    ContextOverflow,
    ElbowroomError,
    ModelUnavailable,
    UpstreamBusy,
    UpstreamError,
    UpstreamRejected,
)
from elbowroom.providers.overflow import Overflow, recognise_overflow
from elbowroom.providers.upstream_json import parse_upstream_json

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
