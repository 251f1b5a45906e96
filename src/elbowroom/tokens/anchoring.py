"""Corrects estimates of a conversation's size by what the engine has counted of it before.

A count made here differs from the engine's `usage.prompt_tokens` by its error about the messages so far.
As long as these messages stay, that difference stays: the next count of the same conversation, grown by new
messages, is corrected by it, and can only be wrong about what is new. Everything is added, nothing multiplied: a
ratio would carry the error of one text over to another. This also holds for templates that rewrite history, because
both counts are of whole prompts.

Nothing here does any I/O or knows how counts are made.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from elbowroom.caches import HISTORIES, Recent

CAPACITY: Final = 4096
HASHED_AT_ONCE: Final = 2**18
"""Characters of a text that are hashed at once."""
DIGEST_BYTES: Final = 16
IN_ORDER: Final = json.JSONEncoder(sort_keys=True, default=str)

Key = int
"""The hash of a beginning of a conversation, of 61 bits with a secret of this process: it is never kept on disk."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answered request as the engine counted them.

    `reasoning_tokens` are those of the completion that are thinking, None where the engine does not tell.
    """

    prompt_tokens: int
    completion_tokens: int = 0
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Anchored:
    """A count, corrected where the engine has counted a beginning of the conversation.

    `estimated` are the tokens of it that no engine has counted: only these can be off by the error of the estimate.
    """

    tokens: int
    estimated: int


@dataclass(frozen=True, slots=True)
class Anchor:
    """How many tokens a conversation's beginning was counted as here, and how many more it really takes."""

    estimate: int
    difference: int


def conversation_keys(
    model: str,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    arguments: Mapping[str, Any] | None = None,
) -> list[Key]:
    """Return a key for every beginning of a conversation, the empty one first: a chain of hashes.

    Two messages are the same if they have the same role, text without the spaces around it, images, and calls by
    name and arguments. Ids of calls, which clients and servers rewrite, and thinking, which they drop, do not count.
    """
    first = hash(IN_ORDER.encode([model, list(tools or ()), dict(arguments or {})]))
    history = HISTORIES.of(messages)
    keys: list[Key] = history.known((next_key, first)) or [first]
    for message in history.messages[len(keys) - 1 :]:
        keys.append(next_key(keys[-1], message))
    history.keep((next_key, first), keys)
    return keys


def next_key(key: Key, message: Mapping[str, Any]) -> Key:
    """Return the key of a beginning with one more message."""
    role, content = message.get("role"), message.get("content")
    if isinstance(role, str) and isinstance(content, str) and not message.get("tool_calls"):
        said = content.strip()
        return hash((key, role, hash(said) if len(said) <= HASHED_AT_ONCE else _hash_of(said)))
    return hash((key, IN_ORDER.encode(_meaning(message))))


def _hash_of(text: str) -> int:
    """Return the hash of a text, which its string keeps, so that it is made once; a large one is hashed in slices."""
    if len(text) <= HASHED_AT_ONCE:
        return hash(text)
    slices = range(0, len(text), HASHED_AT_ONCE)
    return hash(tuple(hash(text[place : place + HASHED_AT_ONCE]) for place in slices))


def digest_of(text: str, start: int = 0, end: int | None = None, *, after: bytes = b"") -> bytes:
    """Return the hash, of 16 bytes, of a text as UTF-8, or of a part of it, that stands after some bytes."""
    end = len(text) if end is None else end
    if end - start <= HASHED_AT_ONCE:
        return blake2b(after + text[start:end].encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
    hashed = blake2b(after, digest_size=DIGEST_BYTES)
    hash_text(hashed, text, start, end)
    return hashed.digest()


def hash_text(hashed: blake2b, text: str, start: int = 0, end: int | None = None) -> None:
    """Hash a text as UTF-8, or a part of it, piece by piece: no copy is made of the whole."""
    end = len(text) if end is None else end
    for place in range(start, end, HASHED_AT_ONCE):
        hashed.update(text[place : min(end, place + HASHED_AT_ONCE)].encode("utf-8", "surrogatepass"))


class UsageAnchors:
    """The anchors of the conversations that were used last; one event loop's or one thread's.

    `capacity` is how many beginnings of conversations are remembered, at about 200 bytes each.
    """

    def __init__(self, *, capacity: int = CAPACITY) -> None:
        self._anchors = Recent[Key, Anchor]("usage_anchors", capacity)

    def __len__(self) -> int:
        return len(self._anchors)

    def observe(self, keys: Sequence[Key], estimate: int, usage: Usage) -> None:
        """Learn from the engine's count of a prompt that was counted here as `estimate`."""
        self._anchors.put(keys[-1], Anchor(estimate, usage.prompt_tokens - estimate))

    def observe_answer(
        self,
        keys: Sequence[Key],
        answer: Mapping[str, Any],
        estimate: int,
        answer_estimate: int,
        usage: Usage,
        *,
        template_strips_reasoning: bool = False,
    ) -> None:
        """Learn from the answer to that request as well, so that its tokens need not be estimated in the next one.

        `answer_estimate` is the count of the answer's text and its end of turn. Where the template strips the
        thinking of earlier answers, its tokens are subtracted; where the engine does not tell them, nothing is
        learned.
        """
        reasoning = usage.reasoning_tokens if template_strips_reasoning else 0
        if reasoning is None:
            return
        difference = usage.prompt_tokens - estimate + usage.completion_tokens - reasoning - answer_estimate
        self._anchors.put(next_key(keys[-1], answer), Anchor(estimate + answer_estimate, difference))

    def corrected(self, keys: Sequence[Key], estimate: int) -> Anchored:
        """Return the count of a prompt, corrected by the anchor of its longest beginning that has one."""
        for key in reversed(keys):
            anchor = self._anchors.get(key)
            if anchor is not None:
                return Anchored(max(0, estimate + anchor.difference), max(0, estimate - anchor.estimate))
        return Anchored(estimate, estimate)


def _meaning(message: Mapping[str, Any]) -> list[Any]:
    """Return the parts of a message that make it the same as another."""
    content = message.get("content")
    calls = [_mapping(_mapping(call).get("function")) for call in message.get("tool_calls") or ()]
    return [
        message.get("role"),
        content.strip() if isinstance(content, str) else _hashed(content),
        [[call.get("name"), _parsed(call.get("arguments"))] for call in calls],
    ]


def _hashed(value: object) -> object:
    """Return a value with hashes in place of its texts, such as images."""
    if isinstance(value, str):
        return [len(value), _hash_of(value)]
    if isinstance(value, Mapping):
        return {key: _hashed(item) for key, item in value.items()}
    return [_hashed(item) for item in value] if isinstance(value, list) else value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _parsed(arguments: object) -> object:
    """Return the arguments of a call as an object where they are one, however they are written."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
