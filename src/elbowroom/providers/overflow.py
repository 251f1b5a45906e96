"""The wordings in which engines say that a prompt does not fit, with the numbers they name.

LM Studio has seven of its own (they come as a 400 and inside a stream that began with 200), llama.cpp, vLLM and
OpenAI one or two each. Patterns look only at the part of a sentence that stayed the same over versions.
"""

import re
from dataclasses import dataclass


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
