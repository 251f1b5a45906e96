"""`[[models]]` over real HTTP: a model is compacted as its own row says, and clients are told what it advertises."""

from pathlib import Path
from typing import Any

import pytest
from agent_teams import agent, team
from serving import Served

from elbowroom.demo import SimulatedModel, ToolCall
from elbowroom.demo.script import Script

QWEN = SimulatedModel("qwen2.5-7b-instruct", loaded_context_length=32_768)
TINY = SimulatedModel("tiny", loaded_context_length=4096)
OWN = """
[[models]]
id = "QWEN*"
threshold_ratio = 0.5
advertised_window = 64000

[[models]]
id = "lmstudio/*"
threshold_ratio = 0.93
"""
AGENTS = [agent("triage", handoffs=["editor"]), agent("editor", model="tiny") + OWN]


async def get(served: Served, path: str) -> dict[str, Any]:
    """Return what is answered."""
    async with served.http.get(f"{served.url}/v1/{path}") as response:
        answer: dict[str, Any] = await response.json()
        assert response.status == 200, answer
        return answer


async def marks_of(served: Served, model: str) -> dict[str, float]:
    """Chat with a model and return the shares of the window at which its conversation is compacted and stopped."""
    body = {"model": model, "messages": [{"role": "user", "content": f"Hello, {model}"}]}
    async with served.http.post(served.chat_url, json=body) as response:
        assert response.status == 200, await response.text()
        conversation = response.headers["X-Conversation-Id"]
    marks: dict[str, float] = (await get(served, f"conversations/{conversation}"))["context"]["thresholds"]
    return marks


@pytest.mark.parametrize(
    ("model", "trigger", "stop"),
    [("lmstudio/qwen2.5-7b-instruct", 0.375, 0.9), ("lmstudio/tiny", 0.805, 0.94), ("editor", 0.805, 0.94)],
)
async def test_a_model_is_compacted_from_its_own_mark_on(
    tmp_path: Path, model: str, trigger: float, stop: float
) -> None:
    """Raw, and as the model of an agent; the mark is that of the prompt, without the room for its reply."""
    async with team(tmp_path, AGENTS, {"editor": ["Yes."]}, models=[QWEN, TINY]) as (served, _):
        marks = await marks_of(served, model)
    assert marks["trigger"] == pytest.approx(trigger, abs=0.03)
    assert marks["stop"] == pytest.approx(stop, abs=0.001)


async def test_whoever_takes_over_has_the_marks_of_its_own_model(tmp_path: Path) -> None:
    """A conversation that is handed over is kept within the window as the row of the other agent's model says."""
    lines = {"triage": [Script("One moment.", ToolCall("transfer_to_editor"))], "editor": ["Yes."]}
    async with team(tmp_path, AGENTS, lines, models=[QWEN, TINY]) as (served, _):
        assert (await marks_of(served, "triage"))["stop"] == pytest.approx(0.94, abs=0.001)


async def test_an_advertised_window_is_only_told(tmp_path: Path) -> None:
    """The list has it beside the loaded one, for models and agents; usage, and what is sent, are as without."""
    async with team(tmp_path, AGENTS, {"editor": ["Yes."]}, models=[QWEN, TINY]) as (served, _):
        rows = {row["id"]: row for row in (await get(served, "models"))["data"]}
        told = [rows[name] for name in ("triage", "lmstudio/qwen2.5-7b-instruct")]
        told.append(await get(served, "models/triage"))
        for row in told:
            assert (row["context_length"], row["advertised_window"], row["window_is"]) == (64_000, 64_000, "advertised")
            assert (row["loaded_context_length"], row["max_output_tokens"]) == (32_768, 8192)
        assert (rows["editor"]["context_length"], rows["editor"]["window_is"]) == (4096, "loaded")
        assert "advertised_window" not in rows["editor"]
        with_it = (await served.chat("lmstudio/qwen2.5-7b-instruct", "Hello"))["usage"]["prompt_tokens"]
        served.settings.write_text(served.settings.read_text("utf-8").replace("advertised_window", "# "), "utf-8")
        assert (await get(served, "models/triage"))["window_is"] == "loaded"
        assert (await served.chat("lmstudio/qwen2.5-7b-instruct", "Hello"))["usage"]["prompt_tokens"] == with_it
