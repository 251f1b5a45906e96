"""A database that fails in the midst of a turn: whatever the turn is doing, it is answered and nothing is lost."""

import asyncio
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from cancelling import ask, cancel, last_turn
from chatting import RAW_MODEL, chat_body, eventually
from flushes import FULL, is_flush, remembering, saves
from own_tools import own_tool
from patient_counting import wait_for_counts
from quick_models import take_models_for_quick
from read_conversations import conversations_of
from scripted_pruner import is_prune_order
from small_window import ANSWER, ask_whole, history

from elbowroom.demo import Script, ToolCall, WaitFor
from elbowroom.store.place import FILE_NAME

Body = dict[str, Any]
STATES = ("first", "streaming", "tool", "compaction", "flush")


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)
    take_models_for_quick(monkeypatch)
    monkeypatch.setattr("elbowroom.store.sql.dialect.sqlite.BUSY_MILLISECONDS", 50)


class Failing:
    """Breaks the database once, at the first moment of a state."""

    def __init__(self, path: Path, kind: str, stack: ExitStack) -> None:
        self.state = ""
        self.is_broken = False
        self._path, self._kind, self._stack = path, kind, stack

    def at(self, state: str) -> None:
        """Break it if this is the state and it is whole."""
        if state != self.state or self.is_broken:
            return
        self.is_broken = True
        if self._kind == "held":
            holder = self._stack.enter_context(closing(sqlite3.connect(self._path, isolation_level=None)))
            holder.execute("BEGIN IMMEDIATE")
        else:
            for end in ("", "-wal", "-shm"):
                self._path.with_name(f"{FILE_NAME}{end}").write_bytes(b"This is no database. " * 2000)


@pytest.mark.fault("database held", ("first", "streaming", "tool"), "answered; its words can be read")
@pytest.mark.fault("database held", ("compaction", "flush", "stop"), "answered; its words can be read")
@pytest.mark.fault("database damaged", ("first", "streaming", "tool"), "answered, and so is the next")
@pytest.mark.fault("database damaged", ("compaction", "flush", "stop"), "answered, and so is the next")
@pytest.mark.parametrize("kind", ["held", "damaged"])
@pytest.mark.parametrize("state", [*STATES, "stop"])
async def test_turn_goes_on(tmp_path: Path, kind: str, state: str) -> None:
    """It has its answer, and its last words can be read afterwards, but for what is in a file that is set aside."""
    with ExitStack() as stack:
        failing = Failing(tmp_path / FILE_NAME, kind, stack)
        moment = asyncio.Event()

        @own_tool
        async def look() -> str:
            """Look at the pier."""
            failing.at("tool")
            return "The pier is open."

        def says(body: Body) -> Script | str:
            failing.at("first")
            if failing.state == "tool" and body["messages"][-1]["role"] != "tool":
                return Script("I look.", ToolCall("look"))
            if failing.state in ("streaming", "stop"):
                return Script("word " * 5, WaitFor(moment), ANSWER)
            return ANSWER

        def flush(body: Body) -> Script:
            assert is_flush(body)
            failing.at("flush")
            return saves(body)

        tools = (lambda target: [look]) if state == "tool" else None
        async with remembering(tmp_path, flush, model=says, toolbox=tools) as (served, studio):
            await ask_whole(served, chat_body("Before.", model=RAW_MODEL))
            assert await conversations_of(served).settled()
            failing.state = state
            answer = studio.on_request

            def noticed(body: Body) -> Script | str | None:
                if is_prune_order(body):
                    failing.at("compaction")
                return answer(body) if answer else None

            studio.on_request = noticed
            messages = history(FULL if state in ("compaction", "flush") else 2)
            asking = asyncio.create_task(ask(served, {"model": "writer", "messages": messages, "stream": True}))
            if state in ("streaming", "stop"):
                await eventually(
                    lambda: len(studio.chats) > 1 and studio.chats[1].completion_tokens > 2, "nothing is said"
                )
                failing.at(state)
            if state == "stop":
                await cancel(served)
            moment.set()
            received = await asking
            assert failing.is_broken
            assert received.text.endswith("word " if state == "stop" else ANSWER)
            if kind == "damaged":  # the beginning of the conversation may be in the old file, and its end with it
                status, _ = await ask_whole(served, chat_body("After.", model=RAW_MODEL))
                assert status == 200
                return
            kept = await last_turn(served)
            assert kept[-1].message["content"].strip() == received.text.rpartition("\n")[2].strip()
