"""Codex does its task of forty calls with the real engine, which tells how much of each prompt it had in its cache."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Final

import platformdirs
import pytest
from client_libraries import LibraryUnavailableError
from coding_agents import AGENTS, Place, installed_agents, run
from coding_task import PROMPT, CodingModel, write_task
from llama_server import Options
from scripted_engine import ScriptedEngine
from serving import serve, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from llama_server import LlamaServer
    from scripted_engine import Read

pytestmark = [pytest.mark.long, pytest.mark.timeout(700)]
WINDOW: Final = 32_768
SECONDS: Final = 300.0
LEAST_REUSE: Final = 0.95


@pytest.fixture(scope="module")
def installed() -> Path:
    """Install the agents where that is not done yet."""
    try:
        return installed_agents(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    except LibraryUnavailableError as error:
        pytest.skip(str(error))


async def test_codex_reuses_what_the_engine_has_read(
    tmp_path: Path, start_engine: Callable[[Options], LlamaServer], installed: Path
) -> None:
    """The task is done; at least 95 % of the tokens are in the engine's cache but where old words were shortened."""
    engine = start_engine(Options(context_length=WINDOW))
    task = write_task(tmp_path / "repository", WINDOW // 2)
    model = CodingModel(task)
    async with ScriptedEngine(engine, model) as upstream:
        settings = settings_for(upstream.base_url, provider=f'model_files = {{ tiny = "{engine.model}" }}')
        async with serve(tmp_path, settings) as served:
            place = Place(tmp_path / "home", task.folder, served.url, WINDOW, "tiny")
            outcome = await run(AGENTS["Codex"], installed, place, PROMPT, SECONDS)
    assert task.wrong_files() == [], outcome.said[-2000:]
    assert (outcome.code, outcome.errors, upstream.refused) == (0, [], [])
    assert all(read.reading.prompt < WINDOW for read in upstream.reads)
    assert upstream.reads[-1].trimmed
    grown = [after.reading for before, after in pairwise(upstream.reads) if goes_on(after, before)]
    assert sum(reading.cached for reading in grown) >= LEAST_REUSE * sum(reading.prompt for reading in grown)


def goes_on(after: Read, before: Read) -> bool:
    """Tell whether a prompt only adds to the one before: neither is an order, and no more results are trimmed."""
    return not before.is_order and not after.is_order and after.trimmed == before.trimmed
