"""Reads the tokenizers of model folders without a tokenizer.json, by `transformers` where that is installed."""

import os
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tokenizers import AddedToken
from tokenizers import Tokenizer as LibraryTokenizer

from elbowroom.tokens.errors import UnreadableModelFile, UnsupportedTokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

SLOW_FILES: Final = ("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "merges.txt", "added_tokens.json")
SLOW_TOKEN_BYTES: Final = 600
"""What a token takes in a tokenizer written in Python: two dictionaries of texts and ids."""
SENTENCEPIECE: Final = "*.model"


class SlowEngine:
    """Runs a tokenizer of `transformers` that is written in Python."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer: Any = tokenizer
        self.bytes_held = SLOW_TOKEN_BYTES * len(self._tokenizer)

    @property
    def added_tokens(self) -> Iterable[AddedToken]:
        """The tokens that were added to the vocabulary, the special ones among them."""
        return [
            AddedToken(token.content, lstrip=token.lstrip, rstrip=token.rstrip, normalized=token.normalized)
            for token in self._tokenizer.added_tokens_decoder.values()
        ]

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        return [self.encode(text) for text in texts]


def has_slow_tokenizer(folder: Path) -> bool:
    """Tell whether a model folder has a tokenizer that `transformers` may be able to read."""
    return any((folder / name).is_file() for name in SLOW_FILES) or any(folder.glob(SENTENCEPIECE))


def slow_tokenizer(folder: Path) -> LibraryTokenizer | SlowEngine:
    """Return the tokenizer of a folder without a tokenizer.json, converted where `transformers` can do so.

    Nothing is downloaded, and no code from the folder runs. Raises `UnsupportedTokenizer` without `transformers`,
    `UnreadableModelFile` where it cannot read the files.
    """
    if find_spec("transformers") is None:
        what = "a SentencePiece file" if any(folder.glob(SENTENCEPIECE)) else "a slow tokenizer"
        raise UnsupportedTokenizer(
            f"The model folder {folder} has {what}, but no tokenizer.json, which elbowroom needs."
            ' Install "elbowroom[transformers]" to read it as it is.'
        )
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # else it tells every start that PyTorch is missing
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the library raises nothing narrower
        raise UnreadableModelFile(
            f"The tokenizer in {folder} cannot be read by transformers ({error}). Download the model again, with its"
            " tokenizer.json."
        ) from error
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return backend if isinstance(backend, LibraryTokenizer) else SlowEngine(tokenizer)
