"""A flush that goes wrong, is left, or is not wanted: the answer comes all the same."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from agent_teams import notices_of
from chatting import MODEL, RAW_MODEL, chunks_of, eventually, stream_bytes
from flushes import (
    FACT,
    FULL,
    NEARLY_FULL,
    REMEMBERS,
    WORDS,
    asked,
    background_ended,
    begins_flush,
    flushes_of,
    is_flush,
    kinds_of,
    remembering,
    saved,
    saves,
    turn,
)
from own_tools import own_tool
from patient_counting import wait_for_counts
from quick_models import take_models_for_quick
from serving import text_of as said_in
from small_window import ANSWER, ask_whole, history
from spread_variants import spread
from task_prompts import title_body

from elbowroom.agents.turn.flush import MOST_CALLS, NOT_NOW, ORDER, SILENT
from elbowroom.demo import Cut, Error, Reasoning, Reply, Script, ToolCall, WaitFor

Body = dict[str, Any]
SOON = 10.0
"""Seconds. It takes a few milliseconds on a quiet machine; 100 ms are promised."""
SAVE = ToolCall("save_memory", {"text": FACT})
OVERFLOW = "The number of tokens to keep from the initial prompt is greater than the context length (4200 > 4096)."


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    take_models_for_quick(monkeypatch)


def results_of(body: Body) -> list[str]:
    """Return the results of calls behind the order of a flush."""
    return [message["content"] for message in body["messages"] if message["role"] == "tool"]


@pytest.mark.fault(
    ("cut stream", "error in the stream", "overflow refused", "empty answer", "bad arguments of a tool"),
    "flush",
    "tried no more; answer whole",
)
@pytest.mark.parametrize(
    ("replies", "calls", "memories"),
    [
        ([Script(SILENT)], 1, []),
        ([Script("I have thought about it, and would rather tell you of the sea. " * 20)], 1, []),
        ([Script(Reasoning("Should I?"), SAVE), Script("All is saved, dear user!")], 2, [FACT]),
        ([Script(SAVE)], MOST_CALLS, [FACT]),
        ([Script(ToolCall("save_memory", "{broken")), Script(SAVE), Script(SILENT)], 3, [FACT]),
        ([Script(ToolCall("save_memory", {"fact": 7})), Script(ToolCall("save_memory", {"text": "x" * 1001}))], 3, []),
        ([Script(Reply(500, {"error": {"message": "out of luck"}}))], 1, []),
        ([Script(SAVE), Script(Error(OVERFLOW))], 2, [FACT]),
        ([Script("I wi", Cut())], 1, []),
        ([Script("")], 1, []),
    ],
    ids=[
        "silent",
        "chats",
        "saves and chats",
        "saves for ever",
        "broken arguments",
        "wrong arguments",
        "error",
        "overflow",
        "cut",
        "empty",
    ],
)
async def test_whatever_the_model_does(tmp_path: Path, replies: list[Script], calls: int, memories: list[str]) -> None:
    """The answer is the answer, one flush of at most three calls was tried, and the next turn tries none."""
    number = -1

    def flush(body: Body) -> Script:
        nonlocal number
        number += 1
        return replies[min(number, len(replies) - 1)]

    async with remembering(tmp_path, flush) as (served, studio):
        messages = history(FULL)
        chunks = chunks_of(await stream_bytes(served, {"model": "writer", "messages": messages}))
        assert said_in(chunks) == ANSWER
        kinds = [kind for kind, _ in notices_of(chunks)]
        assert kinds[:3] == ["remembering", "remembered", "compacting"]
        assert kinds_of(studio).count("flush") == calls
        assert len(flushes_of(studio)) == 1
        assert await saved(served) == memories
        await turn(served, [*messages, {"role": "assistant", "content": ANSWER}, *asked([], "And now?")])
        assert len(flushes_of(studio)) == 1


async def test_other_tools_are_not_carried_out(tmp_path: Path) -> None:
    """Neither the server's nor the client's: the model is told so, and may save in its next call."""
    sent: list[str] = []

    @own_tool
    async def send_letter(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return "sent"

    @own_tool
    async def save_memory(text: str) -> str:
        """Remember one lasting fact."""
        return "not by the turn"

    replies = iter([Script(ToolCall("send_letter", {"to": "Ana"}), ToolCall("look", {"path": "a"})), Script(SAVE)])
    async with remembering(
        tmp_path, lambda body: next(replies, Script(SILENT)), toolbox=lambda target: [send_letter, save_memory]
    ) as (served, studio):
        look = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}
        body = {"model": "writer", "messages": history(FULL), "tools": [{"type": "function", "function": look}]}
        status, answer = await ask_whole(served, body)
        assert status == 200, answer
        choice = answer["choices"][0]
        assert (choice["message"]["content"], choice["finish_reason"]) == (ANSWER, "stop")
        assert not choice["message"].get("tool_calls")
        assert sent == []
        second, third = [chat.body for chat in studio.chats if is_flush(chat.body)][1:]
        assert results_of(second) == [NOT_NOW, NOT_NOW]
        assert results_of(third) == [NOT_NOW, NOT_NOW, "Remembered."]
        assert await saved(served) == [FACT]


@pytest.mark.slow
@pytest.mark.fault(
    ("silence before the headers", "silence in mid-stream"), "flush", "cut off after `flush_seconds`; answer whole"
)
async def test_a_model_that_hangs_is_cut_off(tmp_path: Path) -> None:
    """After `flush_seconds` its connection is closed, and the conversation is compacted and answered without it."""
    hanging = asyncio.Event()
    async with remembering(tmp_path, lambda body: Script(WORDS, WaitFor(hanging)), memory="flush_seconds = 0.3") as (
        served,
        studio,
    ):
        began = time.monotonic()
        assert await turn(served, history(FULL)) == ANSWER
        assert kinds_of(studio) == ["flush", "prune", "turn"]
        [left] = studio.disconnects
        assert begins_flush(left.request.body)
        assert left.at - began >= 0.3
        assert left.at < studio.chats[1].received_at + SOON


@pytest.mark.fault("client leaves", "flush", "ended, done with the next turn")
async def test_a_client_that_leaves_ends_it(tmp_path: Path) -> None:
    """The engine is left at once; nothing counts as done, so the next request flushes, and is answered."""
    hanging = asyncio.Event()
    async with remembering(
        tmp_path, lambda body: Script(WORDS, WaitFor(hanging)) if not hanging.is_set() else saves(body)
    ) as (served, studio):
        body = {"model": "writer", "messages": history(FULL), "stream": True}
        client = asyncio.create_task(stream_bytes(served, body))
        await eventually(lambda: studio.chats and studio.chats[0].phase == "streaming", "there is no flush", seconds=30)
        client.cancel()
        await asyncio.wait([client])
        left = time.monotonic()
        await eventually(lambda: studio.disconnects, "the engine is not left", seconds=30)
        assert studio.disconnects[0].at - left < SOON
        hanging.set()
        assert await turn(served, history(FULL)) == ANSWER
        assert kinds_of(studio) == ["flush", "flush", "flush", "prune", "turn"]
        assert await saved(served) == [FACT]


async def test_a_person_who_stops_the_answer_ends_it(tmp_path: Path) -> None:
    """Stopping it in the flush closes the upstream; the client gets a normal end, and the next request works."""
    hanging = asyncio.Event()
    async with remembering(
        tmp_path, lambda body: Script(WORDS, WaitFor(hanging)) if not hanging.is_set() else saves(body)
    ) as (served, studio):
        asking = asyncio.create_task(turn(served, history(FULL), conversation="ferry"))
        await eventually(lambda: studio.chats and studio.chats[0].phase == "streaming", "there is no flush", seconds=30)
        async with served.http.post(f"{served.url}/v1/conversations/ferry/cancel", json={}) as response:
            answer = await response.json()
        assert (answer["cancelled"], answer["status"]) == (1, "idle")
        assert await asking == ""
        [left] = studio.disconnects
        assert begins_flush(left.request.body)
        hanging.set()
        assert await turn(served, history(FULL), conversation="ferry") == ANSWER
        assert kinds_of(studio) == ["flush", "flush", "flush", "prune", "turn"]


@pytest.mark.slow
@pytest.mark.fault("two clients at once", "flush", "who asks goes first")
async def test_who_asks_on_goes_first(tmp_path: Path) -> None:
    """A flush behind an answer is ended by the next request, which it does not hold up, and is done behind that one."""
    hanging = asyncio.Event()
    async with remembering(
        tmp_path, lambda body: saves(body) if hanging.is_set() else Script(WaitFor(hanging)), compaction=""
    ) as (served, studio):
        messages = history(NEARLY_FULL)
        await turn(served, messages)
        await eventually(lambda: kinds_of(studio) == ["turn", "flush"], "there is no flush", seconds=30)
        messages = asked(messages, "And now?")
        await turn(served, messages)
        assert studio.chats[1].phase != "done"
        hanging.set()
        await background_ended(served)
        assert kinds_of(studio) == ["turn", "flush", "turn", "flush", "flush"]
        assert await saved(served) == [FACT]


@pytest.mark.slow
async def test_nobody_waits_for_a_flush_behind_an_answer(tmp_path: Path) -> None:
    """Not even who needs the compaction that was to follow it: the flush begins anew before that one's own."""
    hanging = asyncio.Event()
    long = " ".join(f"Boat {number} came back with {number * 31} passengers." for number in range(50))

    flushes = iter([Script(WaitFor(hanging)), saves({"messages": [ORDER]})])
    async with remembering(
        tmp_path, lambda body: next(flushes, Script(SILENT)), model=lambda body: long, compaction=""
    ) as (served, studio):
        messages = history(FULL - 5)
        await turn(served, messages)
        await eventually(lambda: kinds_of(studio) == ["turn", "flush"], "there is no flush", seconds=30)
        await turn(served, asked(messages, "And now? Tell me all of it."))
        assert kinds_of(studio)[:5] == ["turn", "flush", "flush", "flush", "prune"]
        assert studio.chats[1].phase != "done"
        hanging.set()
        await background_ended(served)


async def test_a_failure_behind_an_answer_is_for_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is not tried again in the same cycle."""
    async with remembering(
        tmp_path, lambda body: Script(Reply(500, {"error": {"message": "out of luck"}})), compaction=""
    ) as (served, studio):
        messages = history(NEARLY_FULL)
        for question in ("And now?", "And then?"):
            await turn(served, messages)
            await background_ended(served)
            messages = asked(messages, question)
        assert kinds_of(studio) == ["turn", "flush", "turn"]
        assert "the memory flush failed" in caplog.text


UNFLUSHED = {
    "raw model": (REMEMBERS, "", RAW_MODEL),
    "switched off": (REMEMBERS, "flush = false", "writer"),
    "only searches": (REMEMBERS.replace("save_memory", "search_memory"), "", "writer"),
    "no memory tool": (REMEMBERS.replace('"save_memory"', '"tool_output_cache"'), "", "writer"),
}
BEFORE_THE_ANSWER, BEHIND_IT = FULL + 8, NEARLY_FULL


@pytest.mark.parametrize(("exchanges", "why"), spread([BEFORE_THE_ANSWER, BEHIND_IT], UNFLUSHED))
async def test_it_is_skipped(tmp_path: Path, exchanges: int, why: str) -> None:
    """Where nothing could be saved, or nobody wants it to be, nothing is asked."""
    agents, memory, model = UNFLUSHED[why]
    async with remembering(tmp_path, agents=agents, memory=memory, compaction="") as (served, studio):
        await turn(served, history(exchanges), model=model)
        await background_ended(served)
        assert "flush" not in kinds_of(studio)
        assert ("prune" in kinds_of(studio)) is (exchanges > FULL)


@pytest.mark.parametrize("switch", ["enabled = false", "auto = false"])
async def test_without_compactions_there_are_no_flushes(tmp_path: Path, switch: str) -> None:
    """Where nothing is ever taken away by itself, nothing has to be saved before that."""
    async with remembering(tmp_path, compaction=switch) as (served, studio):
        await turn(served, history(FULL))
        await background_ended(served)
        assert kinds_of(studio) == ["turn"]


async def test_tasks_are_no_conversations(tmp_path: Path) -> None:
    """A title is asked for with most of the window full, and nothing else is."""
    async with remembering(tmp_path, compaction="") as (served, studio):
        status, answer = await ask_whole(served, title_body(60))
        assert status == 200, answer
        await background_ended(served)
        assert kinds_of(studio) == ["turn"]


@pytest.mark.slow
async def test_agents_that_others_ask_are_not_flushed(tmp_path: Path) -> None:
    """The talk of one agent with another ends with the answer, and its compaction asks for no memories."""
    note = "The ferry left the ninth pier at noon, and the sea was calm until it came back in the evening. " * 100
    asker = f'[[agents]]\nid = "asker"\ninstructions = "You ask."\nmodel = "{MODEL}"\nagent_tools = ["writer"]\n'

    def model(body: Body) -> Script | str:
        is_asker = "You ask." in str(body["messages"][0])
        if is_asker and body["messages"][-1]["role"] == "user":
            return Script(ToolCall("ask_writer", {"request": "Read the notes."}))
        read = sum(message["role"] == "tool" for message in body["messages"])
        return ANSWER if is_asker or read >= 6 else Script(ToolCall("read_note", {"number": read}))

    @own_tool
    async def read_note(number: int) -> str:
        """Read a note."""
        return f"Note {number}. {note[: 90 * 20]}"

    @own_tool
    async def save_memory(text: str) -> str:
        """Remember one lasting fact."""
        return "saved"

    agents = f"{REMEMBERS}tool_output = {{ enabled = false }}\n{asker}"
    async with remembering(
        tmp_path,
        model=model,
        agents=agents,
        toolbox=lambda target: [read_note, save_memory] if target.name == "writer" else [],
    ) as (served, studio):
        assert await turn(served, history(1), model="asker") == ANSWER
        assert "prune" in kinds_of(studio)
        assert "flush" not in kinds_of(studio)
