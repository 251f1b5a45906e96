"""Tokenizers of made-up vocabularies, built by way of a file as a model's are."""

from pathlib import Path

from vocabularies import Vocabulary
from vocabulary_kinds import write_header

from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.special_tokens import SPLIT_PATTERNS
from elbowroom.tokens.files.tokenizer import Tokenizer

SPLIT_KINDS = sorted({patterns: name for name, patterns in SPLIT_PATTERNS.items()}.values())


def built(folder: Path, tables: Vocabulary, *, name: str = "tiny", fast: bool = True) -> Tokenizer:
    """Build the tokenizer of a vocabulary by way of a file."""
    return build_tokenizer(read_gguf_header(write_header(folder / "m.gguf", tables, name=name)), fast=fast)
