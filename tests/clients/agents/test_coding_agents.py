"""Coding agents of other people, as they come from npm, do a task that outgrows the window; LM Studio is simulated.

scripts/coding_agents runs them with elbowroom and without it, and writes what came of it into docs/agents.md.
"""

import shutil
from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import platformdirs
import pytest
from client_libraries import LibraryUnavailableError
from coding_agents import AGENTS, Agent, installed_agents
from coding_runs import Run, coding_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(700)]
WINDOWS: Final = (8192, 16_384, 32_768)
TOO_SMALL: Final = {("Claude Code", 8192)}
"""Where what an agent always sends is larger than the window."""
MOST_ROUNDS_REFUSED: Final = 8
"""Claude Code asks thrice with short lists of its tools, and thrice with long ones."""


@cache
def installed_or_reason() -> Path | str:
    """Install the agents where that is not done yet; return why it cannot be done, where it cannot."""
    try:
        return installed_agents(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    except LibraryUnavailableError as error:
        return str(error)


def installed_for(agent: Agent) -> Path:
    """Return where an agent is installed; skip where it cannot be had."""
    found = installed_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    if agent.name == "Claude Code" and shutil.which("claude") is None:
        pytest.skip("Claude Code is not installed")
    return found


def refusals_of(run: Run) -> list[bytes]:
    """Return the answers that told the client of an error."""
    return [bytes(request.answer) for request in run.asked if b'"error": {' in request.answer.replace(b'":{', b'": {')]


@pytest.mark.parametrize(("name", "window"), [pair for pair in product(AGENTS, WINDOWS) if pair not in TOO_SMALL])
async def test_a_task_that_outgrows_the_window(tmp_path: Path, name: str, window: int) -> None:
    """The task of forty calls is done: no prompt reaches the window, no error the client, the files are as wanted."""
    run = await coding_run(AGENTS[name], installed_for(AGENTS[name]), tmp_path, window)
    assert run.task.wrong_files() == [], run.outcome.said[-2000:]
    assert run.outcome.code == 0
    assert run.outcome.errors == []
    assert refusals_of(run) == []
    assert run.over_the_window == 0
    assert run.rounds > len(run.task.steps)
    assert run.shortened >= 2


@pytest.mark.parametrize(("name", "window"), sorted(TOO_SMALL))
async def test_a_window_that_is_too_small(tmp_path: Path, name: str, window: int) -> None:
    """An agent that cannot fit is told which window would do, in words that it shows, and ends at once."""
    run = await coding_run(AGENTS[name], installed_for(AGENTS[name]), tmp_path, window)
    assert run.outcome.code not in (0, None)
    assert run.rounds <= MOST_ROUNDS_REFUSED
    assert run.over_the_window == 0
    assert any("Load the model with" in str(error) for error in run.outcome.errors)


@pytest.mark.parametrize("window", [8192, 16_384])
async def test_the_list_of_an_agent_outlives_compactions(window: int) -> None:
    """What is to do and what was edited is named after compactions, also where nearly all of the window is fixed.

    The folder's path, which the list of files repeats, is as short as a person's: a test's own takes thirty tokens.
    """
    agent = AGENTS["opencode"]
    with TemporaryDirectory() as folder:
        run = await coding_run(agent, installed_for(agent), Path(folder), window, is_long=True, keeps_list=True)
        assert run.task.wrong_files() == [], run.outcome.said[-2000:]
    assert run.own_compactions == 0
    assert run.over_the_window == 0
    assert run.named.things_named >= 0.95 * run.named.things > 0
    assert run.named.edited_named >= 0.95 * run.named.edited > 0
