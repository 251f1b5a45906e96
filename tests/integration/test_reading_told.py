"""While a model reads a long prompt, a person sees how much it reads and how long that takes yet."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
from cancelling import NAME, ask, cancel
from chatting import AGENT, MODEL, RAW_MODEL
from fake_upstream import chunk, fake_upstream, says, streams
from patient_counting import wait_for_counts
from serving import serve, settings_for
from watched_stream import statuses_of, watched

from elbowroom.agents import ask as asking
from elbowroom.agents.turn import sending
from elbowroom.demo import SimulatedLMStudio, SimulatedModel

READS: Final = re.compile(r"Reading ([\d,]+) tokens")
SPEED: Final = 8000  # tokens a second
READING: Final = {"total": 9000, "cache": 1000}
Body = dict[str, Any]


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    for module in (asking, sending):
        monkeypatch.setattr(module, "LEAST_TOLD", 0.02)
    monkeypatch.setattr(sending, "SECONDS_BETWEEN", 0.02)


def turns(number: int) -> list[Body]:
    """Return a chat of so many turns, the last of which has no answer yet."""
    words = "The sea was calm and the ferry left. " * 150
    answer = {"role": "assistant", "content": "Fine."}
    return [message for at in range(number) for message in ({"role": "user", "content": f"{at}. {words}"}, answer)][:-1]


@pytest.mark.slow
@pytest.mark.parametrize("tells_cached", [False, True])
async def test_what_is_told_is_what_is_read(tmp_path: Path, *, tells_cached: bool) -> None:
    """After three turns the tokens are those that are not in the engine's cache, 20 % off at most; the end is told."""
    loaded = SimulatedModel(MODEL, loaded_context_length=32_768)
    studio = SimulatedLMStudio([loaded], prefix_cache=True, tells_cached=tells_cached, prefill_tokens_per_second=SPEED)
    async with studio, serve(tmp_path, settings_for(studio.base_url)) as served:
        statuses: list[Body] = []
        for number in (1, 2, 3, 4):
            async with watched(served, {"model": RAW_MODEL, "messages": turns(number)}) as stream:
                statuses = statuses_of(await stream.rest())
    chat = studio.chats[-1]
    assert chat.counted_tokens is not None
    read = chat.counted_tokens - chat.reused_tokens
    told = [int(found[1].replace(",", "")) for status in statuses if (found := READS.match(status["description"]))]
    assert told
    assert told == [pytest.approx(read, rel=0.2)] * len(told)
    assert statuses[-1] == {"description": "", "done": True, "hidden": True}


async def test_a_quick_answer_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told of a wait of less than two seconds."""
    monkeypatch.setattr(asking, "LEAST_TOLD", 2.0)
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            async with watched(served, {"model": RAW_MODEL, "messages": turns(2)}) as stream:
                assert statuses_of(await stream.rest()) == []


async def test_what_the_engine_tells_itself(tmp_path: Path) -> None:
    """llama.cpp is asked how far it has read; what it says replaces what was expected."""
    listed = says({"data": [{"id": "m", "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx": 32_768}}]})
    progress = [
        chunk({"content": None}, prompt_progress={**READING, "processed": 1000 + 200 * step, "time_ms": 100 * step})
        for step in range(9)
    ]
    reply = streams(*progress, chunk({"content": "Hi"}), chunk({}, "stop"), b"data: [DONE]\n\n")
    async with fake_upstream({"/v1/models": listed, "/v1/chat/completions": reply}) as upstream:
        settings = settings_for(f"{upstream.url}/v1", kind="openai", provider="manage_context = true")
        async with serve(tmp_path, settings) as served:
            async with watched(served, {"model": "openai/m", "messages": turns(1)}) as stream:
                statuses = statuses_of(await stream.rest())
    assert upstream.asked_at("/v1/chat/completions")[0].json["return_progress"] is True
    told = [status["description"] for status in statuses if status["description"]]
    assert told
    assert all(re.fullmatch(r"Reading 8,000 tokens, about [34] s left", text) for text in told), told


@pytest.mark.parametrize("model", [RAW_MODEL, "writer"])
async def test_the_line_ends_with_an_answer_that_is_stopped(tmp_path: Path, model: str) -> None:
    """Who stops an answer while its prompt is read is left with no open line."""
    loaded = SimulatedModel(MODEL, loaded_context_length=32_768)
    async with SimulatedLMStudio([loaded], prefill_tokens_per_second=SPEED) as studio:
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT)) as served:
            await ask(served, {"model": model, "messages": turns(1)})  # it is known then how fast it reads
            studio.prefill_tokens_per_second = SPEED // 10
            body = {"model": model, "messages": turns(8)}
            async with watched(served, body, **{"X-Conversation-Id": NAME}) as stream:
                await stream.until("Reading ")
                await cancel(served)
                statuses = statuses_of(await stream.rest())
    assert READS.match(statuses[-2]["description"])
    assert statuses[-1] == {"description": "", "done": True, "hidden": True}
