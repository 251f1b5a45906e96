"""The `openai` Python client while conversations are compacted: in the middle of an answer, and of a loop of tools."""

from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, function_spec
from long_answer import FIRST, LOG, writes_the_log
from openai_client import client_of
from patient_counting import wait_for_counts
from request_checks import assert_fits
from small_window import orders_of, small_window, turns_of

from elbowroom.demo import Script, ToolCall


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


@pytest.mark.slow
async def test_compaction_in_the_middle(tmp_path: Path) -> None:
    """An answer that is compacted while it is written parses chunk by chunk, reads as one, and has its usage once."""
    messages: Any = FIRST
    async with small_window(tmp_path, writes_the_log) as (served, studio), client_of(served) as client:
        stream = await client.chat.completions.create(
            model=RAW_MODEL, messages=messages, stream=True, stream_options={"include_usage": True}
        )
        *chunks, last = [chunk async for chunk in stream]
        assert len(turns_of(studio)) > 1, "the answer was written in one go"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == LOG
    assert len({chunk.id for chunk in chunks}) == 1
    assert [chunk.choices[0].finish_reason for chunk in chunks[-2:]] == [None, "stop"]
    told = [chunk.event["data"]["done"] for chunk in chunks if hasattr(chunk, "event")]
    assert told[0] is False
    assert told[-1] is True
    assert all(chunk.usage is None for chunk in chunks)
    assert last.usage is not None


@pytest.mark.slow
async def test_compaction_in_a_loop_of_tools(tmp_path: Path) -> None:
    """The client's own accumulation gives whole calls and the answer, while the history behind them is compacted."""
    tools: Any = [function_spec("read_note")]

    def reads_six_notes(body: Any) -> Script | str:
        is_last = "note 5" in str(body["messages"][-1])
        return "All six." if is_last else Script(ToolCall("read_note", {"path": "next.md"}))

    messages: list[Any] = [{"role": "user", "content": "Read all notes."}]
    async with small_window(tmp_path, reads_six_notes) as (served, studio), client_of(served) as client:
        for number in range(7):
            async with client.chat.completions.stream(model="writer", messages=messages, tools=tools) as stream:
                said = (await stream.get_final_completion()).choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            for call in said.tool_calls or ():
                told = f"This is note {number}. " + f"On crossing {number} the sea was calm. " * 20
                messages.append({"role": "tool", "tool_call_id": call.id, "content": told})
        assert messages[-1]["content"] == "All six."
        assert len({message["tool_call_id"] for message in messages if message["role"] == "tool"}) == 6
        assert orders_of(studio)
        for chat in studio.chats:
            assert_fits(chat)
