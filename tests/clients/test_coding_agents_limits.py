"""Coding agents of other people: one error that helps in a window without room, and what they ask beside a chat.

Their own way out of an overflow, a compaction and the same request again, would go on without end where not even the
tools fit.
"""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import platformdirs
import pytest
from chatting import MODEL
from client_libraries import LibraryUnavailableError
from coding_agents import AGENTS, Agent, Outcome, Place, installed_agents, run
from recording_relay import RecordingRelay, Request
from serving import serve, settings_for
from small_window import Model

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, ToolCall

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]
TINY: Final = {"opencode": 4096, "Codex": 2560, "pi": 1024}
LARGE: Final = 32_768
SECONDS: Final = 90.0
ANSWER: Final = "The last ferry leaves from the ninth pier."
WOULD_DO: Final = re.compile(r"Load the model with ([\d,]+) tokens or more")
ROUTES: Final = ("/chat/completions", "/responses")
Body = dict[str, Any]


@pytest.fixture(scope="module")
def installed() -> Path:
    """Return where the agents are installed; skip where they cannot be had."""
    try:
        return installed_agents(platformdirs.user_cache_path("elbowroom-tests", appauthor=False))
    except LibraryUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(params=[*TINY])
def agent(request: pytest.FixtureRequest) -> Agent:
    """Each agent in turn."""
    return AGENTS[request.param]


@asynccontextmanager
async def in_a_window_of(
    window: int, folder: Path, says: Model = lambda body: ANSWER
) -> AsyncIterator[tuple[SimulatedLMStudio, RecordingRelay]]:
    """Run elbowroom in front of a model with this window, and a relay that records what a client asks of it."""
    model = SimulatedModel(MODEL, loaded_context_length=window, max_context_length=131_072)
    async with (
        SimulatedLMStudio([model], on_request=says) as studio,
        serve(folder, settings_for(studio.base_url)) as served,
        RecordingRelay(served.url) as relay,
    ):
        yield studio, relay


async def ask(
    agent: Agent, installed: Path, folder: Path, relay: RecordingRelay, window: int, *, is_managed: bool = True
) -> Outcome:
    """Have the agent answer one question in an empty folder; else it `is_managed` by nobody, and compacts by itself."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    place = Place(folder / "home", work, relay.base_url, window, is_managed=is_managed)
    return await run(agent, installed, place, "Which pier does the last ferry leave from?", SECONDS)


def turns(relay: RecordingRelay) -> list[Request]:
    """Return the requests that offer tools; titles do not."""
    return [sent for sent in relay.requests if sent.path.endswith(ROUTES) and sent.json().get("tools")]


async def test_one_error(tmp_path: Path, installed: Path, agent: Agent) -> None:
    """The agent asks once, shows the sentence, and ends; with the window that the sentence names, it works."""
    window = TINY[agent.name]
    async with in_a_window_of(window, tmp_path) as (studio, relay):
        outcome = await ask(agent, installed, tmp_path, relay, window)
        asked = turns(relay)
    assert outcome.code is not None, "it was still running"
    assert len(asked) == 1, [sent.path for sent in asked]
    assert not [chat for chat in studio.chats if chat.body.get("tools")]
    found = WOULD_DO.search(outcome.said.replace("\\n", " "))
    assert found is not None, outcome.said
    assert f"It is loaded with {window:,}, " in outcome.said
    would_do = int(found[1].replace(",", ""))
    larger = tmp_path / "larger"
    larger.mkdir()
    async with in_a_window_of(would_do, larger) as (studio, relay):
        outcome = await ask(agent, installed, larger, relay, would_do)
    assert outcome.errors == [], outcome.said
    assert ANSWER in outcome.said


@pytest.mark.parametrize(("agent", "told"), [("opencode", LARGE // 3), ("Codex", LARGE // 6)], indirect=["agent"])
async def test_its_own_compaction(tmp_path: Path, installed: Path, agent: Agent, told: int) -> None:
    """An agent that believes in a small window asks for titles and summaries: these are tasks, and none is kept."""
    async with in_a_window_of(LARGE, tmp_path, reads_much()) as (_, relay):
        outcome = await ask(agent, installed, tmp_path, relay, told, is_managed=False)
        metrics, kept = (
            await read(f"{relay.base_url}/metrics"),
            json.loads(await read(f"{relay.base_url}/v1/conversations")),
        )
    assert outcome.errors == [], outcome.said
    asked = [sent for sent in relay.requests if sent.path.endswith(ROUTES) and not sent.json().get("tools")]
    tasks = re.search(r'elbowroom_answers_total\{agent="",kind="task",outcome="whole"\} (\d+)', metrics)
    assert tasks is not None
    assert int(tasks[1]) == len(asked) >= 1
    assert len(kept["data"]) <= 1
    assert ANSWER in outcome.said


def reads_much() -> Model:
    """Return a model that has much printed once, then answers; without tools, it is asked for a title or a summary."""
    calls = {"bash": {"command": "seq 1 2000", "description": "Counts."}, "exec_command": {"cmd": "seq 1 2000"}}
    rounds = iter(range(1000))

    def says(body: Body) -> Script | str:
        offered = {tool["function"]["name"] for tool in body.get("tools", ())}
        if not offered:
            return "The ferry."
        [name] = offered & calls.keys()
        return Script(ToolCall(name, calls[name])) if next(rounds) < 2 else ANSWER

    return says


async def read(url: str) -> str:
    """Return what is at an address."""
    async with aiohttp.ClientSession() as http, http.get(url) as response:
        return await response.text()
