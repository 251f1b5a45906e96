"""What the program says of its own commands, and what commands say that are given nothing to do."""

import subprocess
import sys
from pathlib import Path

import pytest
from command_line import run
from settings_file import load

ROOT = Path(__file__).parents[2]
AS_A_SCRIPT = {"ELBOWROOM_STARTED_AS": "scripts/run"}


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["status", "--port", "9"], "Start it with `scripts/run serve`."),
        (["store", "copy", "nowhere.db", "there.db"], "`scripts/run doctor` says where the store is."),
        (["config", "show"], "`scripts/run config show --all` lists the defaults."),
        (["connect"], "scripts/run connect opencode"),
        (["--help"], "usage: scripts/run"),
    ],
)
def test_hints_are_what_the_person_can_type(tmp_path: Path, arguments: list[str], hint: str) -> None:
    """Commands in hints begin as the program was started; without a script they begin with `elbowroom`."""
    answer = run(tmp_path, *arguments, **AS_A_SCRIPT)
    assert hint in answer.stdout + answer.stderr
    usual = run(tmp_path, *arguments)
    assert hint.replace("scripts/run", "elbowroom") in usual.stdout + usual.stderr


@pytest.mark.slow
def test_the_script_says_how_it_was_called() -> None:
    """`scripts/run` is what its own hints name."""
    answer = subprocess.run(
        [sys.executable, "scripts/run", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert answer.stdout.startswith("usage: scripts/run ")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("connect", ["open-webui", "claude-code", "--write sets it up", "http://127.0.0.1:2345/v1"]),
        ("memories", ["list", "delete", "show them, the newest first"]),
        ("store", ["copy", "check", "read the whole store"]),
    ],
)
def test_a_bare_command_says_what_it_can_do(tmp_path: Path, command: str, said: list[str]) -> None:
    """It is no error to ask."""
    answer = run(tmp_path, command)
    assert (answer.returncode, answer.stderr) == (0, "")
    for words in said:
        assert words in answer.stdout


@pytest.mark.parametrize(
    ("written", "provider", "model"),
    [
        ('model = "lmstudio/qwen2.5-7b"', "lmstudio", "qwen2.5-7b"),
        ('model = "lmstudio/qwen/qwen3-8b"', "lmstudio", "qwen/qwen3-8b"),
        ('model = "attic/llama"', "attic", "llama"),
        ('model = "attic/llama"\nprovider = "attic"', "attic", "llama"),
        ('model = "attic/llama"\nprovider = "lmstudio"', "lmstudio", "attic/llama"),
        ('model = "qwen/qwen3-8b"', "lmstudio", "qwen/qwen3-8b"),
    ],
)
def test_a_model_may_be_named_as_it_is_listed(tmp_path: Path, written: str, provider: str, model: str) -> None:
    """With its provider in front, as README and `/v1/models` name it; what is no provider is part of the name."""
    providers = "".join(f'[[providers]]\nid = "{name}"\nkind = "lmstudio"\n' for name in ("lmstudio", "attic"))
    [agent] = load(tmp_path, f'{providers}[[agents]]\nid = "writer"\n{written}\n').settings.agents
    assert (agent.provider, agent.model) == (provider, model)
