"""A person stops a turn while its conversation is compacted or its memories are saved, or what goes on behind it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cancelling import ask, assert_nothing_open, cancel, last_turn, leaving_nothing_behind, stopped_when
from chatting import AGENT, MODEL, RAW_MODEL, eventually
from patient_counting import wait_for_counts
from quick_models import take_models_for_quick
from scripted_pruner import is_prune_order, text_of, valid_plan
from serving import serve, settings_for
from small_window import ANSWER, history, orders_of, small_window, turns_of

from elbowroom.agents.admission import Admission
from elbowroom.agents.turn.flush import ORDER
from elbowroom.demo import Overflow, RecordedRequest, Script, SimulatedLMStudio, SimulatedModel, Text, WaitFor
from elbowroom.server.state import SHARED, Timing

Body = dict[str, Any]
QUICK = Timing(quiet=0.02)
LONG_ANSWER = " ".join(["The ferry left at noon and came back in the evening."] * 20)


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    take_models_for_quick(monkeypatch)


def long_body(model: str, *, stream: bool) -> Body:
    """Return a request whose history does not fit the window."""
    return {"model": model, "messages": history(12), "stream": stream}


@pytest.mark.parametrize(("model", "stream"), [("writer", True), (RAW_MODEL, False)], ids=["agent", "raw model"])
async def test_while_the_plan_is_prepared_or_written(tmp_path: Path, model: str, stream: bool) -> None:
    """Before the first word of the plan, and in the middle of it: the order is closed, and so is the notice."""
    gate = asyncio.Event()
    beginnings = [0, 80]

    def prune(body: Body) -> Script:
        plan, shown = valid_plan(body), beginnings[0]
        return Script(Text(plan[:shown], whole=True), WaitFor(gate), plan[shown:])

    async with leaving_nothing_behind(), small_window(tmp_path, prune=prune) as (served, studio):
        body = long_body(model, stream=stream)
        while beginnings:
            received, _ = await stopped_when(
                served, body, lambda: orders_of(studio) and is_at(orders_of(studio)[-1], beginnings[0])
            )
            assert (received.text, received.finish, received.open_statuses) == ("", "stop", 0)
            await assert_nothing_open(studio)
            assert turns_of(studio) == []
            del beginnings[0]
        gate.set()
        beginnings.append(0)
        assert (await ask(served, body)).text.endswith(ANSWER)


def is_at(order: RecordedRequest, written: int) -> bool:
    """Tell whether the engine works on an order, and has written something if it was to."""
    return order.phase == "streaming" and bool(order.completion_tokens) == bool(written)


async def test_while_it_waits_for_the_model(tmp_path: Path) -> None:
    """One that waits for room beside another chat is stopped, and the place behind it in the queue is free."""
    release = asyncio.Event()

    def says(body: Body) -> Script | str:
        return Script(WaitFor(release), ANSWER) if "first" in text_of(body["messages"][-1]) else ANSWER

    loaded = SimulatedModel(MODEL, loaded_context_length=2000)
    pool = Overflow(shared_pool=True)
    async with leaving_nothing_behind(), SimulatedLMStudio([loaded], on_request=says, overflow=pool) as studio:
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT)) as served:
            messages = [*history(11)[:-1], {"role": "user", "content": "Which pier comes first?"}]
            first = asyncio.create_task(ask(served, {"model": "writer", "messages": messages}, name="another"))
            await eventually(lambda: studio.chats, "the first is not asked")
            admission: Admission = served.app[SHARED].admission
            body = {"model": "writer", "messages": history(11), "stream": True}
            received, _ = await stopped_when(served, body, lambda: admission.waiting(("lmstudio", MODEL)))
            assert (received.text, received.finish) == ("", "stop")
            assert admission.waiting(("lmstudio", MODEL)) == 0
            assert len(studio.chats) == 1
            release.set()
            assert (await first).text == ANSWER
            assert (await ask(served, body)).text == ANSWER
            assert admission.held(("lmstudio", MODEL)) == 0


async def test_while_memories_are_saved(tmp_path: Path) -> None:
    """The flush before a compaction is ended like everything else, and is done with the next turn."""
    gate = asyncio.Event()

    def says(body: Body) -> Script | str:
        return Script(WaitFor(gate), "SILENT") if text_of(body["messages"][-1]) == ORDER["content"] else ANSWER

    agents = f'{AGENT}tools = ["save_memory"]\n[memory]\nenabled = true\n'
    async with (
        leaving_nothing_behind(),
        small_window(tmp_path, says, window=2048, compaction="background = false", agents=agents) as (served, studio),
    ):
        body = {"model": "writer", "messages": history(10), "stream": True}
        received, _ = await stopped_when(served, body, lambda: studio.chats)
        assert (received.text, received.finish, received.open_statuses) == ("", "stop", 0)
        await assert_nothing_open(studio)
        assert len(studio.chats) == 1
        gate.set()
        assert (await ask(served, body)).text == ANSWER
        assert text_of(studio.chats[1].body["messages"][-1]) == ORDER["content"]
        assert any(is_prune_order(chat.body) for chat in studio.chats)


async def test_what_goes_on_behind_an_answer(tmp_path: Path) -> None:
    """The conversation is idle, but compacted in the background: that is ended too; the answer stays a whole one."""
    gate = asyncio.Event()

    def prune(body: Body) -> Script:
        return Script(WaitFor(gate), valid_plan(body))

    async with (
        leaving_nothing_behind(),
        small_window(tmp_path, lambda body: LONG_ANSWER, window=4096, prune=prune, timing=QUICK) as (served, studio),
    ):
        await ask(served, {"model": RAW_MODEL, "messages": history(31)})
        await eventually(lambda: orders_of(studio), "nothing is compacted behind the answer")
        answer = await cancel(served)
        assert (answer["cancelled"], answer["status"]) == (0, "idle")
        await assert_nothing_open(studio)
        [kept] = await last_turn(served)
        assert kept.status == "complete"
        assert not gate.is_set()
