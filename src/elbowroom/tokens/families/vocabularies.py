"""The vocabularies that come with elbowroom, for models whose own files cannot be read.

Four are shipped: Mistral's SentencePiece v3, its Tekken, Qwen's, and OpenAI's o200k. Others follow from them. Qwen's
begins with all of cl100k but the numbers, so that with numbers put back it is cl100k, the core of Llama 3's.
"""

import lzma
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from elbowroom.tokens.files import Tokenizer

if TYPE_CHECKING:
    import tiktoken

ShippedName = Literal["mistral", "tekken", "qwen", "o200k"]
VocabularyName = Literal[ShippedName, "cl100k", "o200k with digits"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """How a byte-level vocabulary is made: of a shipped file's first tokens, with numbers added, and split patterns.

    With `single_digits` a token holds one digit at most, whatever the patterns say.
    """

    file: ShippedName
    split: str
    first: int | None = None
    adds_numbers: bool = False
    single_digits: bool = False


VOCABULARIES: Final[Mapping[VocabularyName, Vocabulary]] = {
    "tekken": Vocabulary("tekken", "tekken"),
    "qwen": Vocabulary("qwen", "qwen2"),
    "o200k": Vocabulary("o200k", "gpt-4o"),
    "cl100k": Vocabulary("qwen", "llama3", first=99_156, adds_numbers=True),
    "o200k with digits": Vocabulary("o200k", "gpt-4o", single_digits=True),
}
"""All but Mistral's, which is no byte-level vocabulary."""

FOLDER: Final = "vocabularies"
COUNT: Final = struct.Struct(">I")
THREE_DIGITS: Final = r"\p{N}{1,3}"
ONE_DIGIT: Final = r"\p{N}"
NUMBER_LENGTHS: Final = (2, 3)
FIRST_SPECIAL_ID: Final = 1_000_000
"""The ids of special tokens begin after every vocabulary; only their number matters for a count."""
LAST_MERGED: Final = ("\u2581\u2581", "\u2581\u2581\u2581\u2581")
"""The two pieces of Mistral's vocabulary that stand first in it and come last when pieces are joined."""
UNKNOWN: Final = "<unk>"
BYTE_PIECE: Final = re.compile("<0x[0-9A-F]{2}>")
KEPT: Final = 4
"""Vocabularies in memory, which take about 60 MB each."""


def bundled_tokens(name: ShippedName) -> Iterator[bytes]:
    """Yield the tokens of a shipped vocabulary in the order of their ids."""
    packed = files("elbowroom.tokens").joinpath(FOLDER, f"{name}.xz").read_bytes()
    content = lzma.decompress(packed)
    (count,) = COUNT.unpack_from(content)
    start = COUNT.size + count
    ends = accumulate(content[COUNT.size : start], initial=start)
    return (content[begin:end] for begin, end in pairwise(ends))


def bundled_tokenizer(name: VocabularyName, specials: frozenset[str]) -> Tokenizer:
    """Return a tokenizer over a vocabulary, with `specials` as the texts that are one token each.

    It adds nothing around a prompt. Loading takes some tenths of a second, and is what imports the libraries.
    """
    if name == "mistral":
        return _mistral(specials)
    from elbowroom.tokens.files.engines import FastBpe

    ids = {text: FIRST_SPECIAL_ID + place for place, text in enumerate(sorted(specials))}
    return Tokenizer(name, "byte-level", FastBpe(_encoding(name), ids), specials, specials)


@lru_cache(maxsize=KEPT)
def _encoding(name: VocabularyName) -> "tiktoken.Encoding":
    from elbowroom.tokens.files import SPLIT_PATTERNS
    from elbowroom.tokens.files.engines import bpe_encoding

    vocabulary = VOCABULARIES[name]
    pattern = SPLIT_PATTERNS[vocabulary.split].joined or ""
    if vocabulary.single_digits:
        pattern = pattern.replace(THREE_DIGITS, ONE_DIGIT)
    ranks = {token: rank for rank, token in enumerate(islice(bundled_tokens(vocabulary.file), vocabulary.first))}
    if vocabulary.adds_numbers:
        for number in _numbers():
            ranks.setdefault(number, len(ranks))
    return bpe_encoding(name, pattern, ranks)


def _numbers() -> Iterator[bytes]:
    """Yield all numbers of two digits, then all of three: a number is a word of its own and one token."""
    for length in NUMBER_LENGTHS:
        for number in range(10**length):
            yield f"{number:0{length}}".encode()


def _mistral(specials: frozenset[str]) -> Tokenizer:
    """Build the SentencePiece vocabulary in the way that a GGUF file with it is built."""
    from elbowroom.tokens.files.gguf import GgufHeader, GgufVocabulary
    from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer

    tokens = [token.decode() for token in bundled_tokens("mistral")]
    tokens += sorted(specials.difference(tokens))
    vocabulary = GgufVocabulary(
        model="llama",
        pre="",
        tokens=tuple(tokens),
        token_types=[_type_of(text, specials) for text in tokens],
        scores=[-len(tokens) if text in LAST_MERGED else -number for number, text in enumerate(tokens)],
    )
    built = build_tokenizer(GgufHeader(Path("mistral"), "llama", "mistral", {}, vocabulary))
    return Tokenizer("mistral", built.kind, built.engine, built.special_tokens, built.cut_points)


def _type_of(text: str, specials: frozenset[str]) -> int:
    from elbowroom.tokens.files import TokenType

    if text in specials:
        return TokenType.CONTROL
    if text == UNKNOWN:
        return TokenType.UNKNOWN
    return TokenType.BYTE if BYTE_PIECE.fullmatch(text) else TokenType.NORMAL
