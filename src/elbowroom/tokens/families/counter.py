"""Counts text and whole conversations for a family of models, without a file of the model."""

import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from elbowroom.caches import HISTORIES, Recent
from elbowroom.tokens.anchoring import digest_of
from elbowroom.tokens.count import Method, TokenCount
from elbowroom.tokens.errors import TemplateFailed, TemplateOverran
from elbowroom.tokens.families.families import SPECIAL_TOKENS, Family, template_source
from elbowroom.tokens.families.ratios import SAME, Ratios
from elbowroom.tokens.families.scripts import script_runs
from elbowroom.tokens.families.vocabularies import VocabularyName, bundled_tokenizer
from elbowroom.tokens.files import SegmentCounter, Tokenizer, special_token_pattern
from elbowroom.tokens.templates import (
    Capabilities,
    ChatTemplate,
    Message,
    canonical_messages,
    canonical_tools,
    fit_messages,
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
        self._scripts = ScriptCorrection(self.tokenizer, family.ratios, family.error.p95)
        self._template = ChatTemplate(template_source(family.format), name=family.name, dialect="own")

    def count_text(self, text: str) -> int:
        """Return about how many tokens a text takes."""
        return self._measured(text)[0]

    def count(self, text: str) -> TokenCount:
        """Return about how many tokens a text takes, and how far that may be off by the scripts in it."""
        return self._counted(*self._measured(text))

    def _measured(self, text: str) -> tuple[int, float]:
        """Return about how many tokens a text takes, and the tokens that its scripts may be off beyond other text."""
        tokens = self._segments.count(text)
        ratios = self.family.ratios
        if ratios is SAME or (ratios.text == 1 and text.isascii()):
            return tokens, 0.0
        specials, marks, may_correct = 0, self._specials, self._scripts.may_correct
        pieces: Iterable[str] = filter(may_correct, self._segments.pieces(text) if may_correct(text) else ())
        if marks is not None:
            specials = len(marks.findall(text))
            # DeepSeek's special tokens have signs in them that Chinese text has, too.
            pieces = (marks.sub("", piece) for piece in pieces)
        correction, doubt = self._scripts.of(pieces)
        return specials + round(ratios.text * (tokens - specials) + correction), doubt

    def _counted(self, tokens: int, doubt: float) -> TokenCount:
        method: Method = "family" if self.family.has_vocabulary else "estimate"
        return TokenCount(tokens, method, self.family.error_of(tokens, doubt))

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
        tokens, doubt = self._measured(prompt)
        return self._counted(tokens + added, doubt)

    def knows(self, messages: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether these messages, but for the last few, were counted before, so that it takes little time."""
        return self._template.knows(messages)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        *,
        arguments: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the conversation in the family's format, without the sentences that real templates add."""
        fitted = fitted_for(self.family, messages)
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
        except TemplateOverran:
            variables.clear()
            fitted.clear()  # whose texts may be copies, each as large as a body
        except TemplateFailed:  # tools may be described by anything at all, and a count is needed all the same
            return json.dumps([fitted, variables["tools"]], ensure_ascii=False)
        return json.dumps([canonical_messages(messages), canonical_tools(tools)], ensure_ascii=False)


def fitted_for(family: Family, messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return messages as the templates of families take them, with as much of the thinking as those of one keep."""
    history = HISTORIES.of(messages)
    fitted: list[Message] = history.known(fitted_for)
    fitted += fit_messages(canonical_messages(history.messages[len(fitted) :]), TEXT_ONLY)
    history.keep(fitted_for, fitted)
    bare: list[Message] = history.known(without_reasoning)
    bare += map(without_reasoning, fitted[len(bare) :])
    history.keep(without_reasoning, bare)
    kept_from = len(fitted)
    if family.reasoning == "until answered":
        kept_from = max((place for place, message in enumerate(fitted) if message["role"] == "user"), default=0)
    kept = fitted[kept_from:]
    if "always_thinks" in family.options:
        kept = [{"reasoning_content": ""} | message if message["role"] == "assistant" else message for message in kept]
    return [*bare[:kept_from], *kept]


def without_reasoning(message: Message) -> Message:
    """Return an answer without its thinking, whether that stands beside the text or in front of it in tags.

    Any other message is returned as it is.
    """
    is_answer = message["role"] == "assistant"
    if not is_answer or ("reasoning_content" not in message and "<think>" not in message["content"]):
        return message
    rest = {key: value for key, value in message.items() if key != "reasoning_content"}
    return {**rest, "content": THINKING.sub("", rest["content"])}


CAPACITY: Final = 20_000


INDENTED: Final = re.compile(r"\n[ \t]")
Correction = tuple[float, float]
"""The tokens to add to a count, and how many tokens it may be off beyond the error of other text."""


class ScriptCorrection:
    """Corrects counts script by script; the corrections of pieces used last are remembered, under their digests.

    `error` is that of text without scripts of its own, as a share.
    """

    def __init__(self, tokenizer: Tokenizer, ratios: Ratios, error: float, *, capacity: int = CAPACITY) -> None:
        self._ratios = ratios
        self._tokenizer = tokenizer
        self._error = error
        self._known = Recent[bytes, Correction]("script_corrections", capacity)
        self._lock = threading.Lock()

    def of(self, pieces: Iterable[str]) -> Correction:
        """Return the correction of a text given in pieces."""
        found = list(map(self._of_piece, filter(self.may_correct, pieces)))
        return sum(tokens for tokens, _ in found), sum(doubt for _, doubt in found)

    def may_correct(self, text: str) -> bool:
        """Tell whether a text may need a correction."""
        return bool(self._ratios.indent) or not text.isascii()

    def _of_piece(self, piece: str) -> Correction:
        digest = digest_of(piece)
        with self._lock:
            known = self._known.get(digest)
            if known is not None:
                return known
        correction = self._calculated(piece)
        with self._lock:
            self._known.put(digest, correction)
        return correction

    def _calculated(self, piece: str) -> Correction:
        tokens = self._ratios.indent * len(INDENTED.findall(piece)) if self._ratios.indent else 0.0
        doubt = 0.0
        for script, run in script_runs(piece).items():
            if (scale := self._ratios.scripts.get(script)) is not None:
                near = sum(weight * self._tokenizer_of(name).count(run) for name, weight in scale.weights.items())
                tokens += near - self._ratios.text * self._tokenizer.count(run)
                doubt += max(0.0, scale.error - self._error) * near
        return tokens, doubt

    def _tokenizer_of(self, name: VocabularyName) -> Tokenizer:
        """Return the tokenizer over a vocabulary, which takes memory from the first text on that needs it."""
        return self._tokenizer if name == self._tokenizer.name else bundled_tokenizer(name, frozenset())
