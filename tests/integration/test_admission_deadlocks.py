"""Requests that wait for each other's room, for a compaction or for a tool: all end, and give everything back."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, chunks_of, eventually
from own_tools import Given, own_tool
from patient_counting import wait_for_counts
from scripted_pruner import is_prune_order, valid_plan
from serving import Served, serve, settings_for, text_of
from small_window import ask_whole, history, orders_of
from watched_stream import watched

from elbowroom.agents.catalog import Target
from elbowroom.agents.tools.tool import ServerTool
from elbowroom.demo import Overflow, Script, SimulatedLMStudio, SimulatedModel, ToolCall, WaitFor
from elbowroom.server.state import SHARED, Timing

Body = dict[str, Any]
WINDOW = 4096
NEARLY_FULL = 31
"""Exchanges that stay just below the trigger."""
TOO_MANY = 36
LONG_ANSWER = " ".join(["The ferry left at noon and came back in the evening."] * 20)
RAW = f"lmstudio/{MODEL}"


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@asynccontextmanager
async def one_pool(
    folder: Path, says: Callable[[Body], Script | str], *, toolbox: Given | None = None, **studio: Any
) -> AsyncIterator[tuple[Served, SimulatedLMStudio]]:
    """Run both over one shared window; at the end nobody may hold any of it or wait for it."""
    loaded = SimulatedModel(MODEL, loaded_context_length=WINDOW)
    pool = Overflow(shared_pool=True)
    async with SimulatedLMStudio([loaded], on_request=says, overflow=pool, **studio) as running:
        settings = settings_for(running.base_url, agents=AGENT)
        async with serve(folder, settings, timing=Timing(quiet=0.02), toolbox=toolbox) as served:
            yield served, running
            await eventually(lambda: running.open_requests == 0, "requests are left open upstream")
            admission, key = served.app[SHARED].admission, ("lmstudio", MODEL)
            await eventually(lambda: not admission.held(key) and not admission.waiting(key), "room is not given back")


def chat_of(person: str, exchanges: int, *, model: str = RAW) -> Body:
    """Return the request of a conversation that nobody else has."""
    messages = history(exchanges)
    messages[0] = {"role": "system", "content": f"You help {person}."}
    return {"model": model, "messages": messages, "user": person}


def followed(body: Body, answer: Body) -> Body:
    """Return the request one turn later."""
    said = {"role": "assistant", "content": answer["choices"][0]["message"]["content"]}
    return {**body, "messages": [*body["messages"], said, {"role": "user", "content": "And tomorrow?"}]}


@pytest.mark.slow
async def test_two_conversations_compact_at_once(tmp_path: Path) -> None:
    """Each needs room for its order and for its answer, and there is only enough for one of them at a time."""

    def says(body: Body) -> Script | str:
        return valid_plan(body) if is_prune_order(body) else LONG_ANSWER

    async with one_pool(tmp_path, says, tokens_per_second=2000) as (served, studio):
        chats = [chat_of(person, TOO_MANY) for person in ("Ada", "Bo", "Cy")]
        for status, answer in await asyncio.gather(*(ask_whole(served, chat) for chat in chats)):
            assert status == 200
            assert answer["choices"][0]["message"]["content"].strip() == LONG_ANSWER
        assert len(orders_of(studio)) >= len(chats)


async def test_a_compaction_that_is_waited_for_keeps_its_room(tmp_path: Path) -> None:
    """One conversation waits for what is compacted behind its answer, another for room: both get what they wait for."""
    ended = asyncio.Event()

    def says(body: Body) -> Script | str:
        return Script(WaitFor(ended), valid_plan(body)) if is_prune_order(body) else LONG_ANSWER

    async with one_pool(tmp_path, says) as (served, studio):
        first = chat_of("Ada", NEARLY_FULL)
        _, answer = await ask_whole(served, first)
        await eventually(lambda: len(orders_of(studio)) == 1, "nothing is compacted")
        follow = followed(first, answer)
        async with watched(served, follow) as next_turn:
            await next_turn.until("Compacting")
            async with watched(served, follow) as again:
                await again.until("Compacting")
            other = asyncio.create_task(ask_whole(served, chat_of("Bo", NEARLY_FULL)))
            admission = served.app[SHARED].admission
            await eventually(lambda: admission.waiting(("lmstudio", MODEL)), "the other has room")
            ended.set()
            assert text_of(chunks_of(await next_turn.rest())).strip() == LONG_ANSWER
        assert (await other)[0] == 200
        mine = [order for order in orders_of(studio) if "You help Ada." in str(order.body["messages"])]
        assert len(mine) == 1


async def test_a_tool_that_asks_the_same_model(tmp_path: Path) -> None:
    """An agent's tool may ask the model that the agent runs on, though there is room for one of them only."""
    url: list[Served] = []

    @own_tool
    async def ask_another(question: str) -> str:
        """Ask another agent."""
        status, answer = await ask_whole(url[0], chat_of("the writer", NEARLY_FULL))
        return f"{status}: {answer['choices'][0]['message']['content']}"

    def toolbox(target: Target) -> Sequence[ServerTool]:
        return [ask_another]

    def says(body: Body) -> Script | str:
        if "You help the writer." in str(body["messages"][0]):
            return "Ask the purser."
        answered = any(message["role"] == "tool" for message in body["messages"])
        return "It said so." if answered else Script(ToolCall("ask_another", {"question": "Who knows?"}))

    async with one_pool(tmp_path, says, toolbox=toolbox) as (served, studio):
        url.append(served)
        async with asyncio.timeout(30):
            status, answer = await ask_whole(served, chat_of("Ada", NEARLY_FULL - 4, model="writer"))
        assert status == 200
        assert answer["choices"][0]["message"]["content"] == "It said so."
        assert "200: Ask the purser." in str(studio.chats[-1].body["messages"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "exchanges",
    [pytest.param(NEARLY_FULL, id="as it is", marks=pytest.mark.long), pytest.param(TOO_MANY, id="compacted")],
)
async def test_clients_leave_at_any_moment(tmp_path: Path, exchanges: int) -> None:
    """Whatever a request was waiting for when its client left, nothing of the window stays held for it."""

    def says(body: Body) -> Script | str:
        return valid_plan(body) if is_prune_order(body) else LONG_ANSWER

    async with one_pool(tmp_path, says, tokens_per_second=1500, prefill_tokens_per_second=20_000) as (served, _):
        await ask_whole(served, chat_of("Eve", NEARLY_FULL))
        for moment in (0.0, 0.05, 0.1, 0.2, 0.3, 0.4):
            chats = [chat_of(f"{person} {moment}", exchanges) for person in ("Ada", "Bo")]
            asked = [asyncio.create_task(ask_whole(served, chat)) for chat in chats]
            await asyncio.sleep(moment)
            for task in asked:
                task.cancel()
            await asyncio.wait(asked)
        async with asyncio.timeout(60):
            status, answer = await ask_whole(served, chat_of("Ada", exchanges))
        assert status == 200
        assert answer["choices"][0]["message"]["content"].strip() == LONG_ANSWER
