"""The tiny models are what the tests take them for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gguf import GGUFReader
from gguf_metadata import read_metadata
from tiny_gguf import write_model
from vocabularies import copied_vocabulary, trained_vocabulary

if TYPE_CHECKING:
    from pathlib import Path

    from llama_server import LlamaServer


def test_model_is_reproducible_and_small(tmp_path: Path) -> None:
    """Training and writing twice gives the same file, of less than a megabyte."""
    for name in ("one.gguf", "two.gguf"):
        write_model(tmp_path / name, trained_vocabulary(), "{{ messages }}")
    one, two = ((tmp_path / name).read_bytes() for name in ("one.gguf", "two.gguf"))
    assert one == two
    assert len(one) < 1_000_000


def test_vocabulary_survives_copying(tmp_path: Path) -> None:
    """A model around the vocabulary copied from another model has the same metadata, chat template apart."""
    trained = trained_vocabulary()
    write_model(tmp_path / "trained.gguf", trained, "one")
    copied = copied_vocabulary(tmp_path / "trained.gguf")
    write_model(tmp_path / "copied.gguf", copied, "two")
    expected, actual = (read_metadata(tmp_path / name) for name in ("trained.gguf", "copied.gguf"))
    assert copied.tokens == trained.tokens
    assert expected.pop("tokenizer.chat_template").value == b"one"
    assert actual.pop("tokenizer.chat_template").value == b"two"
    assert expected == actual


def test_metadata_is_what_gguf_reads(tiny_model: Path) -> None:
    """The metadata read here equals what the gguf package reads from the same file."""
    fields = GGUFReader(tiny_model).fields
    for key, entry in read_metadata(tiny_model).items():
        value = fields[key].contents()
        expected = [item.encode() if isinstance(item, str) else item for item in listed(value)]
        assert expected == listed(entry.value), key


def listed(value: object) -> list[object]:
    """Make a list of a single value, and leave a list alone."""
    return value if isinstance(value, list) else [value]


async def test_vocabulary_covers_all_text(engine: LlamaServer) -> None:
    """Any text comes back from its tokens unchanged, and the control tokens are one token each."""
    text = "Tab\there, ünïcödé, 漢字 🎉\r\n  spaces  "
    tokens = await engine.tokenize(text)
    _, back = await engine.post("/detokenize", {"tokens": tokens})
    assert back["content"] == text
    assert len(await engine.tokenize("<|im_start|><|im_end|><tool_call></tool_call>")) == 4
