"""Counts with a model's own file are the engine's own, for real vocabularies and templates: 0 tokens off."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from template_chats import random_chat

from elbowroom.tokens.count import CannotCount
from elbowroom.tokens.file_counter import CountingTools, FileCounter

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_server import LlamaServer

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

PAIRS: Final = [
    ("meta-llama-Llama-3.1-8B-Instruct", "llama-bpe"),
    ("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "llama-bpe"),
    ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "llama-bpe"),
    ("Qwen-Qwen2.5-7B-Instruct", "qwen2"),
    ("Qwen-Qwen3-0.6B", "qwen2"),
    ("Qwen3.5-4B", "qwen35"),
    ("mistralai-Mistral-Nemo-Instruct-2407", "llama-spm"),
    ("microsoft-Phi-3.5-mini-instruct", "phi-3"),
    ("google-gemma-4-31B-it", "gemma-4"),
    ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", "command-r"),
]
CHATS: Final = 200
BESIDE: Final = Path(__file__).parents[3] / "shared" / "data"
RECORDED: Final = Path(os.environ.get("ELBOWROOM_TEST_DATA", BESIDE)) / "transcripts"
TRANSCRIPTS: Final = sorted(path for path in RECORDED.glob("*.json") if not path.name.endswith(".usage.json"))


async def counts(engine: LlamaServer, body: dict[str, Any]) -> int | None:
    """Return the engine's count, None where it refuses to render."""
    status, answer = await engine.post("/v1/chat/completions/input_tokens", body)
    return answer["input_tokens"] if status == 200 else None


async def differences(engine: LlamaServer, bodies: list[dict[str, Any]]) -> tuple[int, list[tuple[int, int, str]]]:
    """Return how many bodies both sides counted, and those on which they differ."""
    tools = CountingTools()
    counter = FileCounter(engine.model, tools.loader, tools.renderer)
    counted, different = 0, []
    try:
        for body in bodies:
            theirs = await counts(engine, body)
            try:
                ours = await counter.count_chat(
                    body["messages"], body.get("tools", []), body.get("chat_template_kwargs", {})
                )
            except CannotCount:
                assert theirs is None, f"only the engine counts {body}"
                continue
            if theirs is not None:
                counted += 1
                if ours.tokens != theirs:
                    different.append((ours.tokens, theirs, json.dumps(body)[:500]))
    finally:
        await tools.aclose()
    return counted, different


@pytest.mark.parametrize(("template", "vocabulary"), PAIRS, ids=[template for template, _ in PAIRS])
async def test_random_chats(template: str, vocabulary: str, engine_for: Callable[[str, str], LlamaServer]) -> None:
    """Two hundred random chats with tools, calls, results, thinking, parts, and other scripts."""
    chance = random.Random(template)
    chats = [random_chat(chance) for _ in range(CHATS)]
    bodies = [
        {"messages": list(chat.messages), "chat_template_kwargs": dict(chat.arguments)}
        | ({"tools": list(chat.tools)} if chat.tools else {})
        for chat in chats
        if not chat.messages or not chat.messages[-1].get("tool_calls")
    ]
    counted, different = await differences(engine_for(template, vocabulary), bodies)
    assert not different
    assert counted >= CHATS // 2


@pytest.mark.skipif(not TRANSCRIPTS, reason="the recorded conversations are not part of the repository")
@pytest.mark.parametrize(("template", "vocabulary"), PAIRS, ids=[template for template, _ in PAIRS])
async def test_recorded_conversations(
    template: str, vocabulary: str, engine_for: Callable[[str, str], LlamaServer]
) -> None:
    """Real agents' work of up to 63,000 tokens: the whole of each, and its beginnings."""
    bodies = []
    for path in TRANSCRIPTS:
        messages = json.loads(path.read_text(encoding="utf-8"))["messages"]
        ends = [end for end in (2, 9, len(messages) // 2, len(messages)) if not messages[end - 1].get("tool_calls")]
        bodies += [{"messages": messages[:end]} for end in ends]
    counted, different = await differences(engine_for(template, vocabulary), bodies)
    assert not different
    assert counted
