"""Stop in Open WebUI closes the socket, in whatever phase: everything ends at once, and no status line stays open."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, eventually
from patient_counting import wait_for_counts
from scripted_pruner import is_prune_order
from serving import serve, settings_for
from small_window import history, small_window
from watched_stream import statuses_of, watched

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel, WaitFor

Body = dict[str, Any]
MARKS = pytest.mark.parametrize(
    "headers",
    [{"X-Elbowroom-Message-Id": "6e6b"}, {"X-OpenWebUI-Chat-Id": "b208"}],
    ids=["header set", "forwarded headers"],
)


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def waits_for(event: asyncio.Event) -> Callable[[Body], Script]:
    """Return a model that says nothing before the event."""
    return lambda body: Script(WaitFor(event), "Yes.")


@MARKS
async def test_stop_in_a_compaction(tmp_path: Path, headers: dict[str, str]) -> None:
    """The pruning request is closed; the last that Open WebUI has got is a status that is done, with the size."""
    async with small_window(tmp_path, prune=waits_for(asyncio.Event())) as (served, studio):
        async with watched(served, {"model": "writer", "messages": history(12)}, **headers) as stream:
            opening = await stream.next_status()
            closed = await stream.next_status()
            await eventually(lambda: studio.chats, "no order to prune is sent")
        await eventually(lambda: studio.disconnects, "the order to prune goes on")
        assert is_prune_order(studio.disconnects[0].request.body)
        first, last = opening["event"]["data"], closed["event"]["data"]
        assert first == {"description": "Compacting conversation history...", "done": False}
        assert last["done"] is True
        assert last["description"].startswith("Compacting conversation history... (")
        assert statuses_of(stream.received)[-1] == last


@pytest.mark.slow
@MARKS
async def test_stop_while_a_model_is_loaded(tmp_path: Path, headers: dict[str, str]) -> None:
    """The wait for the model ends, and so does its line."""
    slow = SimulatedModel(MODEL, default_context_length=4096, load_seconds=600)
    async with SimulatedLMStudio([slow]) as studio, serve(tmp_path, settings_for(studio.base_url)) as served:
        body = {"model": f"lmstudio/{MODEL}", "messages": [{"role": "user", "content": "Hello"}]}
        async with watched(served, body, **headers) as stream:
            told = [(await stream.next_status())["event"]["data"] for _ in range(2)]
        assert told == [{"description": "Loading model...", "done": done} for done in (False, True)]
        await eventually(lambda: not studio.open_requests, "the load goes on")


async def test_other_clients_are_told_what_is_open(tmp_path: Path) -> None:
    """Whoever does not say that it is Open WebUI gets a status that is open until it is done."""
    async with small_window(tmp_path) as (served, _):
        async with watched(served, {"model": "writer", "messages": history(12)}) as stream:
            told = statuses_of(await stream.rest())
        assert [each["done"] for each in told] == [False, True]
