"""What one model has of its own: the row that names it, else the first that fits, over the settings of all models."""

from pathlib import Path

import pytest
from settings_file import load, refusal

from elbowroom.settings.change import users_of
from elbowroom.settings.load import usable_settings
from elbowroom.settings.model import RECALLS_UNASKED, CompactionSettings, RecallFor, Settings

AGENTS = [{"id": "critic", "model": "tiny"}, {"id": "off", "model": "tiny", "enabled": False}]
ROWS = [
    {"id": "Qwen*", "threshold_ratio": 0.93, "pruning_agent": "critic"},
    {"id": "lmstudio/qwen-7b", "threshold_ratio": 0.3},
    {"id": "ollama/*", "recall": "off"},
    {"id": "*:free", "advertised_window": 64_000},
    {"id": "q[1]", "threshold_ratio": 0.4},
]
TEXT = '[[agents]]\nid = "critic"\nmodel = "tiny"\n\n[[models]]\n'


@pytest.mark.parametrize(
    ("provider", "model", "own"),
    [
        ("lmstudio", "qwen-7b", {"threshold_ratio": 0.3}),
        ("lmstudio", "qwen-7b:2", {"threshold_ratio": 0.93, "pruning_agent": "critic"}),
        ("lmstudio", "QWEN-14b", {"threshold_ratio": 0.93, "pruning_agent": "critic"}),
        ("other", "qwen-7b", {"threshold_ratio": 0.93, "pruning_agent": "critic"}),
        ("ollama", "qwen-7b", {"threshold_ratio": 0.93, "pruning_agent": "critic"}),
        ("ollama", "gemma", {"recall": "off"}),
        ("lmstudio", "vendor/ollama/gemma", {}),
        ("lmstudio", "q[1]", {"threshold_ratio": 0.4}),
        ("lmstudio", "q1", {"threshold_ratio": 0.4}),
        ("lmstudio", "a:free", {}),
        ("lmstudio", "tiny", {}),
    ],
)
def test_compaction_of_a_model(provider: str, model: str, own: dict[str, object]) -> None:
    """The row that names it, else the first that fits, counts alone; what it does not set is as for every model."""
    common = CompactionSettings(threshold_ratio=0.7, recall="both", max_restarts=1)
    settings = Settings.model_validate({"agents": AGENTS, "models": ROWS, "compaction": common})
    assert settings.compaction_of(provider, model) == common.model_copy(update=own)


@pytest.mark.parametrize(
    ("recall", "unasked", "agents", "raw"),
    [
        ("auto", True, True, False),
        ("unasked", True, False, False),
        ("tool", False, True, True),
        ("both", True, True, True),
        ("off", False, False, False),
        ("agents", False, True, False),
        ("all", False, True, True),
    ],
)
def test_what_each_recall_is(recall: RecallFor, *, unasked: bool, agents: bool, raw: bool) -> None:
    """Each says whether passages come back unasked, and whether agents and raw models have the tool that searches."""
    chosen = CompactionSettings(recall=recall)
    assert (chosen.recall in RECALLS_UNASKED) is unasked
    assert [chosen.offers_recall(is_agent=is_agent) for is_agent in (True, False)] == [agents, raw]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("recall = 'off'", "models[0].id is missing."),
        ("id = ''", "models[0].id = '' is not accepted; it takes a text that is not empty."),
        ("id = 'a'\nthreshold_ratio = 0.29", "models[0].threshold_ratio = 0.29 is not accepted; it takes 0.3 or more."),
        (
            "id = 'a'\nthreshold_ratio = 0.94",
            "models[0].threshold_ratio = 0.94 is not accepted; it takes 0.93 or less.",
        ),
        ("id = 'a'\nadvertised_window = 0", "models[0].advertised_window = 0 is not accepted; it takes 1 or more."),
        (
            "id = 'a'\npruning_agent = 'gone'",
            (
                "models[0].pruning_agent = 'gone' is not accepted; "
                "it takes 'same' or the id of an enabled agent, which are: 'critic'."
            ),
        ),
        (
            "id = 'a'\n[[models]]\nid = 'A'",
            "models[1].id = 'A' is not accepted; models[0] has the same id.",
        ),
    ],
)
def test_wrong_row(tmp_path: Path, row: str, said: str) -> None:
    """The error names the row, the value and what is accepted; the other settings count without that value."""
    assert said in refusal(tmp_path, TEXT + row)
    path = tmp_path / "settings.toml"
    path.write_text(TEXT + row, encoding="utf-8")
    assert [agent.id for agent in usable_settings(path, {}, {}).settings.agents] == ["critic"]


def test_unknown_key_of_a_row(tmp_path: Path) -> None:
    """A misspelt key is told with the one that was meant."""
    assert any("threshold_ratio" in text for text in load(tmp_path, TEXT + "id = 'a'\ntreshold_ratio = 0.5").warnings)


def test_agent_that_prunes_for_one_model_is_needed() -> None:
    """It cannot be deleted before another one is chosen there."""
    settings = Settings.model_validate({"agents": AGENTS, "models": ROWS})
    assert list(users_of(settings, "critic")) == ["models[0].pruning_agent"]
