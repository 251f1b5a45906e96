"""The vocabularies that come with elbowroom, for models whose own files cannot be read."""

import lzma
import re
import struct
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from elbowroom.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    import tiktoken

VocabularyName = Literal["mistral", "tekken", "qwen", "o200k"]

FOLDER: Final = "vocabularies"
COUNT: Final = struct.Struct(">I")
SPLIT_KINDS: Final[Mapping[VocabularyName, str]] = {"tekken": "tekken", "qwen": "qwen2", "o200k": "gpt-4o"}
"""The vocabularies that tiktoken runs, and the names under which their split patterns are known."""
THREE_DIGITS: Final = r"\p{N}{1,3}"
ONE_DIGIT: Final = r"\p{N}"
FIRST_SPECIAL_ID: Final = 1_000_000
"""Special tokens are added behind every vocabulary: they are counted, their own ids do not matter."""
LAST_MERGED: Final = ("\u2581\u2581", "\u2581\u2581\u2581\u2581")
"""The two pieces of Mistral's vocabulary that stand first in it and come last when pieces are joined."""
UNKNOWN: Final = "<unk>"
BYTE_PIECE: Final = re.compile("<0x[0-9A-F]{2}>")
KEPT: Final = 3


def bundled_tokens(name: VocabularyName) -> Iterator[bytes]:
    """Yield the tokens of a vocabulary in the order of their ids."""
    packed = files("elbowroom.tokens").joinpath(FOLDER, f"{name}.xz").read_bytes()
    content = lzma.decompress(packed)
    (count,) = COUNT.unpack_from(content)
    start = COUNT.size + count
    ends = accumulate(content[COUNT.size : start], initial=start)
    return (content[begin:end] for begin, end in pairwise(ends))


def bundled_tokenizer(
    name: VocabularyName, specials: frozenset[str], *, bos_token: str = "", single_digits: bool = False
) -> Tokenizer:
    """Return a tokenizer over a vocabulary, with `specials` as the texts that are one token each.

    It adds nothing around a prompt. `single_digits` makes o200k take one digit for a token, as other families do,
    not up to three. Loading takes a tenth of a second; no model's tokenizer library is imported before.
    """
    if name == "mistral":
        return _mistral(specials, bos_token)
    from elbowroom.tokens.fast_bpe import FastBpe

    ids = {text: FIRST_SPECIAL_ID + place for place, text in enumerate(sorted(specials))}
    engine = FastBpe(_encoding(name, single_digits=single_digits), ids)
    return Tokenizer(name, "byte-level", engine, specials, specials, bos_token=bos_token)


@lru_cache(maxsize=KEPT)
def _encoding(name: VocabularyName, *, single_digits: bool) -> "tiktoken.Encoding":
    import tiktoken

    from elbowroom.tokens.split_patterns import SPLIT_PATTERNS

    pattern = SPLIT_PATTERNS[SPLIT_KINDS[name]].joined or ""
    if single_digits:
        pattern = pattern.replace(THREE_DIGITS, ONE_DIGIT)
    ranks = {token: rank for rank, token in enumerate(bundled_tokens(name))}
    return tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})


def _mistral(specials: frozenset[str], bos_token: str) -> Tokenizer:
    """Build the SentencePiece vocabulary in the way that a GGUF file with it is built."""
    from elbowroom.tokens.gguf_header import GgufHeader, GgufVocabulary
    from elbowroom.tokens.gguf_tokenizer import build_tokenizer

    tokens = [token.decode() for token in bundled_tokens("mistral")]
    tokens += sorted(specials.difference(tokens))
    vocabulary = GgufVocabulary(
        model="llama",
        pre="",
        tokens=tuple(tokens),
        token_types=[_type_of(text, specials) for text in tokens],
        scores=[-len(tokens) if text in LAST_MERGED else -number for number, text in enumerate(tokens)],
    )
    header = GgufHeader(Path("mistral"), "llama", "mistral", None, {}, vocabulary)
    built = build_tokenizer(header)
    return Tokenizer("mistral", built.kind, built.engine, built.special_tokens, built.cut_points, bos_token=bos_token)


def _type_of(text: str, specials: frozenset[str]) -> int:
    from elbowroom.tokens.gguf_special_tokens import TokenType

    if text in specials:
        return TokenType.CONTROL
    if text == UNKNOWN:
        return TokenType.UNKNOWN
    return TokenType.BYTE if BYTE_PIECE.fullmatch(text) else TokenType.NORMAL
