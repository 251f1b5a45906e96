"""From turn to turn the engine reads only what is new: elbowroom sends what came before with the same bytes.

What the engine has in its cache is its own report. Every conversation is also had with the engine directly, and what
that reaches is demanded.
"""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pytest
from engine_as_lmstudio import engine_as_lmstudio
from long_conversations import Conversation, Kind, conversation
from prefix_reuse import PLAIN_AND_TOOLS, REAL, Reading, Template, reading_of, readings_of
from serving import serve, settings_for
from stateless_client import StatelessClient, openai_client

from elbowroom.tokens.files.loading import load_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from llama_server import LlamaServer

INSTRUCTIONS: Final = "You are the purser. Write no more than you were asked for."
AGENT: Final = f'[[agents]]\nid = "purser"\nname = "The Purser"\ninstructions = "{INSTRUCTIONS}"\nmodel = "tiny"\n'
SAME_WORDS: Final[dict[str, Any]] = {"max_tokens": 12, "temperature": 0, "seed": 7}
TURNS: Final = 8
THOUGHTS: Final = "The note should say when the ferry leaves."
WHOLE: Final = {"stream": False, "stream_options": None}
WAYS: Final = pytest.mark.parametrize("model", ["lmstudio/tiny", "purser"], ids=["raw model", "agent"])


def talk_for(engine: LlamaServer, kind: Kind, turns: int = TURNS) -> Conversation:
    """Return a conversation that stays far below the trigger."""
    return conversation(kind, turns, engine.options.context_length // 3, load_model(engine.model).text.tokenizer.count)


async def have(url: str, model: str, talk: Conversation, *, thoughts: str = "") -> list[str]:
    """Have the conversation, every other answer streamed, and return the answers."""
    answers = []
    beside = {"reasoning_content": thoughts} if thoughts else {}
    async with openai_client(url) as api:
        client = StatelessClient(api, model, talk, SAME_WORDS)
        for exchange in talk.exchanges:
            client.take_in(exchange, **beside)
            reply = await client.ask()
            answers.append(reply.text)
            client.history.append({"role": "assistant", "content": reply.text})
    return answers


async def both_ways(
    folder: Path, engine: LlamaServer, model: str, talk: Conversation, *, thoughts: str = "", is_taken: bool = True
) -> tuple[list[Reading], list[Reading]]:
    """Have a conversation through elbowroom and then directly; return what the engine read, each time anew.

    Where the engine does not take the client's own requests, it gets directly what elbowroom has made of them.
    """
    files = f'model_files = {{ tiny = "{engine.model}" }}'
    direct = replace(talk, system=f"{INSTRUCTIONS}\n\n{talk.system}") if model == "purser" else talk
    async with engine_as_lmstudio(engine) as upstream:
        settings = settings_for(upstream.base_url, agents=AGENT, provider=files)
        async with serve(folder, settings) as served:
            await forget(engine)
            said = await have(served.url, model, talk, thoughts=thoughts)
        through, bodies = readings_of(upstream.requests), upstream.chats()
        await forget(engine)
        if is_taken:
            assert await have(upstream.base_url, "tiny", direct, thoughts=thoughts) == said
            return through, readings_of(upstream.requests)[len(through) :]
        answers = [await engine.post("/v1/chat/completions", {**body, **WHOLE}) for body in bodies]
        return through, [reading_of(json.dumps(answer).encode()) for _, answer in answers]


async def forget(engine: LlamaServer) -> None:
    """Let the engine read something else, so that a conversation that it knows begins anew."""
    status, _ = await engine.post("/completion", {"prompt": "!", "n_predict": 1})
    assert status == 200


def assert_whole_prompts_are_cached(readings: list[Reading]) -> None:
    """Fail where a turn's prompt was not in the cache when the next one came."""
    for before, after in pairwise(readings):
        assert after.cached >= before.prompt


@pytest.mark.slow
@WAYS
@pytest.mark.parametrize("kind", PLAIN_AND_TOOLS)
async def test_the_earlier_prompt_is_never_read_again(
    tmp_path: Path, engine: LlamaServer, model: str, kind: Kind
) -> None:
    """With a template that only appends, all of the earlier prompt is cached, and as much as directly."""
    through, direct = await both_ways(tmp_path, engine, model, talk_for(engine, kind))
    assert through == direct
    assert len(through) == TURNS
    assert_whole_prompts_are_cached(through)


@pytest.mark.long
@pytest.mark.timeout(600)
@WAYS
@pytest.mark.parametrize("kind", PLAIN_AND_TOOLS)
@pytest.mark.parametrize("template", REAL, ids=lambda template: template.name)
async def test_real_templates_reuse_what_they_can(
    tmp_path: Path, engine_for: Callable[[str, str], LlamaServer], template: Template, model: str, kind: Kind
) -> None:
    """Every real template reaches what it reaches directly, also where it moves text or drops thoughts by itself."""
    engine = engine_for(template.name, template.vocabulary)
    thoughts = THOUGHTS if "Qwen3" in template.name else ""
    is_taken = kind not in template.refuses
    through, direct = await both_ways(
        tmp_path, engine, model, talk_for(engine, kind), thoughts=thoughts, is_taken=is_taken
    )
    assert through == direct
    if kind not in template.moves:
        assert_whole_prompts_are_cached(through)
