"""`elbowroom quality`, as the real program in front of a simulated LM Studio."""

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from command_line import run, running
from serving import serve, settings_for
from study_models import MAIN, PRUNERS, StudyModels
from waiting import until

from elbowroom.server.state import Timing

FAITHFUL, SLOPPY, GARBAGE = (f"lmstudio/{name}" for name in PRUNERS)
QUICK = ("--model", f"lmstudio/{MAIN}", "--quick", "--pruner")


@pytest.mark.slow
async def test_by_the_running_server(tmp_path: Path) -> None:
    """It prints the table, the best first, and the advice; once more as JSON."""
    models = StudyModels()
    async with models.studio, serve(tmp_path, settings_for(models.studio.base_url), timing=Timing(quiet=0)) as served:
        place = ("--config", str(served.settings), "--port", str(served.port))
        done = await asyncio.to_thread(run, tmp_path, "quality", *place, *QUICK, GARBAGE, FAITHFUL)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == (
            f"lmstudio/{MAIN} with a window of 4,096 tokens; 1 conversation, compacted twice. Shares are per cent."
        )
        names = [line.split("  ")[0].strip() for line in lines[2:7]]
        assert names == ["pruning agent", FAITHFUL, GARBAGE, "(last messages only)", "(LM Studio's cut)"]
        assert lines[-1].startswith(f"Choose {FAITHFUL}: ")
        told = await asyncio.to_thread(run, tmp_path, "quality", *place, "--json", *QUICK, FAITHFUL)
        state = json.loads(told.stdout)
        assert (state["state"], state["lines"][0]["pruner"]) == ("done", FAITHFUL)


@pytest.mark.slow
async def test_ctrl_c_prints_what_it_has(tmp_path: Path) -> None:
    """Where no server runs it runs one for itself, which keeps nothing; Ctrl-C stops the study, exit code 0."""
    models = StudyModels("faithful")
    models.after = 3
    async with models.studio:
        (tmp_path / "settings.toml").write_text(settings_for(models.studio.base_url), encoding="utf-8")
        command = ("quality", "--config", str(tmp_path / "settings.toml"), "--port", "9", *QUICK, "same")
        async with running(tmp_path, *command) as program:
            await until(lambda: models.questions > 3, 60)
            program.process.send_signal(signal.SIGINT)
            await program.line_with("Stopped: this is what was measured until then.")
            await program.line_with("(last messages only)")
            assert await program.ended() == 0
    assert await asyncio.to_thread(lambda: [*tmp_path.rglob("elbowroom.db")]) == []


@pytest.mark.slow
async def test_a_server_that_ends(tmp_path: Path) -> None:
    """What was measured until then is printed, with the reason; exit code 1."""
    models = StudyModels("faithful")
    models.after = 3
    async with models.studio, AsyncExitStack() as until_gone:
        serving = serve(tmp_path, settings_for(models.studio.base_url), timing=Timing(quiet=0))
        served = await until_gone.enter_async_context(serving)
        place = ("--config", str(served.settings), "--port", str(served.port))
        async with running(tmp_path, "quality", *place, *QUICK, "same") as program:
            await until(lambda: models.questions > 3, 60)
            await until_gone.aclose()
            await program.line_with("The study has ended early: The server at ")
            assert await program.ended() == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pruner", "nobody"), "elbowroom: There is no model 'nobody'"),
        (("--stop",), "elbowroom: No elbowroom runs at http://127.0.0.1:9, so no study does."),
    ],
)
async def test_errors_are_sentences(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    """Exit code 1, and what to do on standard error."""
    models = StudyModels()
    async with models.studio:
        (tmp_path / "settings.toml").write_text(settings_for(models.studio.base_url), encoding="utf-8")
        place = ("--config", str(tmp_path / "settings.toml"), "--port", "9")
        done = await asyncio.to_thread(run, tmp_path, "quality", *place, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(words)
