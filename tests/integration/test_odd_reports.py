"""An engine that reports or names nonsense about its window: the next request must not suffer from it."""

from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL
from outcome import chat
from patient_counting import wait_for_counts
from scripted_pruner import valid_plan
from small_window import ANSWER, history, small_window, turns_of

from elbowroom.demo import Pause, Reply, Script

USAGE = {"prompt_tokens": 3, "completion_tokens": 9, "total_tokens": 12}


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@pytest.mark.fault("wrong usage", "streaming", "teaches no window")
async def test_an_engine_that_reports_only_what_was_not_in_its_cache(tmp_path: Path) -> None:
    """A report of next to nothing is no window that anything could be sent to: chats go on."""
    messages = history(3)

    def model(body: dict[str, Any]) -> Script | str:
        return Script(ANSWER, usage=USAGE)

    async with small_window(tmp_path, model) as (served, studio):
        for _ in range(4):
            outcome = await chat(served, RAW_MODEL, stream=True, messages=messages)
            assert (outcome.error, outcome.text) == (None, ANSWER)
        assert turns_of(studio)[-1].body["messages"] == messages


@pytest.mark.parametrize("named", [0, 1, 7])
async def test_an_engine_that_names_no_window(tmp_path: Path, named: int) -> None:
    """A window of no size is no lesson."""
    text = f"request (640 tokens) exceeds the available context size ({named} tokens), try increasing it"
    scripts = [Script(Reply(400, {"error": text}))]
    async with small_window(tmp_path, lambda body: scripts.pop() if scripts else ANSWER) as (served, _):
        await chat(served, RAW_MODEL, stream=True, messages=history(5))
        outcome = await chat(served, RAW_MODEL, stream=True, messages=history(1))
        assert (outcome.error, outcome.text) == (None, ANSWER)


@pytest.mark.slow
async def test_a_list_of_models_that_fails_after_a_compaction(tmp_path: Path) -> None:
    """Whether the window is another one by now is good to know, and nothing that a chat has to fail for."""

    def prune(body: dict[str, Any]) -> Script | str:
        list_is_old = Pause(1.1 if studio.native_api != "none" else 0.0)
        studio.native_api = "none"
        return Script(list_is_old, valid_plan(body))

    async with small_window(tmp_path, prune=prune) as (served, studio):
        outcome = await chat(served, RAW_MODEL, stream=True, messages=history(8))
        assert (outcome.error, outcome.text) == (None, ANSWER)
        assert len(turns_of(studio)) == 1
