"""The simulator's own small tokenizer, and the protocol of real ones that tests use instead."""

import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]] | None
CountTokens = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], int]

IMAGE_TOKENS = 256
_IMAGE_MARK = "<|image_pad|>"
_VOCABULARY = 151_936
_IDS_KEPT = 65_536
_PIECE = re.compile(r"<\|\w+\|>|\s?[^\W\d_]{1,6}|[^\W\d_]{1,6}|\d{1,3}|\s+|[^\w\s]|_")


class Tokenizer(Protocol):
    """Turns prompts and texts into tokens, the way one model does.

    A chat template that refuses the messages raises ValueError.
    """

    def count_tokens(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> int:
        """Count a whole prompt as the engine reads it, tools, template and all."""

    def split(self, text: str) -> list[str]:
        """Cut generated text into the pieces that are streamed one by one; joined they are the text."""

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> str:
        """Return the prompt as text, for the websocket's `applyPromptTemplate`."""

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text, for the websocket's `tokenize`."""


class SimulatedTokenizer:
    """A deterministic stand-in: ChatML around every message, pieces of at most six letters or three digits.

    It is no real vocabulary. Token ids are checksums of the pieces; an image counts as
    `IMAGE_TOKENS`.
    """

    def split(self, text: str) -> list[str]:
        """Cut text into the pieces that count as one token each; joined they give the text back."""
        return _PIECE.findall(text)

    def encode(self, text: str) -> list[int]:
        """Return one id a piece; equal pieces have equal ids."""
        return list(map(_id_of, self.split(text)))

    def render(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> str:
        """Return the prompt as the model would read it, up to where its answer begins."""
        head = f"<|im_start|>tools\n{json.dumps(tools)}<|im_end|>\n" if tools else ""
        turns = (f"<|im_start|>{_role(message)}\n{message_text(message)}<|im_end|>\n" for message in messages)
        return head + "".join(turns) + "<|im_start|>assistant\n"

    def count_tokens(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> int:
        """Return the tokens of the whole prompt."""
        rendered = self.render(messages, tools)
        return len(self.split(rendered)) + (IMAGE_TOKENS - 1) * rendered.count(_IMAGE_MARK)


@lru_cache(maxsize=_IDS_KEPT)
def _id_of(piece: str) -> int:
    return zlib.crc32(piece.encode()) % _VOCABULARY


class CountingWith:
    """A tokenizer that counts or splits with given functions, and does the rest like another one."""

    def __init__(self, base: Tokenizer, count_tokens: CountTokens | None, split: Callable[[str], list[str]] | None):
        self.count_tokens = count_tokens or base.count_tokens
        self.split = split or base.split
        self.render = base.render
        self.encode = base.encode


def _role(message: Mapping[str, Any]) -> Any:
    """Return the role that the template is given: llama.cpp takes a developer for the system."""
    return "system" if message.get("role") == "developer" else message.get("role")


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text that the model reads of one message: its content, its tool calls, a mark for each image."""
    calls = message.get("tool_calls") or ()
    return content_text(message.get("content")) + "".join(json.dumps(call.get("function")) for call in calls)


def content_text(content: object) -> str:
    """Return the text of a message's content, which may be a string, a list of parts or nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(_part_text(part) for part in content if isinstance(part, dict))


def _part_text(part: Mapping[str, Any]) -> str:
    return _IMAGE_MARK if part.get("type") == "image_url" else str(part.get("text") or "")
