"""Finds the family that a model belongs to, and holds the measured facts of each family for counts without a file.

The name is looked at first, since it is more precise than the architecture: a "deepseek-r1-distill-qwen" runs as the
architecture "qwen2" and has Qwen's vocabulary, but DeepSeek's turns. Where the name says nothing, the architecture
that LM Studio or a model's file states decides.

The numbers of every family were measured; docs/counting.md says how. An error bound is never put below half a per
cent and two per cent, although the count was exact where it was measured: templates differ within a family.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from math import ceil
from typing import Final, Literal

from elbowroom.tokens.families.ratios import (
    COMMAND_R_RATIOS,
    DEEPSEEK_RATIOS,
    GEMMA_RATIOS,
    GRANITE_RATIOS,
    LLAMA2_RATIOS,
    LLAMA3_RATIOS,
    QWEN35_RATIOS,
    SAME,
    UNKNOWN_RATIOS,
    Ratios,
)
from elbowroom.tokens.families.vocabularies import VocabularyName

Format = Literal[
    "chatml",
    "command",
    "deepseek",
    "gemma",
    "gemma4",
    "granite",
    "harmony",
    "llama2",
    "llama3",
    "mistral",
    "phi",
    "tekken",
]

SPECIAL_TOKENS: Final[Mapping[Format, frozenset[str]]] = {
    "chatml": frozenset(
        {"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<think>", "</think>"}
    ),
    "command": frozenset(
        {
            "<BOS_TOKEN>",
            "<|START_OF_TURN_TOKEN|>",
            "<|END_OF_TURN_TOKEN|>",
            "<|USER_TOKEN|>",
            "<|CHATBOT_TOKEN|>",
            "<|SYSTEM_TOKEN|>",
        }
    ),
    "deepseek": frozenset(
        {
            "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
            "<\uff5cend\u2581of\u2581sentence\uff5c>",
            "<\uff5cUser\uff5c>",
            "<\uff5cAssistant\uff5c>",
            *(
                f"<\uff5ctool\u2581{part}\u2581{end}\uff5c>"
                for part in ("calls", "call", "outputs", "output")
                for end in ("begin", "end")
            ),
            "<\uff5ctool\u2581sep\uff5c>",
        }
    ),
    "gemma": frozenset({"<bos>", "<start_of_turn>", "<end_of_turn>"}),
    "gemma4": frozenset(
        {
            *("<bos>", "<|turn>", "<turn|>", "<|think|>", "<|channel>", "<channel|>", '<|"|>', "<|tool>", "<tool|>"),
            *("<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
        }
    ),
    "granite": frozenset({"<|start_of_role|>", "<|end_of_role|>", "<|end_of_text|>", "<|tool_call|>"}),
    "harmony": frozenset(
        {"<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"}
    ),
    "llama2": frozenset({"<s>", "</s>"}),
    "llama3": frozenset({"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>"}),
    "mistral": frozenset(
        {
            *("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
            *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
        }
    ),
    "phi": frozenset({"<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>"}),
    "tekken": frozenset(
        {
            *("<s>", "</s>", "[INST]", "[/INST]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            *("[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"),
            *("[TOOL_RESULTS]", "[TOOL_CONTENT]", "[/TOOL_RESULTS]"),
        }
    ),
}
"""The texts that are one token each in a format."""


def template_source(name: Format) -> str:
    """Return the Jinja source of a format.

    It has the family's marks and order, not the sentences that real templates add, which the preamble counts.
    """
    return files("elbowroom.tokens").joinpath("family_templates", f"{name}.jinja").read_text(encoding="utf-8")


FEW_TOKENS: Final = 3
"""How far off even a short prompt may be: templates trim texts and join line breaks in ways of their own."""
Reasoning = Literal["until answered", "dropped"]


@dataclass(frozen=True, slots=True)
class ErrorBound:
    """How far a count of text without scripts of its own may be off, as a share: in half of all cases, in 95 of 100."""

    median: float
    p95: float


@dataclass(frozen=True, slots=True)
class Preamble:
    """Tokens of sentences that a model's template writes by itself: always, without a system message, with tools."""

    always: int = 0
    without_system: int = 0
    with_tools: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Family:
    """Models that cut text alike and lay out conversations alike.

    `has_vocabulary` says whether the vocabulary is the family's own, not just the nearest one that may be shipped.
    `reasoning` says what its templates do with the thinking of earlier answers. `options` are the switches of its
    format that are on. With `drops_tools` its templates leave the tools out that are offered.
    """

    name: str
    vocabulary: VocabularyName
    format: Format
    error: ErrorBound
    has_vocabulary: bool = False
    ratios: Ratios = SAME
    preamble: Preamble = Preamble()
    reasoning: Reasoning = "dropped"
    options: frozenset[str] = frozenset()
    drops_tools: bool = False

    def error_of(self, tokens: int, doubt: float = 0.0) -> int:
        """Return how far off a count of so many tokens may be, `doubt` of them for the scripts in it."""
        return ceil(tokens * self.error.p95 + doubt) + FEW_TOKENS if tokens else 0

    @property
    def largest_error(self) -> float:
        """How far a count may be off in the least certain script, as a share of it."""
        return max((scale.error for scale in self.ratios.scripts.values()), default=0.0)


LLAMA3: Final = Family(
    "llama3",
    "cl100k",
    "llama3",
    ErrorBound(0.005, 0.06),
    ratios=LLAMA3_RATIOS,
    preamble=Preamble(always=21, with_tools=56),
)
LLAMA2: Final = Family("llama2", "mistral", "llama2", ErrorBound(0.01, 0.12), ratios=LLAMA2_RATIOS, drops_tools=True)
MISTRAL: Final = Family("mistral", "mistral", "mistral", ErrorBound(0.005, 0.02), has_vocabulary=True)
TEKKEN: Final = Family("tekken", "tekken", "tekken", ErrorBound(0.005, 0.02), has_vocabulary=True)
NEMO: Final = replace(TEKKEN, name="nemo", format="mistral")
MISTRAL_SMALL: Final = replace(TEKKEN, name="mistral-small", preamble=Preamble(without_system=503))
QWEN2: Final = Family(
    "qwen2",
    "qwen",
    "chatml",
    ErrorBound(0.005, 0.02),
    has_vocabulary=True,
    preamble=Preamble(without_system=21, with_tools=71),
)
QWEN3: Final = replace(QWEN2, name="qwen3", reasoning="until answered", preamble=Preamble(with_tools=71))
QWEN3_CODER: Final = replace(
    QWEN2, name="qwen3-coder", preamble=Preamble(with_tools=167), options=frozenset({"xml_tools", "xml_calls"})
)
QWEN35: Final = replace(
    QWEN3,
    name="qwen3.5",
    ratios=QWEN35_RATIOS,
    preamble=Preamble(always=2, with_tools=178),
    options=frozenset({"xml_calls", "always_thinks"}),
)
GPT_OSS: Final = Family(
    "gpt-oss",
    "o200k",
    "harmony",
    ErrorBound(0.005, 0.02),
    has_vocabulary=True,
    preamble=Preamble(always=57, with_tools=14),
    reasoning="until answered",
)
GPT: Final = Family("gpt", "o200k", "chatml", ErrorBound(0.01, 0.03), has_vocabulary=True)
DEEPSEEK: Final = Family("deepseek", "o200k", "deepseek", ErrorBound(0.03, 0.13), ratios=DEEPSEEK_RATIOS)
DEEPSEEK_LLAMA: Final = replace(
    LLAMA3,
    name="deepseek-distill-llama",
    format="deepseek",
    error=ErrorBound(0.01, 0.07),
    preamble=Preamble(always=2),
    options=frozenset({"fenced_calls"}),
)
DEEPSEEK_QWEN: Final = replace(
    QWEN2,
    name="deepseek-distill-qwen",
    format="deepseek",
    preamble=Preamble(always=3),
    options=frozenset({"fenced_calls"}),
)
GEMMA: Final = Family(
    "gemma", "o200k with digits", "gemma", ErrorBound(0.03, 0.22), ratios=GEMMA_RATIOS, drops_tools=True
)
GEMMA4: Final = replace(GEMMA, name="gemma4", format="gemma4", drops_tools=False)
PHI3: Final = Family("phi3", "mistral", "phi", ErrorBound(0.01, 0.12), ratios=LLAMA2_RATIOS, drops_tools=True)
PHI4: Final = Family("phi4", "cl100k", "chatml", ErrorBound(0.01, 0.03), has_vocabulary=True)
PHI4_MINI: Final = Family("phi4-mini", "o200k", "phi", ErrorBound(0.01, 0.03), has_vocabulary=True)
COMMAND_A: Final = Family("command-a", "o200k with digits", "command", ErrorBound(0.03, 0.26), ratios=COMMAND_R_RATIOS)
COMMAND_R: Final = replace(COMMAND_A, name="command-r", drops_tools=True)
COMMAND_R7B: Final = replace(
    COMMAND_A, name="command-r7b", error=ErrorBound(0.035, 0.26), preamble=Preamble(always=520, with_tools=660)
)
GRANITE: Final = Family(
    "granite",
    "qwen",
    "granite",
    ErrorBound(0.03, 0.22),
    ratios=GRANITE_RATIOS,
    preamble=Preamble(without_system=48, with_tools=20),
)
UNKNOWN: Final = Family("unknown", "o200k with digits", "chatml", ErrorBound(0.1, 0.5), ratios=UNKNOWN_RATIOS)

NAMES: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), family)
    for pattern, family in (
        (r"deepseek.*distill.*llama", DEEPSEEK_LLAMA),
        (r"deepseek.*qwen", DEEPSEEK_QWEN),
        (r"gpt[-_. ]?oss", GPT_OSS),
        (r"qwen[-_. ]?3[-_. ]?coder", QWEN3_CODER),
        (r"qwen[-_. ]?3\.[5-9]", QWEN35),
        (r"qwen[-_. ]?3|qwq", QWEN3),
        (r"qwen", QWEN2),
        (r"llama[-_. ]?[34]", LLAMA3),
        (r"llama[-_. ]?2|code[-_. ]?llama|tiny[-_. ]?llama|vicuna", LLAMA2),
        (r"mistral[-_. ]?small.*2409", MISTRAL),
        (r"nemo(?!tron)|pixtral|ministral[-_. ]?8b", NEMO),
        (r"mistral[-_. ]?small", MISTRAL_SMALL),
        (r"ministral|devstral|magistral|voxtral|mistral[-_. ]?(?:medium|large[-_. ]?3)", TEKKEN),
        (r"mistral|mixtral|codestral|mathstral|zephyr", MISTRAL),
        (r"gemma[-_. ]?4", GEMMA4),
        (r"gemma", GEMMA),
        (r"phi[-_. ]?4[-_. ]?m", PHI4_MINI),
        (r"phi[-_. ]?4", PHI4),
        (r"phi[-_. ]?3", PHI3),
        (r"command[-_. ]?r7b", COMMAND_R7B),
        (r"command[-_. ]?a", COMMAND_A),
        (r"command[-_. ]?r|\baya\b", COMMAND_R),
        (r"granite", GRANITE),
        (r"deepseek", DEEPSEEK),
        (r"gpt", GPT),
    )
)
"""Patterns in a model's name, the most precise first."""

ARCHITECTURES: Final[Mapping[str, Family]] = {
    **dict.fromkeys(("qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen2_moe", "qwen2_vl", "qwen2_5_vl"), QWEN2),
    **dict.fromkeys(
        (
            "qwen3",
            "qwen3moe",
            "qwen3_moe",
            "qwen3vl",
            "qwen3vlmoe",
            "qwen3_vl",
            "qwen3_vl_moe",
            "qwen3next",
            "qwen3_next",
        ),
        QWEN3,
    ),
    **dict.fromkeys(("qwen35", "qwen35moe", "qwen3_5", "qwen3_5_moe"), QWEN35),
    **dict.fromkeys(("llama", "llama4", "mllama"), LLAMA3),
    **dict.fromkeys(("mistral", "mixtral"), MISTRAL),
    **dict.fromkeys(("mistral3", "mistral4", "ministral", "ministral3", "pixtral", "voxtral"), TEKKEN),
    **dict.fromkeys(("gpt_oss", "gpt-oss"), GPT_OSS),
    **dict.fromkeys(("gemma", "gemma2", "gemma3", "gemma3_text", "gemma3n"), GEMMA),
    **dict.fromkeys(("gemma4", "gemma4_text"), GEMMA4),
    **dict.fromkeys(("deepseek", "deepseek2", "deepseek_v2", "deepseek_v3"), DEEPSEEK),
    **dict.fromkeys(("phi3", "phimoe", "phi3_v"), PHI3),
    **dict.fromkeys(("command-r", "cohere", "cohere2"), COMMAND_R),
    **dict.fromkeys(("granite", "granitemoe", "granitehybrid", "granitemoehybrid"), GRANITE),
}
"""The families of architectures, by the names that GGUF files and MLX folders give them."""


def family_of(name: str, architecture: str | None = None) -> Family:
    """Return a model's family, by its name as LM Studio lists it, else by its architecture; never fails."""
    for pattern, family in NAMES:
        if pattern.search(name):
            return _refined(family, architecture)
    return ARCHITECTURES.get((architecture or "").lower(), UNKNOWN)


def _refined(family: Family, architecture: str | None) -> Family:
    """Return the family of newer Mistral models, whose names are the old ones, by their architecture."""
    return TEKKEN if family is MISTRAL and ARCHITECTURES.get((architecture or "").lower()) is TEKKEN else family
