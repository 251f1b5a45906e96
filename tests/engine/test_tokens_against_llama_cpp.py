"""Our tokenizers cut text exactly as llama.cpp itself does: its server is asked for the same texts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from llama_server import LlamaServer, Options
from tiny_gguf import write_model
from tokenizing_server import same_ids_as_llama_cpp, tokenize
from vocabularies import Vocabulary
from vocabulary_kinds import byte_level, gemma4, sentencepiece, wordpiece

from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer
from elbowroom.tokens.files.tokenizer import LONGEST_PART

pytest.importorskip("xllamacpp", reason="xllamacpp has no build for this system")

PLAIN_KINDS = (
    "llama-bpe",
    "qwen2",
    "qwen35",
    "tekken",
    "gpt-4o",
    "deepseek-v3",
    "starcoder",
    "falcon",
    "default",
)
OTHER_KINDS: dict[str, Callable[[], Vocabulary]] = {
    "sentencepiece": sentencepiece,
    "sentencepiece without a space prefix": lambda: sentencepiece(space_prefix=False),
    "gemma4": gemma4,
}


@pytest.mark.parametrize("pre", PLAIN_KINDS)
async def test_byte_level_kinds_match_llama_cpp(pre: str, tmp_path: Path) -> None:
    """Every way to split words gives the engine's ids, by the fast path and by the merges."""
    write_model(tmp_path / "model.gguf", byte_level(pre), "")
    await same_ids_as_llama_cpp(tmp_path / "model.gguf", tmp_path)


@pytest.mark.parametrize("kind", OTHER_KINDS)
async def test_other_algorithms_match_llama_cpp(kind: str, tmp_path: Path) -> None:
    """SentencePiece and Gemma's merges give the engine's ids."""
    write_model(tmp_path / "model.gguf", OTHER_KINDS[kind](), "")
    await same_ids_as_llama_cpp(tmp_path / "model.gguf", tmp_path)


async def test_wordpiece_matches_llama_cpp(tmp_path: Path) -> None:
    """BERT's WordPiece gives the engine's ids, combining marks of Indic scripts and Hangul apart."""
    write_model(tmp_path / "model.gguf", wordpiece(), "")
    await same_ids_as_llama_cpp(tmp_path / "model.gguf", tmp_path, without={"odd", "code"})


@pytest.mark.slow
@pytest.mark.parametrize("length", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
async def test_long_runs_match_llama_cpp(length: int, tmp_path: Path) -> None:
    """Runs of white space that our library cannot split in one go are cut as the engine cuts them.

    Each half a million characters without a word between them, which are counted by themselves, may be a token more.
    """
    path = tmp_path / "model.gguf"
    write_model(path, byte_level("qwen2"), "")
    tokenizer = build_tokenizer(read_gguf_header(path))
    with LlamaServer(path, tmp_path, Options(context_length=256)) as server:
        for character in (" ", "\t", "\u00a0", "\u3000"):
            for end in ("x", "", "\nx"):
                text = f"x{character * length}{end}"
                more = tokenizer.count(text) - len(await tokenize(server, text))
                assert 0 <= more <= length // LONGEST_PART, (character, end)
