"""Compaction because a person asks for it, and what happens where nothing is compacted by itself."""

from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL
from patient_counting import wait_for_counts
from request_checks import is_shortened
from scripted_pruner import text_of
from serving import Served
from small_window import ANSWER, QUESTION, SYSTEM, WINDOW, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import spread

MODELS = ["writer", RAW_MODEL]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


async def compact(served: Served, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Ask for a compaction; return status and parsed body."""
    async with served.http.post(f"{served.url}/v1/conversations/notes-7/compact", json=body) as response:
        return response.status, await response.json()


@pytest.mark.parametrize(("model", "auto", "exchanges"), spread(MODELS, ["true", "false"], [7, 12]))
async def test_by_hand(tmp_path: Path, model: str, auto: str, exchanges: int) -> None:
    """The messages that come back are smaller, with system and last user message word for word, and are a chat.

    So it is below the trigger and over the window.
    """
    async with small_window(tmp_path, compaction=f"auto = {auto}") as (served, studio):
        sent = history(exchanges)
        status, answer = await compact(served, {"model": model, "messages": sent})
        assert status == 200, answer
        assert (answer["id"], answer["object"]) == ("notes-7", "conversation.compaction")
        assert (answer["compacted"], answer["method"]) == (True, "plan")
        assert answer["after"] < answer["before"]
        assert answer["after"] <= 0.8 * WINDOW
        messages = answer["messages"]
        assert messages[0] == {"role": "system", "content": SYSTEM}
        assert messages[-1] == {"role": "user", "content": QUESTION}
        assert is_shortened(messages, sent)
        assert len(orders_of(studio)) == len(studio.chats) > 0
        status, reply = await ask_whole(served, {"model": model, "messages": messages})
        assert status == 200, reply
        assert reply["choices"][0]["message"]["content"] == ANSWER
        last = studio.chats[-1]
        assert last.counted_tokens == answer["after"]
        assert [text_of(message) for message in last.body["messages"]][-1] == QUESTION


async def test_nothing_to_compact(tmp_path: Path) -> None:
    """A single question comes back as it was, and no model is asked."""
    async with small_window(tmp_path) as (served, studio):
        status, answer = await compact(served, {"model": RAW_MODEL, "messages": history(0)})
        assert status == 200, answer
        assert answer["compacted"] is False
        assert answer["before"] == answer["after"]
        assert answer["messages"] == history(0)
        assert studio.chats == []


async def test_nothing_goes_untold(tmp_path: Path) -> None:
    """What a summary would only make longer stays: no message goes in silence, in this chat or in another like it."""
    opening = {"role": "user", "content": "Hello there, how are you today?"}
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    said = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "Dry."},
    ]
    async with small_window(tmp_path, window=8192) as (served, studio):
        asked = {"model": RAW_MODEL, "messages": [opening, *said, *history(0)[1:]]}
        status, answer = await compact(served, asked)
        assert status == 200, answer
        assert opening in answer["messages"]
        for later in ([opening], [opening, {"role": "assistant", "content": "Well."}, *history(0)[1:]]):
            await ask_whole(served, {"model": RAW_MODEL, "messages": later})
            assert turns_of(studio)[-1].body["messages"] == later


@pytest.mark.parametrize(("model", "switch"), spread(MODELS, ["auto = false", "enabled = false"]))
async def test_over_the_window_nothing_is_sent(tmp_path: Path, model: str, switch: str) -> None:
    """Where nothing is compacted by itself, what does not fit is a 400 with the numbers and what to do."""
    async with small_window(tmp_path, compaction=switch) as (served, studio):
        status, answer = await ask_whole(served, {"model": model, "messages": history(12)})
        assert status == 400
        assert answer["error"]["code"] == "context_length_exceeded"
        message = answer["error"]["message"]
        assert message.startswith("Load the model with a larger context length, let the history be compacted")
        assert f"This model's maximum context length is {WINDOW} tokens, and the request needs " in message
        assert f"(compaction.{switch.partition(' ')[0]})" in message
        assert studio.chats == []


async def test_below_the_window_it_is_sent_as_it_is(tmp_path: Path) -> None:
    """With `auto = false` even a history past the trigger is sent untouched, with what is left for the answer."""
    async with small_window(tmp_path, compaction="auto = false") as (served, studio):
        sent = history(10)
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": sent})
        assert status == 200, answer
        [chat] = studio.chats
        assert chat.body["messages"] == sent
        assert chat.counted_tokens is not None
        assert 0.8 * WINDOW <= chat.counted_tokens < WINDOW
        assert chat.body["max_tokens"] == WINDOW - chat.counted_tokens


async def test_a_result_below_the_window_is_sent_whole(tmp_path: Path) -> None:
    """With `auto = false` a tool's result past the trigger is not shortened either, as long as it fits."""
    call = {"id": "abcdefghi", "type": "function", "function": {"name": "read_log", "arguments": "{}"}}
    log = " ".join(["The ferry left at noon and came back in the evening."] * 68)
    sent = [
        *history(0),
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "abcdefghi", "content": log},
    ]
    async with small_window(tmp_path, compaction="auto = false") as (served, studio):
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": sent})
        assert status == 200, answer
        [chat] = studio.chats
        assert chat.counted_tokens is not None
        assert 0.8 * WINDOW <= chat.counted_tokens < WINDOW
        assert chat.body["messages"][-1]["content"] == log


async def test_switched_off(tmp_path: Path) -> None:
    """With `enabled = false` the route says how to switch it on, and asks no model."""
    async with small_window(tmp_path, compaction="enabled = false") as (served, studio):
        status, answer = await compact(served, {"model": RAW_MODEL, "messages": history(12)})
        assert status == 400
        assert "compaction.enabled = true" in answer["error"]["message"]
        assert studio.chats == []


async def test_provider_without_context_management(tmp_path: Path) -> None:
    """A provider that is passed through is refused with the setting that changes it."""
    async with small_window(tmp_path, provider="manage_context = false") as (served, studio):
        status, answer = await compact(served, {"model": RAW_MODEL, "messages": history(12)})
        assert status == 400
        assert answer["error"]["param"] == "model"
        assert "manage_context = true" in answer["error"]["message"]
        assert studio.chats == []


async def test_a_second_time(tmp_path: Path) -> None:
    """Where nothing more can be freed, the messages that come back are those that the sizes speak of."""
    async with small_window(tmp_path) as (served, studio):
        sent: dict[str, Any] = {"model": RAW_MODEL, "messages": history(12)}
        _, first = await compact(served, sent)
        again = [await compact(served, sent) for _ in range(4)]
        _, last = again[-1]
        assert last["compacted"] is False
        assert last["before"] == last["after"] <= first["after"]
        assert is_shortened(last["messages"], sent["messages"])
        _, reply = await ask_whole(served, {"model": RAW_MODEL, "messages": last["messages"]})
        assert turns_of(studio)[-1].counted_tokens == last["after"], reply
