"""A turn with tools and a compaction, stopped at its n-th suspension for many n: nothing is ever left behind."""

import asyncio
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cancelling import Received, ask, assert_kept, cancel, last_turn, leaving_nothing_behind
from chatting import AGENT_WITHOUT_CACHE, MODEL, RAW_MODEL, chat_body, elbowroom_with_studio, eventually
from own_tools import own_tool
from patient_counting import wait_for_counts
from serving import Served
from small_window import ANSWER, history, small_window
from suspensions import StopsAt, stopping

from elbowroom.agents.running import RunningAnswer
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Script, SimulatedLMStudio, ToolCall
from elbowroom.server.state import SHARED

POOL = ("lmstudio", MODEL)
Body = dict[str, Any]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@own_tool
async def look() -> str:
    """Look at the pier."""
    await asyncio.sleep(0.001)
    return "The pier is open, and the sea is calm."


def says(body: Body) -> Script | str:
    """Look at the pier, and then say what there is to say."""
    return ANSWER if body["messages"][-1]["role"] == "tool" else Script("I look.", ToolCall("look"))


def tools(target: Any) -> list[ServerTool]:
    """Return the one tool."""
    return [look]


def is_idle(served: Served, name: str) -> bool:
    """Tell whether nothing is answered in this conversation."""
    return served.app[SHARED].running.find("", name) is None


async def stop_at_each(
    served: Served, studio: SimulatedLMStudio, stops: StopsAt, body: Body, places: Callable[[int], Iterable[int]]
) -> int:
    """Let the turn run once, then stop it at these of its suspensions; return how many answers were cut short."""
    whole = await ask(served, body, name="whole")
    tasks = len(asyncio.all_tasks())
    cut = 0
    for place in places(stops.seen):
        stops.place, name = place, f"stopped at {place}"
        received = await ask(served, body, name=name)
        stops.place = 0
        await eventually(lambda: studio.open_requests == 0, f"{name}: a request is left open")
        await eventually(lambda: len(asyncio.all_tasks()) <= tasks + 1, f"{name}: a task is left")
        check(received, whole)
        await assert_kept(served, received, name)
        assert is_idle(served, name)
        statuses = {message.status for message in await last_turn(served, name)}
        cut += received.text != whole.text
        assert "streaming" not in statuses
    assert (await ask(served, body, name="afterwards")).text == whole.text
    await eventually(lambda: served.app[SHARED].admission.held(POOL) == 0, "a ticket was not given back")
    return cut


def check(received: Received, whole: Received) -> None:
    """Check that an answer is the beginning of the whole one, and has ended as one."""
    assert whole.text.startswith(received.text)
    assert (received.finish, received.calls, received.open_statuses) == ("stop", False, 0)


def some(count: int) -> Callable[[int], Iterable[int]]:
    """Return what picks about so many places, evenly."""
    return lambda seen: range(1, seen, max(1, seen // count))


async def stopped_everywhere(folder: Path, model: str, places: Callable[[int], Iterable[int]], *, stream: bool) -> None:
    """Stop a turn with a compaction, and where an agent takes it with a tool, at these of its suspensions."""
    model_says = says if model == "writer" else lambda body: ANSWER
    async with (
        leaving_nothing_behind(),
        small_window(
            folder, model_says, agents=AGENT_WITHOUT_CACHE, toolbox=tools, compaction="background = false"
        ) as (served, studio),
    ):
        body = {"model": model, "messages": history(8), "stream": stream}
        await ask(served, body, name="first")  # which loads the SDK and opens the store
        with stopping(served) as stops:
            assert await stop_at_each(served, studio, stops, body, places) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("model", "stream"), [("writer", True), (RAW_MODEL, False)])
async def test_at_some_suspensions(tmp_path: Path, model: str, stream: bool) -> None:
    """A few places, evenly over the whole turn."""
    await stopped_everywhere(tmp_path, model, some(6), stream=stream)


@pytest.mark.long
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_at_every_suspension(tmp_path: Path, model: str, stream: bool) -> None:
    """Each and every place."""
    await stopped_everywhere(tmp_path, model, lambda seen: range(1, seen), stream=stream)


@pytest.mark.long
@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_leaving_at_every_suspension(tmp_path: Path, model: str) -> None:
    """The client leaves instead of stopping: no request, task or ticket is left, and what was said is kept."""
    async with (
        leaving_nothing_behind(),
        small_window(
            tmp_path,
            says if model == "writer" else lambda body: ANSWER,
            agents=AGENT_WITHOUT_CACHE,
            toolbox=tools,
            compaction="background = false",
        ) as (served, studio),
    ):
        body = {"model": model, "messages": history(8), "stream": True}
        await ask(served, body, name="first")
        with stopping(served) as stops:
            await ask(served, body, name="whole")
            tasks, places = len(asyncio.all_tasks()), stops.seen
            asking: list[asyncio.Task[Received]] = []

            def leave(turn: RunningAnswer) -> None:
                asking[0].cancel()

            stops.stop = leave
            for place in range(1, places):
                stops.place, name = place, f"left at {place}"
                asking[:] = [asyncio.create_task(ask(served, body, name=name))]
                await asyncio.wait(asking)
                stops.place = 0
                await eventually(partial(is_idle, served, name), f"{name}: it goes on")
                await eventually(lambda: studio.open_requests == 0, f"{name}: a request is left open")
                await eventually(lambda: len(asyncio.all_tasks()) <= tasks, f"{name}: a task is left")
                with suppress(AssertionError):
                    assert "streaming" not in {message.status for message in await last_turn(served, name)}
            await ask(served, body, name="afterwards")
            await eventually(lambda: served.app[SHARED].admission.held(POOL) == 0, "a ticket was not given back")


@pytest.mark.long
@pytest.mark.parametrize("phase", ["prefill", "streaming"])
async def test_upstream_sees_it_soon(tmp_path: Path, phase: str) -> None:
    """Between the stop and the closed socket upstream there are 100 ms at most, as the median of many rounds."""
    late: list[float] = []
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.tokens_per_second = 500
        if phase == "prefill":
            studio.prefill_tokens_per_second = 50
        for _ in range(60):
            studio.requests.clear()
            studio.disconnects.clear()
            studio.enqueue("word " * 4000)
            asking = asyncio.create_task(ask(served, chat_body("word " * 20, stream=True)))
            await eventually(lambda: studio.chats and studio.chats[0].phase == phase, "the moment never came")
            stopped = time.monotonic()
            await cancel(served)
            await asking
            await eventually(lambda: studio.disconnects, "it was not closed")
            late.append(studio.disconnects[0].at - stopped)
    assert statistics.median(late) < 0.1
