"""The engine for every tokenizer that the `tokenizers` library runs."""

import os
from collections.abc import Sequence

import tokenizers

# The library's own threads only compete with the server's; without this it also warns after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class LibraryEngine:
    """Runs a `tokenizers.Tokenizer`, by its batch call alone: the single one makes all other threads wait."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]
