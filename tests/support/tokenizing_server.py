"""Compares tokenizers with llama.cpp's server, which tokenizes with a model's own file."""

import io
import json
from collections.abc import Collection
from pathlib import Path

import aiohttp
from llama_server import LlamaServer, Options
from text_samples import prose, samples

from elbowroom.tokens.files.gguf import read_gguf_header
from elbowroom.tokens.files.gguf_tokenizer import build_tokenizer


async def same_ids_as_llama_cpp(path: Path, folder: Path, *, without: Collection[str] = ()) -> None:
    """Compare the ids of the sample texts, by every engine of ours that can run the vocabulary.

    `folder` receives the server's log; `without` are kinds of samples to leave out.
    """
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
    """Ask the server for the ids of a text, special tokens parsed and none added."""
    body = io.BytesIO(json.dumps({"content": text, "add_special": False, "parse_special": True}).encode())
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"{server.base_url}/tokenize", data=body, headers={"Content-Type": "application/json"}) as answer,
    ):
        return list((await answer.json())["tokens"])


def texts_with_special_tokens(special: frozenset[str]) -> list[str]:
    """Return prompts in which special tokens stand in every kind of neighbourhood."""
    marks = sorted(special)[:8]
    words = prose(3, 40).split(" ")
    return [
        "".join(f"{mark}{word} " for mark, word in zip(marks * 5, words, strict=False)),
        "".join(f"{mark}\n{word}{mark} {mark}" for mark, word in zip(marks * 5, words, strict=False)),
        "<|im_start|>user\nHello<|im_end|>\n<|im_star <s> </s> <unk> [CLS] <tool_call>\n",
    ]
