"""The engine for every tokenizer that the `tokenizers` library runs."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import tiktoken
import tokenizers

from elbowroom.errors import is_panic
from elbowroom.tokens.errors import TokenizerFailed
from elbowroom.tokens.files.gguf import GgufVocabulary
from elbowroom.tokens.files.special_tokens import SpecialToken, SplitPatterns
from elbowroom.tokens.files.tokenizer import special_token_pattern

# The library's own threads only compete with the server's; without this it also warns after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


LIBRARY_TOKEN_BYTES: Final = 270
FAST_TOKEN_BYTES: Final = 400
"""What a token of a vocabulary takes in memory, as measured on eight vocabularies of 32,000 to 262,000 tokens."""


class LibraryEngine:
    """Runs a `tokenizers.Tokenizer`, by its batch call alone: the single one makes all other threads wait."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.bytes_held = LIBRARY_TOKEN_BYTES * tokenizer.get_vocab_size()

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        with panics_as_errors():
            encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of a library, which is no Exception, or its bare Exception into a TokenizerFailed."""
    try:
        yield
    except BaseException as error:
        if is_panic(error) or type(error) is Exception:  # the library raises nothing narrower
            raise TokenizerFailed(f"The tokenizer's library cannot cut a text into tokens: {error}") from error
        raise


PRINTABLE: Final = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
UNPRINTABLE: Final = tuple(byte for byte in range(256) if byte not in PRINTABLE)
# Byte-level vocabularies write every byte as one printable character: itself, or the next one from U+0100 on.
CHARACTER_OF_BYTE: Final = {
    **{byte: chr(byte) for byte in PRINTABLE},
    **{byte: chr(0x100 + place) for place, byte in enumerate(UNPRINTABLE)},
}
BYTE_OF_CHARACTER: Final = {ord(character): byte for byte, character in CHARACTER_OF_BYTE.items()}
BYTES_OF_UTF8: Final = (*range(0xC0), *range(0xC2, 0xF5))


SPACES_TO_COME: Final = r"\s+(?!"
SPACES_IN_STEPS: Final = r"(?:\s{128}(?=\s))*" + SPACES_TO_COME


def bpe_encoding(name: str, pattern: str, ranks: dict[bytes, int]) -> tiktoken.Encoding:
    """Return an encoding that cuts text into words by a pattern, and words by the ranks of their parts.

    For each space that a look-ahead follows the library remembers a place to go back to, and panics at a million of
    them. So spaces are taken by the hundred first, which ends at the same place. It tries alternatives one by one, but
    a group of such as have no look-ahead at once.
    """
    before, spaces, after = pattern.partition("|" + SPACES_TO_COME)
    in_steps = f"(?:{before})|{SPACES_IN_STEPS}{after}" if spaces else pattern
    return tiktoken.Encoding(name, pat_str=in_steps, mergeable_ranks=ranks, special_tokens={})


class FastBpe:
    """Runs a `tiktoken.Encoding` between the special tokens, which are found here."""

    def __init__(self, encoding: tiktoken.Encoding, special_ids: Mapping[str, int]) -> None:
        self._encode = encoding.encode_ordinary
        self.bytes_held = FAST_TOKEN_BYTES * encoding.n_vocab
        self._special_ids = special_ids
        self._specials = special_token_pattern(special_ids)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        return self.encode_many([text])[0]

    def _ids(self, text: str) -> list[int]:
        if self._specials is None:
            return self._encode(text)
        ids: list[int] = []
        position = 0
        for match in self._specials.finditer(text):
            start = match.start()
            if start > position:
                ids += self._encode(text[position:start])
            ids.append(self._special_ids[match.group()])
            position = match.end()
        if position < len(text):
            ids += self._encode(text[position:])
        return ids

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        with panics_as_errors():
            return [self._ids(text) for text in texts]


def fast_bpe(
    name: str, vocabulary: GgufVocabulary, patterns: SplitPatterns, specials: Sequence[SpecialToken]
) -> FastBpe | None:
    """Return the fast engine of a byte-level vocabulary, None where its conditions do not hold."""
    if patterns.joined is None or any(token.strips_left or token.strips_right for token in specials):
        return None
    special_ids = {token.text: token.id for token in specials}
    ids = {text: number for number, text in enumerate(vocabulary.tokens) if text not in special_ids}
    if any(CHARACTER_OF_BYTE[byte] not in ids for byte in BYTES_OF_UTF8):
        return None
    merged = merged_tokens(vocabulary.merges, ids)
    if merged is None:
        return None
    ranks = {}
    for text, number in ids.items():
        data = _bytes(text)
        if data is None:
            continue
        if len(data) == 1 or text in merged:
            ranks[data] = number
        elif patterns.ignores_merges:
            return None
    return FastBpe(bpe_encoding(name, patterns.joined, ranks), special_ids)


def merged_tokens(merges: Iterable[str], ids: Mapping[str, int]) -> set[str] | None:
    """Return the tokens that the merges make, None where these are not in the order of the ids they make."""
    merged: set[str] = set()
    last = -1
    for merge in merges:
        space = merge.find(" ", 1)
        whole = merge[:space] + merge[space + 1 :]
        made = ids.get(whole)
        if made is None:
            continue
        if made < last:
            return None
        last = made
        merged.add(whole)
    return merged


def _bytes(text: str) -> bytes | None:
    """Return the bytes that a token stands for, None where a character stands for none."""
    try:
        return text.translate(BYTE_OF_CHARACTER).encode("latin-1")
    except UnicodeEncodeError:
        return None
