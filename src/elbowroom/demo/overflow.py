"""The engine's behaviour when a prompt or an answer does not fit the window."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from elbowroom.demo.tokenizer import IMAGE_TOKENS, Tokenizer, message_text

Policy = Literal["truncateMiddle", "rollingWindow", "stopAtLimit"]
Wording = Literal["A", "B", "C", "D", "E", "F", "G"]

_MESSAGE_OVERHEAD = 5


@dataclass(frozen=True, slots=True)
class Overflow:
    """How the simulated engine behaves at the edge of the window.

    `prompt`: what a prompt over the window gets: what the `policy` says (truncateMiddle cuts silently and
    refuses only what it may not cut), an error of that wording, `empty` (an answer without anything in it)
    or `garbage` (an answer to something nobody asked). `streamed`: whether a streamed request gets such an
    error as an event after status 200, or as status 400. `generation`: what an answer that reaches the end
    of the window gets: an error of that wording or what the policy says (stopAtLimit ends it with `length`,
    the others let it run on). `shared_pool`: whether all requests at work share one window, so that all of
    them die when it is full.
    """

    policy: Policy = "truncateMiddle"
    prompt: Literal["policy", "A", "B", "C", "D", "E", "F", "G", "empty", "garbage"] = "policy"
    generation: Literal["policy", "A", "B", "C", "D", "E", "F", "G"] = "policy"
    streamed: Literal["event", "status"] = "event"
    shared_pool: bool = False


@dataclass(frozen=True, slots=True)
class Reading:
    """The part of a prompt that the model reads: the messages left, their tokens, and how many were dropped.

    `cut_message` tells that the last message lost its beginning too. `outcome` tells whether the model answers, says
    nothing, or answers something else.
    """

    messages: tuple[dict[str, Any], ...]
    prompt_tokens: int
    dropped_messages: int = 0
    cut_message: bool = False
    outcome: Literal["read", "empty", "garbage"] = "read"


class PromptTooLongError(Exception):
    """The engine refuses the prompt; the message is what LM Studio says then."""


def read(
    messages: Sequence[dict[str, Any]],
    total: int,
    sizes: Sequence[int],
    window: int,
    overflow: Overflow,
    architecture: str,
) -> Reading:
    """Return the part of `total` tokens that the model reads; raise PromptTooLongError if it refuses them.

    `sizes` are the tokens of the single messages.
    """
    if total < window:
        return Reading(tuple(messages), total)
    match overflow.prompt:
        case "empty" | "garbage" as outcome:
            return Reading(tuple(messages), total, outcome=outcome)
        case "policy":
            keep = tokens_to_keep(messages, total, sizes, overflow.policy)
            if keep >= window:
                raise PromptTooLongError(wording("A", keep, window, architecture))
            return truncate(messages, total, sizes, window, overflow.policy)
        case name:
            raise PromptTooLongError(wording(name, total, window, architecture))


def wording(name: Wording, tokens: int, window: int, architecture: str) -> str:
    """Return the words in which LM Studio reports `tokens` that do not fit `window`."""
    return {
        "A": "The number of tokens to keep from the initial prompt is greater than the context length "
        f"(n_keep: {tokens}>= n_ctx: {window}). Try to load the model with a larger context length, "
        "or provide a shorter input.",
        "B": f"Trying to keep the first {tokens} tokens when context the overflows. However, the model "
        f"is loaded with context length of only {window} tokens, which is not enough. Try to load the model "
        "with a larger context length, or provide a shorter input",
        "C": f"Input does not fit in context length. The input has {tokens} tokens, but the context length "
        f"only supports {window} tokens.",
        "D": f"Cannot truncate prompt with n_keep ({tokens}) >= n_ctx ({window})",
        "E": "Context size has been exceeded.",
        "F": f"Reached context length of {window} tokens with model (arch: {architecture}) that does not "
        "currently support mid-generation context overflow. Try reloading with a larger context length or "
        "shortening the prompt/chat.",
        "G": f"Input length {tokens} exceeds context length {window}",
    }[name]


def tokens_to_keep(messages: Sequence[dict[str, Any]], total: int, sizes: Sequence[int], policy: Policy) -> int:
    """Return how many tokens the policy must keep: system prompt and first user message, none, or all."""
    match policy:
        case "truncateMiddle":
            return total - sum(sizes[_head(messages) :])
        case "rollingWindow":
            return 0
        case "stopAtLimit":
            return total


def truncate(
    messages: Sequence[dict[str, Any]], total: int, sizes: Sequence[int], window: int, policy: Policy
) -> Reading:
    """Drop the oldest messages that the policy may drop, until the prompt is smaller than the window."""
    first = _head(messages) if policy == "truncateMiddle" else 0
    last = first
    left = total
    while left >= window and last < len(messages) - 1:
        left -= sizes[last]
        last += 1
    kept = (*messages[:first], *messages[last:])
    return Reading(kept, max(1, min(left, window - 1)), last - first, cut_message=left >= window)


def message_sizes(
    messages: Sequence[dict[str, Any]],
    tools: Sequence[dict[str, Any]] | None,
    total: int,
    tokenizer: Tokenizer,
) -> list[int]:
    """Divide the prompt's tokens among its messages and tools by the length of their texts.

    An engine cuts tokens, not messages, and does not ask the chat template again.
    """
    weights = [_weight(message, tokenizer) for message in messages]
    whole = sum(weights) + (len(tokenizer.split(json.dumps(tools))) if tools else 0)
    return [total * weight // whole for weight in weights]


def _head(messages: Sequence[dict[str, Any]]) -> int:
    for index, message in enumerate(messages):
        if message.get("role") == "user":
            return index + 1
    return 1


def _weight(message: dict[str, Any], tokenizer: Tokenizer) -> int:
    content = message.get("content")
    images = sum(part.get("type") == "image_url" for part in content) if isinstance(content, list) else 0
    return len(tokenizer.split(message_text(message))) + images * (IMAGE_TOKENS - 1) + _MESSAGE_OVERHEAD
