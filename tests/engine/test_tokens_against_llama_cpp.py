"""Our tokenizers cut text exactly as llama.cpp itself does: its server is asked for the same texts."""

from collections.abc import Callable, Collection
from pathlib import Path

import aiohttp
import pytest
from llama_server import LlamaServer, Options
from text_samples import prose, samples
from tiny_gguf import write_model
from vocabularies import Vocabulary
from vocabulary_kinds import byte_level, gemma4, sentencepiece, wordpiece

from elbowroom.tokens.gguf_header import read_gguf_header
from elbowroom.tokens.gguf_tokenizer import build_tokenizer

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


def texts_with_special_tokens(special: frozenset[str]) -> list[str]:
    """Return prompts in which special tokens stand in every kind of neighbourhood."""
    marks = sorted(special)[:8]
    words = prose(3, 40).split(" ")
    return [
        "".join(f"{mark}{word} " for mark, word in zip(marks * 5, words, strict=False)),
        "".join(f"{mark}\n{word}{mark} {mark}" for mark, word in zip(marks * 5, words, strict=False)),
        "<|im_start|>user\nHello<|im_end|>\n<|im_star <s> </s> <unk> [CLS] <tool_call>\n",
    ]


async def compare(path: Path, folder: Path, *, without: Collection[str] = ()) -> None:
    """Compare the ids of the sample texts, by every engine that can run the vocabulary."""
    header = read_gguf_header(path)
    tokenizers = [build_tokenizer(header), build_tokenizer(header, fast=False)]
    texts = [text for kind, text in samples(2).items() if kind not in without]
    texts += texts_with_special_tokens(tokenizers[0].special_tokens)
    with LlamaServer(path, folder, Options(context_length=256)) as server:
        for text in texts:
            expected = await tokenize(server, text)
            for tokenizer in tokenizers:
                assert tokenizer.encode(text) == expected, (type(tokenizer.engine).__name__, text[:80])


async def tokenize(server: LlamaServer, text: str) -> list[int]:
    """Ask the engine for the ids of a text, special tokens parsed and none added."""
    body = {"content": text, "add_special": False, "parse_special": True}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{server.base_url}/tokenize", json=body) as answer,
    ):
        return list((await answer.json())["tokens"])


@pytest.mark.parametrize("pre", PLAIN_KINDS)
async def test_byte_level_kinds_match_llama_cpp(pre: str, tmp_path: Path) -> None:
    """Every way to split words gives the engine's ids, by the fast path and by the merges."""
    write_model(tmp_path / "model.gguf", byte_level(pre), "")
    await compare(tmp_path / "model.gguf", tmp_path)


@pytest.mark.parametrize("kind", OTHER_KINDS)
async def test_other_algorithms_match_llama_cpp(kind: str, tmp_path: Path) -> None:
    """SentencePiece and Gemma's merges give the engine's ids."""
    write_model(tmp_path / "model.gguf", OTHER_KINDS[kind](), "")
    await compare(tmp_path / "model.gguf", tmp_path)


async def test_wordpiece_matches_llama_cpp(tmp_path: Path) -> None:
    """BERT's WordPiece gives the engine's ids, combining marks of Indic scripts and Hangul apart."""
    write_model(tmp_path / "model.gguf", wordpiece(), "")
    await compare(tmp_path / "model.gguf", tmp_path, without={"odd", "code"})
