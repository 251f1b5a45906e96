"""A person loads the model anew while conversations run: the next request is within whatever window is there then."""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, calls_of, chunks_of, function_spec, stream_bytes
from outcome import chat
from own_tools import own_tool
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, serve, settings_for, text_of
from small_window import ANSWER, history, small_window, turns_of

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Pause, Script, SimulatedLMStudio, SimulatedModel, SimulatedTokenizer, ToolCall

Body = dict[str, Any]
LARGE: Final = 32_768
SMALL: Final = 4096
LONG: Final = history(60)
"""About 5,000 tokens."""


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def large(folder: Path, **more: Any) -> AbstractAsyncContextManager[tuple[Served, SimulatedLMStudio]]:
    """Run both with a window that the long conversation fits easily."""
    return small_window(folder, window=LARGE, **more)


async def answer_to(served: Served, messages: Sequence[Body] = LONG, *, stream: bool = True) -> str:
    """Return the answer, which has to be whole."""
    outcome = await chat(served, RAW_MODEL, stream=stream, messages=list(messages))
    assert outcome.error is None
    return outcome.text


@pytest.mark.fault("window changed", "first", "compacted to the new one")
@pytest.mark.parametrize("stream", [True, False])
async def test_between_two_turns(tmp_path: Path, *, stream: bool) -> None:
    """32k, then 4k within the same second: the next turn is compacted first, and no request is too large."""
    async with large(tmp_path) as (served, studio):
        assert await answer_to(served, stream=stream) == ANSWER
        studio.reload(MODEL, SMALL)
        again = [*LONG, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "And the first?"}]
        assert await answer_to(served, again, stream=stream) == ANSWER
        first, second = turns_of(studio)
        assert (first.window, second.window) == (LARGE, SMALL)
        assert first.body["messages"] == LONG
        assert_fits(second)
        assert second.body["messages"][-1] == again[-1]
        studio.reload(MODEL, LARGE)
        assert await answer_to(served, stream=stream) == ANSWER
        assert turns_of(studio)[-1].body["messages"] == LONG


async def test_between_two_rounds_of_the_clients_tools(tmp_path: Path) -> None:
    """The client runs a tool while the window shrinks: its results are answered, not refused."""

    def model(body: Body) -> Script:
        return Script(ANSWER) if body["messages"][-1]["role"] == "tool" else Script(ToolCall("look", {"path": "a"}))

    async with large(tmp_path, model=model) as (served, studio):
        body: Body = {"model": RAW_MODEL, "messages": LONG, "tools": [function_spec("look")]}
        [call] = calls_of(chunks_of(await stream_bytes(served, body)))
        studio.reload(MODEL, SMALL)
        function = {"name": call["name"], "arguments": call["arguments"]}
        made = {"id": call["id"], "type": "function", "function": function}
        result = {"role": "tool", "tool_call_id": call["id"], "content": "The pier is the ninth."}
        rounds = [*LONG, {"role": "assistant", "content": "", "tool_calls": [made]}, result]
        assert text_of(chunks_of(await stream_bytes(served, {**body, "messages": rounds}))) == ANSWER
        last = turns_of(studio)[-1]
        assert_fits(last)
        assert last.window == SMALL
        assert last.body["messages"][-1]["content"] == "The pier is the ninth."


@pytest.mark.slow
@pytest.mark.fault("window changed", "tool", "compacted before the next step")
async def test_between_two_steps_of_the_servers_tools(tmp_path: Path) -> None:
    """The window shrinks while a tool of the server runs: the next step is compacted first."""
    studios: list[SimulatedLMStudio] = []

    @own_tool
    async def look(path: str) -> str:
        """Look something up."""
        studios[0].reload(MODEL, SMALL)
        return "The pier is the ninth."

    def toolbox(target: Target) -> list[ServerTool]:
        return [look]

    def model(body: Body) -> Script:
        if is_prune_order(body):
            return Script(valid_plan(body))
        return Script(ANSWER) if body["messages"][-1]["role"] == "tool" else Script(ToolCall("look", {"path": "a"}))

    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=LARGE)], on_request=model) as studio:
        studios.append(studio)
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT), toolbox=toolbox) as served:
            chunks = chunks_of(await stream_bytes(served, {"model": "writer", "messages": LONG}))
        assert text_of(chunks) == ANSWER
        first, second = turns_of(studio)
        assert (first.window, second.window) == (LARGE, SMALL)
        assert_fits(second)


@pytest.mark.slow
@pytest.mark.fault("window changed", "compaction", "seen before the prompt is sent")
@pytest.mark.parametrize("window", [1500, 3000])
async def test_while_the_pruner_runs(tmp_path: Path, window: int) -> None:
    """A window that shrinks while a compaction takes its time, or breaks it off, is seen before the prompt is sent."""

    def prunes(body: Body) -> Script | str | None:
        if not is_prune_order(body):
            return ANSWER
        if studio.residency.of(MODEL)[0].context_length == SMALL:
            studio.reload(MODEL, window)
            return Script(Pause(1.2), valid_plan(body))
        return valid_plan(body)

    async with small_window(tmp_path, window=SMALL) as (served, studio):
        studio.on_request = prunes
        assert await answer_to(served) == ANSWER
        [turn] = turns_of(studio)
        assert turn.window == window
        assert_fits(turn)


@pytest.mark.slow
@pytest.mark.parametrize("default", [SMALL, LARGE])
async def test_unloaded_between_two_turns(tmp_path: Path, default: int) -> None:
    """It is loaded again just in time, perhaps with another window, and that is the one that counts."""
    async with large(tmp_path) as (served, studio):
        assert await answer_to(served) == ANSWER
        studio.residency.models[MODEL] = replace(studio.residency.models[MODEL], default_context_length=default)
        studio.unload(MODEL)
        assert await answer_to(served) == ANSWER
        last = turns_of(studio)[-1]
        assert last.window == default
        assert_fits(last)
        assert (last.body["messages"] == LONG) is (default == LARGE)


async def test_granted_less_than_was_asked_for(tmp_path: Path) -> None:
    """LM Studio fits windows to the machine: what was granted counts."""
    async with large(tmp_path) as (served, studio):
        assert await answer_to(served) == ANSWER
        studio.residency.models[MODEL] = replace(studio.residency.models[MODEL], auto_fit=SMALL)
        studio.reload(MODEL, LARGE)
        assert await answer_to(served) == ANSWER
        assert turns_of(studio)[-1].window == SMALL
        assert_fits(turns_of(studio)[-1])


async def test_a_second_instance_takes_over(tmp_path: Path) -> None:
    """Where the first instance is gone and a smaller one answers to the model's name, its window counts."""
    async with large(tmp_path) as (served, studio):
        second = studio.load(MODEL, SMALL)
        assert await answer_to(served) == ANSWER
        assert turns_of(studio)[-1].window == LARGE
        del studio.residency.instances[MODEL]
        assert await answer_to(served) == ANSWER
        last = turns_of(studio)[-1]
        assert last.instance_id == second.id
        assert_fits(last)


class Letters(SimulatedTokenizer):
    """Cuts text into single letters: the tokenizer of quite another model."""

    def split(self, text: str) -> list[str]:
        """Return the letters."""
        return list(text)


async def test_another_file_under_the_same_name(tmp_path: Path) -> None:
    """The same window and another tokenizer: it is counted anew, and the prompt fits for the new model."""
    async with small_window(tmp_path, window=SMALL) as (served, studio):
        assert await answer_to(served, history(20)) == ANSWER
        other = replace(studio.residency.models[MODEL], size_bytes=1_000_000, tokenizer=Letters())
        studio.residency.models[MODEL] = other
        studio.reload(MODEL, SMALL)
        assert await answer_to(served, history(20)) == ANSWER
        first, second = turns_of(studio)
        assert first.body["messages"] == history(20)
        assert_fits(second)
        assert len(second.body["messages"]) < len(first.body["messages"])


def lists_read(studio: SimulatedLMStudio) -> int:
    """Return how often the list of models was asked for."""
    return sum(asked.path == "/api/v1/models" for asked in studio.requests)


async def test_the_list_is_read_once_for_a_turn(tmp_path: Path) -> None:
    """What it costs to be sure: one small request to LM Studio for each step, and at most that for a crowd."""
    async with small_window(tmp_path) as (served, studio):
        await answer_to(served, history(1))
        before = lists_read(studio)
        await answer_to(served, history(1))
        assert lists_read(studio) == before + 1
        await asyncio.gather(*(answer_to(served, history(1)) for _ in range(20)))
        assert lists_read(studio) <= before + 21


async def test_compacted_by_hand(tmp_path: Path) -> None:
    """A compaction that a person asks for is one to the window that is loaded now."""
    async with large(tmp_path) as (served, studio):
        assert await answer_to(served) == ANSWER
        studio.reload(MODEL, 2000)
        url = f"{served.url}/v1/conversations/any/compact"
        async with served.http.post(url, json={"model": RAW_MODEL, "messages": LONG}) as response:
            compacted = await response.json()
        assert 0 < compacted["after"] < 1600 < 2000 < compacted["before"]
