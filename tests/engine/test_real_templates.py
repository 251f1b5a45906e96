"""The engine with real vocabularies and chat templates, as llama.cpp's own tests keep them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest
from sample_chat import TOOL_CHAT

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_server import LlamaServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

PARTS: Final = {
    "system": "You help with notes.",
    "tools": "Reads one note.",
    "question": "What grows? 🌱 Grüße, 你好.",
    "call": "garden.md",
    "result": "Beans and peas.",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A chat template, its model's vocabulary or one near to it, and what the template leaves out."""

    template: str
    vocabulary: str
    left_out: frozenset[str] = frozenset()


PAIRS: Final = [
    Pair("meta-llama-Llama-3.1-8B-Instruct", "llama-bpe"),
    Pair("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "llama-bpe"),
    Pair("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-bpe", frozenset({"tools", "call"})),
    Pair("deepseek-ai-DeepSeek-V3.1", "deepseek-llm", frozenset({"tools"})),
    Pair("Qwen-Qwen2.5-7B-Instruct", "qwen2"),
    Pair("Qwen-Qwen3-0.6B", "qwen2"),
    Pair("Qwen3-Coder", "qwen2"),
    Pair("Qwen3.5-4B", "qwen35"),
    Pair("Mistral-Small-3.2-24B-Instruct-2506", "llama-bpe"),
    Pair("mistralai-Mistral-Nemo-Instruct-2407", "llama-spm", frozenset({"system"})),
    Pair("microsoft-Phi-3.5-mini-instruct", "phi-3", frozenset({"tools", "call", "result"})),
    Pair("google-gemma-4-31B-it", "gemma-4"),
    Pair("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r"),
    Pair("openai-gpt-oss-120b", "gpt-2"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.template)
async def test_real_template_renders_tool_chat(pair: Pair, engine_for: Callable[[str, str], LlamaServer]) -> None:
    """The engine renders system, tools, calls and results, counts what it renders, and reads just that."""
    engine = engine_for(pair.template, pair.vocabulary)
    prompt = await engine.render(TOOL_CHAT)
    left_out = {part for part, text in PARTS.items() if text not in prompt}
    assert left_out == pair.left_out
    tokens = await engine.tokenize(prompt)
    assert await engine.count(TOOL_CHAT) == len(tokens)
    await engine.post("/v1/chat/completions", TOOL_CHAT | {"max_tokens": 1})
    assert engine.prompts() == [prompt]
    _, (slot,) = await engine.get("/slots")
    assert slot["n_prompt_tokens"] == len(tokens)
