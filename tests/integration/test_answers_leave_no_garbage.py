"""An answer is gone with its end: nothing of it waits for the garbage collector, whose search holds the event loop."""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, RAW_MODEL, chat_body, elbowroom_with_studio, eventually
from own_tools import own_tool
from serving import Served

from elbowroom.agents.catalog import Target
from elbowroom.demo import Cut, Error, Pause, Reply, Script, ToolCall, wording

OF_AN_ANSWER = ("elbowroom.agents.turn.", "elbowroom.agents.conversations.recording")
"""What is made for one answer is in these modules."""
TIMES = 2
CRASHED = Reply(500, {"error": "The model has crashed."})
REFUSED = Reply(400, {"error": wording("A", 4096, 4096, "qwen2")})
ANSWERS: dict[str, tuple[str, list[Any]]] = {
    "raw model": (RAW_MODEL, ["One two three."]),
    "agent with a tool": ("writer", [Script(ToolCall("read_note", {"path": "a.md"})), "Water them."]),
    "asked again after a crash": (RAW_MODEL, [Script(CRASHED), "One two three."]),
    "crashed again and again": (RAW_MODEL, [Script(CRASHED)]),
    "cut": (RAW_MODEL, [Script("One two", Cut())]),
    "no room": (RAW_MODEL, [Script(REFUSED)]),
    "out of room": (RAW_MODEL, [Script("One two", Error(wording("E", 4096, 4096, "qwen2")))]),
}

AGAIN_AND_AGAIN = ("crashed again and again", "no room")


@own_tool
async def read_note(path: str) -> str:
    """Read a note."""
    return f"The note {path} says: water the plants."


def toolbox(target: Target) -> list[Any]:
    """Give the agent its one tool."""
    return [read_note] if target.agent else []


@pytest.fixture
def _without_collector() -> Iterator[None]:
    """Let nothing search for garbage meanwhile, nor keep the failures that are logged, as pytest does."""
    gc.collect()
    gc.disable()
    logging.disable()
    yield
    logging.disable(logging.NOTSET)
    gc.enable()


def made_for_answers() -> Counter[str]:
    """Return how many objects there are of each kind that is made for an answer."""
    kinds = (type(each) for each in gc.get_objects())
    return Counter(kind.__qualname__ for kind in kinds if str(kind.__module__).startswith(OF_AN_ANSWER))


@pytest.mark.usefixtures("_without_collector")
@pytest.mark.parametrize("kind", ANSWERS)
async def test_nothing_of_an_answer_outlives_it(tmp_path: Path, kind: str) -> None:
    """Be it whole, cut or refused; a failure and the frames that it went through go with it."""
    model, script = ANSWERS[kind]
    async with elbowroom_with_studio(tmp_path, toolbox=toolbox, agents=AGENT) as (served, studio):
        before = Counter[str]()
        for number in range(1 + TIMES):
            studio.enqueue(*script, repeat=kind in AGAIN_AND_AGAIN)
            await ask(served, model)
            before = before if number else made_for_answers()  # the last one may be kept: it is read again when quiet
        await eventually(lambda: made_for_answers() <= before, "they stay", seconds=10)


@pytest.mark.slow
@pytest.mark.usefixtures("_without_collector")
async def test_nothing_of_an_answer_outlives_a_client_that_leaves(tmp_path: Path) -> None:
    """Its cancellation is a failure as well."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        before = made_for_answers()
        for _ in range(TIMES):
            studio.enqueue(Script("One ", Pause(5.0), "two"))
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await ask(served, RAW_MODEL)
        await eventually(lambda: made_for_answers() <= before, "they stay", seconds=10)


async def ask(served: Served, model: str) -> None:
    """Ask for an answer and read it to its end, whatever its status."""
    async with served.http.post(served.chat_url, json=chat_body(model=model, stream=True)) as response:
        await response.read()
