"""Calls that a model writes into its text, from the upstream to the client."""

from pathlib import Path
from typing import Any

import pytest
from chatting import MODEL, RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, stream_bytes
from serving import serve, settings_for, text_of
from small_window import small_window

from elbowroom.demo import Script, SimulatedLMStudio, SimulatedModel

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "note", "parameters": {"type": "object", "properties": {"text": {"type": "string"}}}},
}
WRITTEN = 'I note it.\n<tool_call>\n{"name": "note", "arguments": {"text": "calm sea"}}\n</tool_call>'


@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_the_client_gets_a_call(tmp_path: Path, model: str) -> None:
    """A call in the text reaches the client as a call, streamed and whole, and the text without it."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        studio.enqueue(WRITTEN, WRITTEN, WRITTEN)
        chunks = chunks_of(await stream_bytes(served, chat_body("Go", model=model, tools=[TOOL])))
        calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
        assert "".join(call["function"]["arguments"] for call in calls) == '{"text": "calm sea"}'
        assert calls[0]["function"]["name"] == "note"
        assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
        assert text_of(chunks).strip() == "I note it."
        whole = await served.chat(model, "Go", tools=[TOOL])
        message = whole["choices"][0]["message"]
        assert [call["function"]["name"] for call in message["tool_calls"]] == ["note"]
        plain = await served.chat(model, "Go")
        assert plain["choices"][0]["message"]["content"] == WRITTEN


async def test_it_can_be_turned_off(tmp_path: Path) -> None:
    """With `calls_in_text = false` text stays text."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=32_768)]) as studio:
        studio.enqueue(WRITTEN)
        settings = settings_for(studio.base_url, server="calls_in_text = false")
        async with serve(tmp_path, settings) as served:
            answer = await served.chat(RAW_MODEL, "Go", tools=[TOOL])
    assert answer["choices"][0]["message"]["content"] == WRITTEN
    assert "tool_calls" not in answer["choices"][0]["message"]


async def test_a_long_call_does_not_pass_the_window(tmp_path: Path) -> None:
    """What is held back of a call counts as it comes: the answer stops before the window is full."""
    endless = f'<tool_call>{{"name": "note", "arguments": {{"text": "{"calm sea and a light wind " * 500}'
    async with small_window(tmp_path, lambda body: Script(endless), window=1024, compaction="max_restarts = 1") as (
        served,
        studio,
    ):
        await stream_bytes(served, chat_body("Go", tools=[TOOL]))
        assert len(studio.chats) == 1  # nothing of its prompt can go, so that it is not sent again
        for chat in studio.chats:
            assert chat.prompt_tokens is not None
            assert chat.completion_tokens is not None
            assert chat.prompt_tokens + chat.completion_tokens <= 1024
