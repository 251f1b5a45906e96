"""Which tokens of a GGUF vocabulary are special: llama.cpp's rules, which go beyond what the file says.

The lists of texts are llama.cpp's (MIT License; see THIRD_PARTY_NOTICES).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from elbowroom.tokens.gguf_header import GgufHeader, GgufVocabulary


class TokenType(IntEnum):
    """The meaning of a number in `tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


SPECIAL_TYPES: Final = frozenset({TokenType.UNKNOWN, TokenType.CONTROL, TokenType.USER_DEFINED})
FULLWIDTH_BAR: Final = "\uff5c"
SPACE_MARK: Final = "\u2581"

END_OF_ANSWER: Final = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<eos>",
    "<end_of_utterance>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    f"<{FULLWIDTH_BAR}end{SPACE_MARK}of{SPACE_MARK}sentence{FULLWIDTH_BAR}>",
)
FILL_IN_THE_MIDDLE: Final = {
    ("fim_pre", "prefix"): (
        *("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<PRE>", f"{SPACE_MARK}<PRE>"),
        *("<|code_prefix|>", "<|prefix|>", f"<{FULLWIDTH_BAR}fim{SPACE_MARK}begin{FULLWIDTH_BAR}>"),
    ),
    ("fim_suf", "suffix"): (
        *("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<SUF>", f"{SPACE_MARK}<SUF>"),
        *("<|code_suffix|>", "<|suffix|>", f"<{FULLWIDTH_BAR}fim{SPACE_MARK}hole{FULLWIDTH_BAR}>"),
    ),
    ("fim_mid", "middle"): (
        *("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<MID>", f"{SPACE_MARK}<MID>"),
        *("<|code_middle|>", "<|middle|>", f"<{FULLWIDTH_BAR}fim{SPACE_MARK}end{FULLWIDTH_BAR}>"),
    ),
    ("fim_pad",): ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    ("fim_rep",): ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    ("fim_sep",): ("<|file_sep|>",),
}
ALWAYS_RENDERED: Final = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
END_IS_NO_END: Final = (
    {"<|return|>", "<|call|>"},
    {"<|return|>", "<|calls|>"},
    {"<|call|>", "<|flush|>"},
    {"<|calls|>", "<|flush|>"},
)
ORDINARY_S_MARKERS: Final = ("<|tool_response>", "<|plamo:eos|>")
DEFAULT_IDS: Final[Mapping[str, Mapping[str, int]]] = {
    "llama": {"bos": 1, "eos": 2, "unknown": 0},
    "gpt2": {"bos": 11, "eos": 11},
    "bert": {"bos": 101, "eos": 102, "unknown": 100},
}
NO_DEFAULT_BOS: Final = ("chatglm-bpe", "glm4", "glm5")


@dataclass(frozen=True, slots=True)
class SpecialToken:
    """A text that is one token wherever it stands; with the spaces on a side where it strips them."""

    text: str
    id: int
    type: TokenType
    strips_left: bool = False
    strips_right: bool = False


def special_tokens(header: GgufHeader, vocabulary: GgufVocabulary) -> tuple[SpecialToken, ...]:
    """Return the special tokens of a model in the order of their ids."""
    types = special_types(vocabulary)
    ids = {text: number for number, text in enumerate(vocabulary.tokens) if text in types}
    stripping = _right_stripping(header.name, types)
    left = _left_stripping(header, vocabulary)
    return tuple(
        SpecialToken(text, number, types[text], text in left, text in stripping)
        for text, number in sorted(ids.items(), key=lambda item: item[1])
    )


def special_types(vocabulary: GgufVocabulary) -> dict[str, TokenType]:
    """Return the type of every special token, by its text."""
    types = {
        text: TokenType(number)
        for text, number in zip(vocabulary.tokens, vocabulary.token_types, strict=False)
        if number in SPECIAL_TYPES and text
    }
    present = set(vocabulary.tokens)
    types.update(dict.fromkeys(present.intersection(_forced_control(vocabulary)), TokenType.CONTROL))
    types.update(dict.fromkeys(present.intersection(ALWAYS_RENDERED), TokenType.USER_DEFINED))
    if "<|end|>" in present and any(marks <= present for marks in END_IS_NO_END):
        types["<|end|>"] = TokenType.USER_DEFINED
    if present.intersection(ORDINARY_S_MARKERS):
        types.pop("</s>", None)
    return types


def named_id(vocabulary: GgufVocabulary, name: str) -> int | None:
    """Return the id of "bos", "eos" or "unknown": the file's own, else the algorithm's usual one."""
    number = vocabulary.ids.get(name)
    if number is not None and number < len(vocabulary.tokens):
        return number
    if name == "bos" and vocabulary.pre in NO_DEFAULT_BOS:
        return None
    usual = DEFAULT_IDS.get(vocabulary.model, {}).get(name)
    return usual if usual is not None and usual < len(vocabulary.tokens) else None


def named_text(vocabulary: GgufVocabulary, name: str) -> str:
    """Return the text of a named token, "" where the model has none."""
    number = named_id(vocabulary, name)
    return "" if number is None else vocabulary.tokens[number]


def _forced_control(vocabulary: GgufVocabulary) -> set[str]:
    """Return the texts that make a token a control token, whatever its type in the file."""
    forced = set(END_OF_ANSWER)
    for names, texts in FILL_IN_THE_MIDDLE.items():
        if not any(name in vocabulary.ids for name in names):
            forced.update(texts)
    return forced


def _right_stripping(model_name: str, types: Mapping[str, TokenType]) -> set[str]:
    """Return the tokens that take the spaces after them along: Phi 3 has such, known by its name alone."""
    name = model_name.lower()
    if "phi-3" not in name and "phi3" not in name:
        return set()
    return set(types) - {"<unk>", "<s>", "<|endoftext|>"}


def _left_stripping(header: GgufHeader, vocabulary: GgufVocabulary) -> set[str]:
    """Return the tokens that take the spaces before them along: the mask of some embedding models."""
    if any(name in vocabulary.pre for name in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        name in header.architecture for name in ("nomic-bert-moe", "jina-bert-v3")
    ):
        return {"<mask>"}
    return {"[MASK]"} if "modern-bert" in header.name.lower() else set()
