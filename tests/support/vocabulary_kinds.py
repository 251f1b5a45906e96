"""Small vocabularies of every kind that GGUF files have, trained on the spot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from gguf import GGUFValueType, GGUFWriter
from gguf_metadata import Entry
from text_samples import samples
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from vocabularies import Vocabulary

if TYPE_CHECKING:
    from pathlib import Path

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
CHATML: Final = {
    "<|endoftext|>": CONTROL,
    "<|im_start|>": CONTROL,
    "<|im_end|>": CONTROL,
    "<tool_call>": USER_DEFINED,
}
SPACE_MARK: Final = "\u2581"
Merges = Sequence[tuple[str, str]]
Tables = tuple[list[str], list[tuple[str, str]]]


def training_texts() -> list[str]:
    """Return what all of the vocabularies are trained on; other texts than the tests compare.

    They have no NUL: llama.cpp reads tokens as C strings.
    """
    return [text.replace("\0", "") for seed in (11, 12, 13) for text in samples(seed).values()]


def byte_level(pre: str, *, size: int = 1500) -> Vocabulary:
    """Return a byte-level BPE with ChatML's special tokens that splits words by the rules named `pre`."""
    tokens, merges = _byte_level_tables(size)
    types = [CHATML.get(token, NORMAL) for token in tokens]
    extra = {"eos": tokens.index("<|im_end|>"), "bos": tokens.index("<|endoftext|>")}
    return vocabulary("gpt2", pre, tokens, types, extra, merges=merges)


def sentencepiece(*, space_prefix: bool = True) -> Vocabulary:
    """Return a SentencePiece BPE with scores and byte tokens, as Llama 2 has."""
    tokens, merges = _marked_tables("<unk>", "<s>", "</s>", *_byte_tokens())
    types = _marked_types(tokens, {"<unk>": UNKNOWN, "<s>": CONTROL, "</s>": CONTROL})
    places = {"".join(pair): place for place, pair in reversed(list(enumerate(merges)))}
    scores = [-float(places.get(token, len(merges))) for token in tokens]
    flags = {} if space_prefix else {"tokenizer.ggml.add_space_prefix": Entry(False, GGUFValueType.BOOL)}
    return vocabulary("llama", "default", tokens, types, {"bos": 1, "eos": 2, "unknown": 0}, scores=scores, more=flags)


def gemma4() -> Vocabulary:
    """Return a BPE over marked spaces with merges and byte tokens, as Gemma 4 has."""
    special = {"<pad>": CONTROL, "<eos>": CONTROL, "<bos>": CONTROL, "<unk>": UNKNOWN, "<turn|>": CONTROL}
    tokens, merges = _marked_tables(*special, *_byte_tokens(), "\n\n")
    types = _marked_types(tokens, special | {"\n\n": USER_DEFINED})
    return vocabulary("gemma4", "", tokens, types, {"bos": 2, "eos": 1, "unknown": 3, "padding": 0}, merges=merges)


def wordpiece() -> Vocabulary:
    """Return BERT's WordPiece, its pieces marked the way GGUF does."""
    special = {"[PAD]": CONTROL, "[UNK]": UNKNOWN, "[CLS]": CONTROL, "[SEP]": CONTROL, "[MASK]": CONTROL}
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=list(special), show_progress=False)
    tokenizer.train_from_iterator(training_texts(), trainer)
    pieces = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().__getitem__)
    tokens = [
        piece if piece in special else piece.removeprefix("##") if piece.startswith("##") else SPACE_MARK + piece
        for piece in (*pieces, "##.")
    ]
    types = [special.get(token, NORMAL) for token in tokens]
    ids = {"unknown": 1, "cls": 2, "bos": 2, "seperator": 3, "eos": 3, "padding": 0, "mask": 4}
    return vocabulary("bert", "default", tokens, types, ids)


def vocabulary(
    model: str,
    pre: str,
    tokens: Sequence[str],
    types: Sequence[int],
    ids: Mapping[str, int],
    *,
    merges: Merges = (),
    scores: Sequence[float] = (),
    more: Mapping[str, Entry] | None = None,
) -> Vocabulary:
    """Put tables together as the entries of a GGUF file."""
    strings, array = GGUFValueType.STRING, GGUFValueType.ARRAY
    entries = {
        "tokenizer.ggml.model": Entry(model, strings),
        "tokenizer.ggml.tokens": Entry(tokens, array, strings),
        "tokenizer.ggml.token_type": Entry(types, array, GGUFValueType.INT32),
    }
    if pre:
        entries["tokenizer.ggml.pre"] = Entry(pre, strings)
    if merges:
        entries["tokenizer.ggml.merges"] = Entry([" ".join(pair) for pair in merges], array, strings)
    if scores:
        entries["tokenizer.ggml.scores"] = Entry(scores, array, GGUFValueType.FLOAT32)
    for name, number in ids.items():
        entries[f"tokenizer.ggml.{name}_token_id"] = Entry(number, GGUFValueType.UINT32)
    return Vocabulary(entries | dict(more or {}))


def write_header(path: Path, vocabulary: Vocabulary, *, name: str = "tiny", template: str = "") -> Path:
    """Write a GGUF file with a vocabulary and no tensors; return its path."""
    writer = GGUFWriter(path, "llama")
    writer.add_name(name)
    writer.add_context_length(4096)
    for key, entry in vocabulary.entries.items():
        writer.add_key_value(key, entry.value, entry.kind, entry.item)
    if template:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@cache
def _byte_level_tables(size: int) -> Tables:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=list(CHATML),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_texts(), trainer)
    return _tables(tokenizer)


def _tables(tokenizer: Tokenizer) -> Tables:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    return tokens, [(left, right) for left, right in model["merges"]]


@cache
def _marked_tables(*first: str) -> Tables:
    """Train a BPE on words with marked spaces; `first` get the lowest ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE_MARK), normalizers.Replace(" ", SPACE_MARK)])
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(f"{SPACE_MARK}*[^{SPACE_MARK}\\n]+|\\n"), "isolated")
    trainer = trainers.BpeTrainer(vocab_size=1800, special_tokens=list(first), show_progress=False)
    tokenizer.train_from_iterator(training_texts(), trainer)
    return _tables(tokenizer)


def _marked_types(tokens: Sequence[str], special: Mapping[str, int]) -> list[int]:
    return [BYTE if token in _byte_tokens() else special.get(token, NORMAL) for token in tokens]


def _byte_tokens() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]
