"""Recognises results that are errors, and finds the error's own words within the envelope they came in."""

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

LONGEST_PLAIN_ERROR: Final = 4000
"""Characters up to which the first words of a text can make it an error; a longer one is a document that has them."""

LAST_WORDS: Final = 200
MOST_ENVELOPES: Final = 3
CONTENT: Final = re.compile(r"(?:meta=.{0,200}?\s)?content=\[TextContent\(", re.DOTALL)
TEXT: Final = re.compile(r"""TextContent\(type='text', text=('(?:[^'\\]|\\.)*+'|"(?:[^"\\]|\\.)*+")""", re.DOTALL)
SAYS_ERROR: Final = re.compile(r"\bisError=True\s*\Z")
BEGINNING: Final = re.compile(
    r"[\s\[(<!*❌✗-]{0,4}(?:Traceback \(most recent call last\)|panic:|fatal\b"
    r"|(?:error|exception|failure|failed)\b"
    r"|[\w.]*(?:Error|Exception)\b\s*[:(\[]"
    r"|[^\n:]{0,40}\b(?:error|exception)\b\s*[:\[(]"
    r"|(?:the |this )?(?:tool|call|tool call|request|command)\b[^\n]{0,40}\b(?:failed|timed out|not found)\b)",
    re.IGNORECASE,
)
EXIT: Final = re.compile(
    r"\b(?:exit(?:ed)?(?: with)?[ _-]?(?:code|status)|return[ _-]?code|exited with)\b[\"']?\s*[:=]?\s*-?[1-9]\d*\b",
    re.IGNORECASE,
)
HINTS: Final = re.compile(
    r"is_?error\\*[\"']?\s*[:=]\s*true|\\*\"(?:error|errors|status|result|success|ok|exit_?code|return_?code)\\*\"\s*:",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A result's own words, and whether the envelope around them said that they are an error."""

    text: str
    is_error: bool = False


def is_error(text: str) -> bool:
    """Tell whether a result is an error."""
    return error_in(text) is not None


def error_in(text: str) -> str | None:
    """Return an error's own words, without an envelope around them and otherwise word for word; None for a success."""
    if _is_enveloped(text) and not HINTS.search(text) and not SAYS_ERROR.search(text[-LAST_WORDS:]):
        return _plain_error(unwrapped(text).text) if len(text) <= LONGEST_PLAIN_ERROR else None
    found = unwrapped(text)
    return found.text if found.is_error else _plain_error(found.text)


def unwrapped(text: str) -> Unwrapped:
    """Return what a result says within the envelopes of a tool server: JSON, or what Python prints for it."""
    found = Unwrapped(text)
    for _ in range(MOST_ENVELOPES):
        inner = _opened(found.text)
        if inner is None:
            break
        found = Unwrapped(inner.text, found.is_error or inner.is_error)
    return found


def _is_enveloped(text: str) -> bool:
    return text.lstrip()[:1] == "{" or CONTENT.match(text) is not None


def _plain_error(text: str) -> str | None:
    is_short = len(text) <= LONGEST_PLAIN_ERROR
    ends = f"{text[:LAST_WORDS]}\n{text[-LAST_WORDS:]}"
    begins = BEGINNING.match(text) if is_short or text.startswith("Traceback (most") else None
    return text if begins or EXIT.search(ends) else None


def _opened(text: str) -> Unwrapped | None:
    """Return what is in the outermost envelope, None where there is none."""
    if CONTENT.match(text):
        return _printed(text)
    if text.lstrip()[:1] != "{":
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _from_json(value, text) if isinstance(value, Mapping) else None


def _printed(text: str) -> Unwrapped | None:
    try:
        texts = [str(ast.literal_eval(literal)) for literal in TEXT.findall(text)]
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return Unwrapped("\n".join(texts), SAYS_ERROR.search(text) is not None) if texts else None


def _from_json(value: Mapping[str, Any], text: str) -> Unwrapped | None:
    """Return the texts of a tool server's answer; JSON of any other form stays text, and may call itself an error."""
    says_error = value.get("isError") is True or value.get("is_error") is True
    content = value.get("content")
    if isinstance(content, list) and content and all(map(_is_text_part, content)):
        return Unwrapped("\n".join(part["text"] for part in content), says_error)
    failed = says_error or any(map(_has_failed, [value, *value.values()]))
    return Unwrapped(text, is_error=True) if failed else None


def _has_failed(value: object) -> bool:
    """Tell whether JSON calls itself an error, by one of the ways that are common."""
    if not isinstance(value, Mapping):
        return False
    codes = (value.get(key) for key in ("exit_code", "exitCode", "returncode", "return_code"))
    return (
        bool(value.get("error") or value.get("errors"))
        or any(str(value.get(key)).casefold() in ("error", "failed", "failure") for key in ("status", "result"))
        or value.get("success") is False
        or value.get("ok") is False
        or any(isinstance(code, int) and code != 0 for code in codes)
    )


def _is_text_part(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
