"""How a bare prompt and its continuation fit into a window."""

from dataclasses import dataclass
from typing import Any, Final

from elbowroom.errors import ContextOverflow, RequestError
from elbowroom.tokens.count import Counter

FIRST_TOKEN: Final = 1
"""What engines put before a prompt, and no client sees."""


@dataclass(frozen=True, slots=True)
class Room:
    """Sizes in tokens: the largest of the prompts, what its continuation may have, and the window."""

    prompt: int
    answer: int
    window: int


async def room_for(prompt: Any, asked: Any, counter: Counter, window: int) -> Room:
    """Return how a request fits: where it does not say how long its continuation may be, up to the window's end.

    `prompt` is what OpenAI's route takes: a text, a list of texts, tokens, or a list of such lists. A count that may be
    off is taken at its largest. Raises ContextOverflow where it does not fit, and RequestError.
    """
    sizes = [await _size(one, counter) for one in _prompts(prompt)]
    largest = max(sizes)
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int)):
        raise RequestError("max_tokens has to be a whole number.", param="max_tokens")
    wanted = asked if asked is not None and asked > 0 else None
    if largest + (wanted or 1) > window:
        completion = f" ({largest} of the prompt, {wanted} for the completion)" if wanted else " in the prompt"
        raise _Overflow(
            f"This model's maximum context length is {window} tokens, and this request needs "
            f"{largest + (wanted or 1)}{completion}. Shorten the prompt or max_tokens, or load the model with a larger "
            "context length.",
            window=window,
            prompt_tokens=largest,
        )
    return Room(largest, wanted or window - largest, window)


class _Overflow(ContextOverflow):
    """A bare prompt does not fit."""

    param = "prompt"


def _prompts(prompt: Any) -> list[Any]:
    """Return the single prompts, each a text or a list of tokens."""
    if isinstance(prompt, str) or _is_tokens(prompt):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(one, str) or _is_tokens(one) for one in prompt):
        return prompt
    raise RequestError("prompt has to be a text, a list of texts, or a list of tokens.", param="prompt")


def _is_tokens(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(token) is int for token in value)


async def _size(prompt: Any, counter: Counter) -> int:
    if isinstance(prompt, list):
        return len(prompt)
    count = await counter.count_text(prompt)
    return count.tokens + count.error_bound + FIRST_TOKEN
