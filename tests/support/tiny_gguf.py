"""Writes tiny language models with random weights: real files for a real engine, made in a moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from gguf import GGUFWriter

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from vocabularies import Vocabulary


# Preferences of the output, measured to give sentences of a dozen words and answers of some dozen tokens.
WORD, FULL_STOP, END, ANYTHING_ELSE = 0.0, 3.5, 1.75, -20.0

Weights = dict[str, "NDArray[np.float16] | NDArray[np.float32]"]


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a model with one layer and two attention heads."""

    embedding: int = 32
    feed_forward: int = 64
    heads: int = 2
    trained_context: int = 131_072


def write_model(
    path: Path, vocabulary: Vocabulary, chat_template: str, *, seed: int = 1, shape: Shape | None = None
) -> None:
    """Write a model of the llama architecture around a vocabulary and a chat template.

    It answers with words and full stops and ends by itself after some dozen tokens. The same arguments give
    the same bytes. Its trained context is far larger than any window a test loads.
    """
    shape = shape or Shape()
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(shape.trained_context)
    writer.add_embedding_length(shape.embedding)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_block_count(1)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    for key, entry in vocabulary.entries.items():
        writer.add_key_value(key, entry.value, entry.kind, entry.item)
    writer.add_chat_template(chat_template)
    for name, tensor in random_weights(shape, vocabulary, seed).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_weights(shape: Shape, vocabulary: Vocabulary, seed: int) -> Weights:
    """Draw the weights of one layer, the embeddings and the output.

    The first component of the residual stream is 1 for every token and no layer writes to it, so that the
    output's first column is a constant preference for each token: readable ones over all others.
    """
    chance = np.random.default_rng(seed)
    wide, inner = shape.embedding, shape.feed_forward
    size = len(vocabulary.tokens)

    def draw(rows: int, columns: int) -> NDArray[np.float16]:
        drawn: NDArray[np.float16] = (chance.standard_normal((rows, columns), np.float32) / columns**0.5).astype(
            np.float16
        )
        return drawn

    weights: Weights = {
        "token_embd.weight": draw(size, wide),
        "output_norm.weight": np.ones(wide, np.float32),
        "output.weight": draw(size, wide),
        "blk.0.attn_norm.weight": np.ones(wide, np.float32),
        "blk.0.attn_q.weight": draw(wide, wide),
        "blk.0.attn_k.weight": draw(wide, wide),
        "blk.0.attn_v.weight": draw(wide, wide),
        "blk.0.attn_output.weight": draw(wide, wide),
        "blk.0.ffn_norm.weight": np.ones(wide, np.float32),
        "blk.0.ffn_gate.weight": draw(inner, wide),
        "blk.0.ffn_up.weight": draw(inner, wide),
        "blk.0.ffn_down.weight": draw(wide, inner),
    }
    weights["token_embd.weight"][:, 0] = 1
    weights["blk.0.attn_output.weight"][0] = 0
    weights["blk.0.ffn_down.weight"][0] = 0
    weights["output.weight"][:, 0] = np.where(vocabulary.words(), WORD, ANYTHING_ELSE)
    weights["output.weight"][vocabulary.tokens.index("."), 0] = FULL_STOP
    weights["output.weight"][vocabulary.end_of_turn(), 0] = END
    return weights
