"""Finds the special tokens of a GGUF vocabulary and its split patterns, by llama.cpp's rules.

The lists of texts are llama.cpp's (MIT License; see THIRD_PARTY_NOTICES).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from elbowroom.tokens.files.gguf import GgufHeader, GgufVocabulary


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
    """A text that is one token wherever it stands, together with the spaces on the sides that it strips."""

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
    """Return the tokens that include the spaces after them: those of Phi 3, which only its name tells."""
    name = model_name.lower()
    if "phi-3" not in name and "phi3" not in name:
        return set()
    return set(types) - {"<unk>", "<s>", "<|endoftext|>"}


def _left_stripping(header: GgufHeader, vocabulary: GgufVocabulary) -> set[str]:
    """Return the tokens that include the spaces before them: the mask of some embedding models."""
    if any(name in vocabulary.pre for name in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) or any(
        name in header.architecture for name in ("nomic-bert-moe", "jina-bert-v3")
    ):
        return {"<mask>"}
    return {"[MASK]"} if "modern-bert" in header.name.lower() else set()


@dataclass(frozen=True, slots=True)
class SplitPatterns:
    """How text is cut into words before the words are cut into tokens.

    `steps` are applied one after the other, each to the pieces that the one before left (Oniguruma syntax).
    `joined` is one pattern that cuts at the same places (fancy-regex syntax), None if none is known.
    With `ignores_merges` a word that is a token is taken whole, without asking the merges.
    """

    steps: tuple[str, ...]
    joined: str | None = None
    ignores_merges: bool = False
    adds_bos: bool = False


ANYTHING: Final = r"|[\s\S]"
LETTER: Final = r"\p{L}"
CONTRACTIONS: Final = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
LOWER_CONTRACTIONS: Final = r"'s|'t|'re|'ve|'m|'ll|'d"
WORD_START: Final = r"[^\r\n\p{L}\p{N}]?"
SPACES: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
SIGNS_AND_SPACES: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES
SLASHED_SIGNS_AND_SPACES: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
THREE_DIGITS: Final = "[0-9][0-9][0-9]"


def _words(letters: str, digits: str, rest: str = SIGNS_AND_SPACES) -> str:
    return f"{CONTRACTIONS}|{WORD_START}{letters}|{digits}{rest}"


def _single(pattern: str, *, ignores_merges: bool = False, adds_bos: bool = False) -> SplitPatterns:
    return SplitPatterns((pattern,), pattern, ignores_merges, adds_bos)


_LLAMA3 = _words(r"\p{L}+", r"\p{N}{1,3}")
_QWEN2 = _words(r"\p{L}+", r"\p{N}")
_QWEN35 = rf"{CONTRACTIONS}|{WORD_START}[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*" + SPACES
_GPT2 = LOWER_CONTRACTIONS + r"| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_GPT2_KIND = SplitPatterns((_GPT2,), _GPT2 + r"|\s" + ANYTHING)
_SINGLE_DIGITS_KIND = SplitPatterns(
    (r"\p{N}", _GPT2),
    rf"\p{{N}}|{LOWER_CONTRACTIONS}| ?\p{{L}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?![^\s\p{{N}}])|\s" + ANYTHING,
)
_DEFAULT_KIND = SplitPatterns((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", THREE_DIGITS))
_FALCON_KIND = SplitPatterns((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, THREE_DIGITS))


def _cased(upper: str, lower: str, ending: str, digits: str) -> str:
    """Write a word as capitals followed by small letters, in this order or capitals alone."""
    capitalised = f"{WORD_START}{upper}*{lower}+{ending}"
    capitals = f"{WORD_START}{upper}+{lower}*{ending}"
    return f"{capitalised}|{capitals}|{digits}" + SLASHED_SIGNS_AND_SPACES


def _cased_kind(letter: str, ending: str, digits: str, *, ignores_merges: bool, adds_bos: bool) -> SplitPatterns:
    step = _cased(f"((?=[{letter}])([^a-z]))", f"((?=[{letter}])([^A-Z]))", ending, digits)
    joined = _cased(f"[{letter}&&[^a-z]]", f"[{letter}&&[^A-Z]]", ending, digits)
    return SplitPatterns((step,), joined, ignores_merges, adds_bos)


_TEKKEN_KIND = _cased_kind(LETTER, "", r"\p{N}", ignores_merges=True, adds_bos=True)
_GPT4O_KIND = _cased_kind(LETTER, f"{CONTRACTIONS}?", r"\p{N}{1,3}", ignores_merges=False, adds_bos=False)
_GRANITE_KIND = _cased_kind(r"\p{L}\p{M}", f"{CONTRACTIONS}?", r"\p{N}{1,3}", ignores_merges=True, adds_bos=False)
_ANY_CASE = rf"{WORD_START}[\p{{L}}\p{{M}}]+{CONTRACTIONS}?"

_EAST_ASIAN = "\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff"
_SIGN_AND_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_DEEPSEEK3_WORDS = (
    _SIGN_AND_WORD + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK3_JOINED = (
    rf"\p{{N}}{{1,3}}|[{_EAST_ASIAN}]+|{_SIGN_AND_WORD}"
    rf"|[^\r\n\p{{L}}\p{{P}}\p{{S}}\p{{N}}{_EAST_ASIAN}]?[[\p{{L}}\p{{M}}]--[{_EAST_ASIAN}]]+"
    rf"| ?[[\p{{P}}\p{{S}}]--[{_EAST_ASIAN}]]+[\r\n]*"
    rf"|\s*[\r\n]+|\s+(?![^\s\p{{N}}{_EAST_ASIAN}])|\s+" + ANYTHING
)
_DEEPSEEK3_KIND = SplitPatterns((r"\p{N}{1,3}", f"[{_EAST_ASIAN}]+", _DEEPSEEK3_WORDS), _DEEPSEEK3_JOINED)
_SPARK_KIND = SplitPatterns(
    (
        r"\p{N}{1,3}",
        f"[{_EAST_ASIAN}]+",
        _SIGN_AND_WORD + r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
        r"\p{N}",
    )
)
_ALPHABETS = (
    "A-Za-z\xb5\xc0-\xd6\xd8-\xf6\xf8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481"
    "\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf"
    "\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d"
    "\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4"
    "\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107"
    "\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17"
    "\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb"
    "\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
# llama.cpp reads every space outside ASCII as a vertical tab here, so that no range of characters holds one.
_HAN_AND_HANGUL = r"[[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]&&\S]+"
_SPACED_SIGNS = r"\s?[[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]&&\S]+"
_DEEPSEEK_LLM_KIND = SplitPatterns(
    (r"[\r\n]", rf"\s?[{_ALPHABETS}]+", _SPACED_SIGNS, r"\s+$", _HAN_AND_HANGUL, r"\p{N}+")
)
_DEEPSEEK_CODER_KIND = SplitPatterns((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_AND_HANGUL, r"\p{N}"))

_SENTENCE_SIGNS = "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c"
_BLOOM = rf" ?[^(\s|.,!?{_SENTENCE_SIGNS})]+"
_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = _words(r"\p{L}+", r"\p{N}", r"| ?[^\s\p{L}\p{N}\r\n]+" + SPACES)
_KIMI = rf"\p{{Han}}+|{WORD_START}[\p{{L}}&&[^\p{{Han}}]]+{CONTRACTIONS}?|\p{{N}}{{1,3}}" + SIGNS_AND_SPACES
_EXAONE_MOE = _words(
    r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", r"\p{N}", r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MINICPM5_KIND = SplitPatterns((r"\p{N}{1,3}", _words(r"\p{L}+", r"\p{N}+")), ignores_merges=True)
# A match begins behind a digit or at the start alone: a long rest without digits is read once, not at each letter.
_DIGITS_FROM_THE_RIGHT = r"(?<=\p{N})\p{N}{3}|(?<![^\p{N}])[^\p{N}]*\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))"
_TINY_AYA_KIND = SplitPatterns((_DIGITS_FROM_THE_RIGHT, rf"{_ANY_CASE}|\p{{N}}{{1,3}}" + SLASHED_SIGNS_AND_SPACES))
_YOUTU_SCRIPTS = (
    "[\uac00-\ud7a3\u3131-\u318e]+"
    "|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+"
    "|[\u3105-\u312f]+"
    "|[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
)
_YOUTU_KIND = SplitPatterns((_YOUTU_SCRIPTS, rf"{_ANY_CASE}|\p{{N}}" + SLASHED_SIGNS_AND_SPACES), ignores_merges=True)
_AFMOE_SCRIPTS = (
    "[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    "\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_AFMOE_KIND = SplitPatterns((_DIGITS_FROM_THE_RIGHT, _AFMOE_SCRIPTS, _DEEPSEEK3_WORDS))
_JAIS2_SPACES = "".join(rf"|\s{{{count}}}(?!\S)" for count in (512, 256, 128, 64, 32, 16, 8, 4))
_JAIS2 = _words(
    r"\p{L}+", r"\p{N}{1,3}", r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + _JAIS2_SPACES + r"|\s{1,2}(?!\S)|\s"
)
_UFAKZEKA = rf"{WORD_START}\p{{L}}+|\p{{N}}" + SIGNS_AND_SPACES
_CHAMELEON_KIND = SplitPatterns(
    (
        "<sentinel:[0-9]+>",
        "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
        r"([\t\n]|    |  )",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2,
    ),
    adds_bos=True,
)
LINES: Final = r"[^\n]+|[\n]+"

_NAMES: Final = {
    "default": _DEFAULT_KIND,
    "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano": _single(
        _LLAMA3, ignores_merges=True, adds_bos=True
    ),
    "dbrx smaug-bpe chatglm-bpe": _single(_LLAMA3),
    "glm4 glm5": _single(_LLAMA3, ignores_merges=True),
    "jais-2": _single(_JAIS2),
    "qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 hunyuan solar-open megrez grok-2": _single(_QWEN2),
    "qwen35": _single(_QWEN35),
    "ufakzeka": _single(_UFAKZEKA),
    "laguna": SplitPatterns((LINES, _QWEN2)),
    "gpt-2 phi-2 mpt olmo jais trillion granite-docling exaone4": _GPT2_KIND,
    "gigachat a.x-4.0 mellum modern-bert roberta-bpe": _GPT2_KIND,
    "jina-es jina-de jina-v2-es jina-v2-de jina-v1-en jina-v2-code": _GPT2_KIND,
    "starcoder refact command-r smollm codeshell exaone minerva-7b mellum2": _SINGLE_DIGITS_KIND,
    "falcon": _FALCON_KIND,
    "tekken": _TEKKEN_KIND,
    "gpt-4o llama4 kanana2 talkie minimax-m2": _GPT4O_KIND,
    "granite-embed-multi-97m": _GRANITE_KIND,
    "deepseek-llm": _DEEPSEEK_LLM_KIND,
    "deepseek-coder": _DEEPSEEK_CODER_KIND,
    "deepseek-v3 hunyuan-dense joyai-llm hy_v4": _DEEPSEEK3_KIND,
    "spark2_5": _SPARK_KIND,
    "youtu": _YOUTU_KIND,
    "afmoe": _AFMOE_KIND,
    "poro-chat bloom gpt3-finnish": SplitPatterns((_BLOOM,)),
    "viking": SplitPatterns((_BLOOM, r"\p{N}")),
    "bailingmoe bailingmoe2 llada-moe": _single(_BAILING),
    "seed-coder": _single(_SEED),
    "kimi-k2": _single(_KIMI),
    "exaone-moe": _single(_EXAONE_MOE),
    "minicpm5": _MINICPM5_KIND,
    "tiny_aya cohere2moe": _TINY_AYA_KIND,
    "chameleon": _CHAMELEON_KIND,
}
SPLIT_PATTERNS: Final = {name: patterns for names, patterns in _NAMES.items() for name in names.split()}
"""The patterns by their names in GGUF files; "default" is for files that name none."""
