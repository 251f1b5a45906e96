"""Vocabularies for the tiny models: one trained on the spot, or one copied from the header of a GGUF file."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from gguf import GGUFValueType
from gguf_metadata import Entry, Scalar, read_metadata
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

WORD: Final = re.compile(r"[Ġ▁][A-Za-z]+")


class TokenType(IntEnum):
    """What a token is, as GGUF numbers it."""

    NORMAL = 1
    CONTROL = 3
    USER_DEFINED = 4


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Everything a GGUF file says about its tokenizer, the chat template aside."""

    entries: Mapping[str, Entry]

    @property
    def tokens(self) -> list[str]:
        """The text of every token in the order of the ids; bytes that are no UTF-8 are replaced."""
        texts = self._items("tokenizer.ggml.tokens")
        return [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in texts]

    def words(self) -> list[bool]:
        """For every id: is it a plain word with the space before it?"""
        return [WORD.fullmatch(token) is not None for token in self.tokens]

    def end_of_turn(self) -> int:
        """The id of the token that ends an answer."""
        value = self.entries["tokenizer.ggml.eos_token_id"].value
        assert isinstance(value, int)
        return value

    def _items(self, key: str) -> Sequence[Scalar]:
        items = self.entries[key].value
        assert not isinstance(items, bytes | str | int | float)
        return items


def trained_vocabulary(size: int = 2048, seed: int = 1) -> Vocabulary:
    """Train a byte-level BPE with ChatML's control tokens on invented prose.

    The same arguments give the same vocabulary.
    """
    control = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    added = ["<tool_call>", "</tool_call>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=control + added, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(invented_prose(random.Random(seed), paragraphs=400), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    kinds = dict.fromkeys(control, TokenType.CONTROL) | dict.fromkeys(added, TokenType.USER_DEFINED)
    types = [kinds.get(token, TokenType.NORMAL) for token in tokens]
    return Vocabulary(
        {
            "tokenizer.ggml.model": Entry("gpt2", GGUFValueType.STRING),
            "tokenizer.ggml.pre": Entry("gpt-2", GGUFValueType.STRING),
            "tokenizer.ggml.tokens": Entry(tokens, GGUFValueType.ARRAY, GGUFValueType.STRING),
            "tokenizer.ggml.token_type": Entry(types, GGUFValueType.ARRAY, GGUFValueType.INT32),
            "tokenizer.ggml.merges": Entry(
                [" ".join(pair) for pair in model["merges"]], GGUFValueType.ARRAY, GGUFValueType.STRING
            ),
            "tokenizer.ggml.eos_token_id": Entry(tokens.index("<|im_end|>"), GGUFValueType.UINT32),
            "tokenizer.ggml.padding_token_id": Entry(tokens.index("<|endoftext|>"), GGUFValueType.UINT32),
            "tokenizer.ggml.add_bos_token": Entry(False, GGUFValueType.BOOL),
        }
    )


def invented_prose(chance: random.Random, paragraphs: int) -> list[str]:
    """Write paragraphs of made-up words, with a little JSON and Markdown so that these get merges as well."""
    syllables = ["".join(pair) for pair in itertools.product("bcdfghklmnprstvz", "aeiou")]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 4))) for _ in range(500)]
    return [
        f"# {chance.choice(words).title()}\n\n"
        + " ".join(chance.choices(words, k=60)).capitalize()
        + f'.\n- {{"name": "{chance.choice(words)}", "value": {chance.randint(0, 9999)}}}\n'
        for _ in range(paragraphs)
    ]


def copied_vocabulary(path: Path) -> Vocabulary:
    """Copy the tokenizer out of a GGUF file's header, strings as the very bytes, without its chat template.

    The model's name comes along, because the engine tells some tokenizers (Phi 3) by it.
    """
    entries = read_metadata(path)
    wanted = {
        key: entry
        for key, entry in entries.items()
        if key == "general.name" or (key.startswith("tokenizer.") and not key.startswith("tokenizer.chat_template"))
    }
    return Vocabulary(wanted)
