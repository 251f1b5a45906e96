"""`GET /api/live`: how full the windows of running turns are, as of the moment somebody asks."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from cancelling import PATIENCE, ask
from chatting import MODEL, RAW_MODEL, chat_body, elbowroom_with_studio, eventually
from own_tools import own_tool
from raw_http import ask as ask_raw
from scripted_pruner import valid_plan
from serving import Served
from small_window import history, small_window
from spread_variants import spread

from elbowroom.demo import Reasoning, Script, ToolCall, WaitFor
from elbowroom.demo.script import Step

Turn = dict[str, Any]
GRAMMAR = {"type": "json_schema", "json_schema": {"name": "any", "schema": {"type": "string"}}}


async def live(served: Served, owner: str = "", status: int = 200) -> list[Turn]:
    """Return the running turns of an owner."""
    headers = {"X-Elbowroom-User": owner} if owner else {}
    async with served.http.get(f"{served.url}/api/live", headers=headers) as response:
        assert response.status == status
        turns: list[Turn] = (await response.json()).get("data", [])
        return turns


async def shown(served: Served, conversation: str) -> dict[str, Any]:
    """Return the conversation as it is shown now."""
    async with served.http.get(f"{served.url}/v1/conversations/{conversation}") as response:
        assert response.status == 200
        found: dict[str, Any] = await response.json()
        return found


async def live_once(served: Served, phase: str, least: int = 0) -> Turn:
    """Return the one running turn as soon as it is in this phase and fills so much."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for turn in await live(served):
                if turn["phase"] == phase and turn["fill"] and turn["fill"]["tokens"] >= least:
                    return turn
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(("kind", "model"), spread(["text", "thoughts", "constrained"], ["writer", RAW_MODEL]))
async def test_fill_grows_while_an_answer_streams(tmp_path: Path, model: str, kind: str) -> None:
    """Between two looks it grows by what was said, thought, or said by a grammar, which nobody may stop."""
    words, middle, end = "word " * 300, asyncio.Event(), asyncio.Event()
    parts: list[Step | str] = (
        [Reasoning(words), WaitFor(middle), Reasoning(words)] if kind == "thoughts" else [words, WaitFor(middle), words]
    )
    fields: dict[str, Any] = {"response_format": GRAMMAR} if kind == "constrained" else {}
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script(*parts, WaitFor(end), "The end."))
        asking = asyncio.create_task(ask(served, chat_body("A question", model=model, stream=True, **fields)))
        await eventually(
            lambda: studio.chats and studio.chats[0].completion_tokens >= 300, "the first half never came", PATIENCE
        )
        first = await live_once(served, "streaming", 300)
        assert 300 <= first["fill"]["tokens"] < 600
        context = (await shown(served, first["conversation"]))["context"]
        assert first["fill"]["tokens"] <= context["tokens"] < 600
        middle.set()
        second = await live_once(served, "streaming", 600)
        conversation = await shown(served, first["conversation"])
        assert conversation["status"] == "running"
        assert 600 <= second["fill"]["tokens"] <= conversation["context"]["tokens"] < 900
        end.set()
        received = await asking
        assert await live(served) == []
        assert received.conversation == first["conversation"]
        after = await shown(served, received.conversation)
        assert (after["status"], after["context"]["window"]) == ("idle", 32_768)
        if kind == "thoughts":  # which are in no later prompt
            assert after["context"]["tokens"] < 300
        else:
            assert after["context"]["tokens"] >= second["fill"]["tokens"]


async def test_what_a_turn_shows(tmp_path: Path) -> None:
    """Conversation, title, agent, model, phase, beginning, and the marks: 80 % with room for a reply, and 90 %."""
    end = asyncio.Event()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(Script("Yes", WaitFor(end)))
        asking = asyncio.create_task(ask(served, chat_body("Does the ferry run today?", stream=True)))
        turn = await live_once(served, "streaming")
        assert set(turn) == {"conversation", "title", "agent", "model", "phase", "doing", "fill", "began"}
        assert turn["title"] == "Does the ferry run today?"
        assert (turn["agent"], turn["model"]) == ("writer", "qwen2.5-7b-instruct")
        assert (turn["fill"]["window"], turn["fill"]["trigger"], turn["fill"]["stop_at"]) == (32_768, 24_576, 29_491)
        assert turn["began"] > 1_500_000_000
        end.set()
        assert (await asking).conversation == turn["conversation"]


async def test_only_the_owner_sees_it(tmp_path: Path) -> None:
    """Nobody sees another one's turns; where several people ask, one who gives no name sees none."""
    end = asyncio.Event()
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        for _ in range(2):
            studio.enqueue(Script("Yes", WaitFor(end)))
        body = chat_body(stream=True)
        asking = [
            asyncio.create_task(ask(served, body, name=f"of {owner}", **{"X-Elbowroom-User": owner}))
            for owner in ("anna", "otto")
        ]
        await eventually(lambda: len(studio.chats) == 2, "not both were asked")
        [anna], [otto] = await live(served, "anna"), await live(served, "otto")
        assert anna["conversation"] != otto["conversation"]
        assert await live(served, "eve") == []
        await live(served, status=403)
        end.set()
        await asyncio.gather(*asking)


async def test_fill_through_a_tool(tmp_path: Path) -> None:
    """While a tool runs the window holds what the step before has left; its result comes on top."""
    began, go_on, end = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @own_tool
    async def read_log() -> str:
        """Read the log."""
        began.set()
        await go_on.wait()
        return "The sea was calm. " * 40

    async with elbowroom_with_studio(tmp_path, toolbox=lambda target: [read_log]) as (served, studio):
        studio.enqueue(Script(ToolCall("read_log", "{}")))
        studio.enqueue(Script("Calm.", WaitFor(end)))
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await began.wait()
        before = (await live_once(served, "tool"))["fill"]["tokens"]
        assert before > 0
        go_on.set()
        assert (await live_once(served, "streaming"))["fill"]["tokens"] > before + 150
        end.set()
        await asking


async def test_fill_through_a_compaction(tmp_path: Path) -> None:
    """While it is compacted the window shows what it was to hold, behind it what is left."""
    release, end = asyncio.Event(), asyncio.Event()

    def prune(body: dict[str, Any]) -> Script | str:
        return Script(WaitFor(release), str(valid_plan(body)))

    async with small_window(tmp_path, lambda body: Script("Yes.", WaitFor(end)), prune=prune) as (served, _):
        body = {"model": "writer", "messages": history(8), "stream": True}
        asking = asyncio.create_task(ask(served, body))
        before = await live_once(served, "compacting")
        assert before["fill"]["tokens"] > 600
        release.set()
        after = await live_once(served, "streaming")
        assert after["fill"]["tokens"] < 500
        end.set()
        await asking


async def test_without_a_kept_conversation(tmp_path: Path) -> None:
    """Where nothing is kept there is no title, and all else is as ever."""
    end = asyncio.Event()
    settings = "[store]\nconversations = false\n"
    agent = '[[agents]]\nid = "writer"\nmodel = "qwen2.5-7b-instruct"\n'
    async with elbowroom_with_studio(tmp_path, agents=settings + agent) as (served, studio):
        studio.enqueue(Script("word " * 100, WaitFor(end)))
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        turn = await live_once(served, "streaming", 100)
        assert turn["title"] == ""
        end.set()
        await asking


async def test_a_window_that_is_not_looked_after(tmp_path: Path) -> None:
    """An agent of a provider that manages its context itself: the turn is listed, and nobody makes up a fill."""
    end = asyncio.Event()
    agent = f'[[agents]]\nid = "writer"\nmodel = "{MODEL}"\nprovider = "openai"\n'
    async with elbowroom_with_studio(tmp_path, kind="openai", agents=agent) as (served, studio):
        studio.enqueue(Script("Yes", WaitFor(end)))
        asking = asyncio.create_task(ask(served, chat_body(stream=True)))
        await eventually(lambda: studio.chats, "nobody was asked")
        [turn] = await live(served)
        assert (turn["agent"], turn["fill"]) == ("writer", None)
        end.set()
        await asking


async def test_gates(tmp_path: Path) -> None:
    """The route has the gates of all others."""
    async with elbowroom_with_studio(tmp_path) as (served, _):
        reply = await ask_raw(served.port, b"GET /api/live HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert reply.status == 403
