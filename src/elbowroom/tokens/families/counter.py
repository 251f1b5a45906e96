"""Counts text and whole conversations for a family of models, without a file of the model."""

import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from elbowroom.caches import Recent
from elbowroom.tokens.count import TokenCount
from elbowroom.tokens.errors import TemplateFailed
from elbowroom.tokens.families.families import SAME, SPECIAL_TOKENS, Family, Ratios, template_source
from elbowroom.tokens.families.vocabularies import bundled_tokenizer
from elbowroom.tokens.files import SegmentCounter, Tokenizer, special_token_pattern
from elbowroom.tokens.templates import (
    Capabilities,
    ChatTemplate,
    Message,
    canonical_messages,
    canonical_tools,
    fit_messages,
    script_runs,
)

TEXT_ONLY: Final = Capabilities()
THINKING: Final = re.compile(r"^\s*<think>.*?</think>\s*", re.DOTALL)


class FamilyCounter:
    """Counts for one family; pieces of prompts are remembered, and any thread may use it.

    A prompt of 100,000 tokens takes some 50 milliseconds the first time and under ten after that: too long for an
    event loop, which constructs and calls this in a thread.
    """

    def __init__(self, family: Family) -> None:
        self.family = family
        specials = SPECIAL_TOKENS[family.format]
        self._specials = special_token_pattern(specials)
        self._segments = SegmentCounter(bundled_tokenizer(family.vocabulary, specials))
        self.tokenizer = self._segments.tokenizer
        self._correction = ScriptCorrection(self.tokenizer, family.ratios)
        self._template = ChatTemplate(template_source(family.format), name=family.name, dialect="own")

    def count_text(self, text: str) -> int:
        """Return about how many tokens a text takes."""
        tokens = self._segments.count(text)
        ratios = self.family.ratios
        if ratios is SAME or (ratios.text == 1 and text.isascii()):
            return tokens
        specials = len(self._specials.findall(text)) if self._specials else 0
        correction = self._correction.of(self._segments.pieces(text))
        return specials + round(ratios.text * (tokens - specials) + correction)

    def count_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> TokenCount:
        """Return about how many tokens the prompt for OpenAI-style messages and tools takes; images count nothing.

        A conversation that ends with an assistant message is one to continue, unless `add_generation_prompt` is
        False: then that message is finished. `arguments` are those for the template, such as `enable_thinking`.
        """
        prompt = self.prompt(messages, tools, arguments=arguments, add_generation_prompt=add_generation_prompt)
        added = self.family.preamble.always
        if not (messages and messages[0].get("role") == "system"):
            added += self.family.preamble.without_system
        if tools:
            added += self.family.preamble.with_tools
        return self.family.counted(self.count_text(prompt) + added)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the conversation in the family's format, without the sentences that real templates add."""
        fitted = with_reasoning_of(self.family, fit_messages(canonical_messages(messages), TEXT_ONLY))
        if self.family.format != "harmony":
            fitted = [
                {**message, "role": "system"} if message["role"] == "developer" else message for message in fitted
            ]
        continues = add_generation_prompt and bool(fitted) and fitted[-1]["role"] == "assistant"
        variables = {
            **dict.fromkeys(self.family.options, True),
            **(arguments or {}),
            "messages": fitted,
            "tools": canonical_tools(tools),
            "add_generation_prompt": add_generation_prompt,
            "continues": continues and not fitted[-1].get("tool_calls"),
        }
        try:
            return self._template.evaluate(variables)
        except TemplateFailed:  # tools may be described by anything at all, and a count is needed all the same
            return json.dumps([fitted, variables["tools"]], ensure_ascii=False)


def with_reasoning_of(family: Family, messages: list[Message]) -> list[Message]:
    """Return canonical messages with as much of the thinking in them as the family's templates keep."""
    kept_from = len(messages)
    if family.reasoning == "until answered":
        kept_from = max((place for place, message in enumerate(messages) if message["role"] == "user"), default=-1)
    no_thinking = {"reasoning_content": ""} if "always_thinks" in family.options else {}
    return [
        message
        if message["role"] != "assistant"
        else without_reasoning(message)
        if place < kept_from
        else no_thinking | message
        for place, message in enumerate(messages)
    ]


def without_reasoning(message: Message) -> Message:
    """Return an answer without its thinking, whether that stands beside the text or in front of it in tags."""
    if "reasoning_content" not in message and "<think>" not in message["content"]:
        return message
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    return {**rest, "content": THINKING.sub("", rest["content"])}


CAPACITY: Final = 20_000
DIGEST_BYTES: Final = 16


class ScriptCorrection:
    """Corrects counts script by script; the corrections of pieces used last are remembered, under their digests."""

    def __init__(self, tokenizer: Tokenizer, ratios: Ratios, *, capacity: int = CAPACITY) -> None:
        self._tokenizer = tokenizer
        self._ratios = ratios
        self._known = Recent[bytes, float]("script_corrections", capacity)
        self._lock = threading.Lock()

    def of(self, pieces: Iterable[str]) -> float:
        """Return the tokens to add for the scripts in a text given in pieces, beyond the ratio for all text."""
        if not self._ratios.scripts:
            return 0.0
        return sum(self._of_piece(piece) for piece in pieces if not piece.isascii())

    def _of_piece(self, piece: str) -> float:
        digest = blake2b(piece.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        with self._lock:
            known = self._known.get(digest)
            if known is not None:
                return known
        correction = self._calculated(piece)
        with self._lock:
            self._known.put(digest, correction)
        return correction

    def _calculated(self, piece: str) -> float:
        ratios = self._ratios
        return sum(
            (ratios.scripts[script] - ratios.text) * self._tokenizer.count(run)
            for script, run in script_runs(piece).items()
            if script in ratios.scripts
        )
