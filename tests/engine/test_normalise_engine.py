"""The engine takes every normalised history, whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from engine_rendering import demands_of_engine, rendered
from random_histories import TOOLS, Json, some_histories, words_in

from elbowroom.context.templates.demands import TemplateDemands
from elbowroom.context.templates.normalise import normalise
from elbowroom.context.templates.repair import repair

if TYPE_CHECKING:
    from llama_server import LlamaServer

BROKEN_ARGUMENTS = {"id": "a", "type": "function", "function": {"name": "read_note", "arguments": '{"path": "gar'}}


async def test_demands_are_found_through_the_engine(engine: LlamaServer) -> None:
    """Its template is content with everything; the engine itself continues no more than one answer."""
    assert await demands_of_engine(engine) == TemplateDemands(one_answer_at_end=True)


@pytest.mark.slow
async def test_engine_takes_any_history_whole(engine: LlamaServer) -> None:
    """Random histories, normalised, are all rendered, with every text of every message in the prompt."""
    demands = await demands_of_engine(engine)
    for history in some_histories(60):
        messages = normalise(history, demands)
        if messages:
            assert words_in(messages) <= words_in(await rendered(engine, messages, TOOLS))


@pytest.mark.slow
async def test_sound_history_keeps_its_prompt(engine: LlamaServer) -> None:
    """For a history that the template takes anyway the prompt is the same to the byte."""
    demands = await demands_of_engine(engine)
    for history in some_histories(20, sound=True):
        sent = [*history, {"role": "user", "content": "Go on."}]
        assert await rendered(engine, normalise(sent, demands), TOOLS) == await rendered(engine, sent, TOOLS)


async def test_repair_saves_a_conversation_that_the_engine_refuses(engine: LlamaServer) -> None:
    """Arguments that were cut off make the engine refuse a history; repaired, it is answered."""
    history: list[Json] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [BROKEN_ARGUMENTS]},
    ]
    with pytest.raises(ValueError, match=r"was answered with [45]00"):
        await rendered(engine, history)
    status, _ = await engine.post("/v1/chat/completions", {"messages": repair(history), "max_tokens": 1})
    assert status == 200
