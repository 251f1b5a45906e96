"""Answers that would run into the edge of the window: stopped before it, continued after a compaction, and limited."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, calls_of, chunks_of, finish_of, function_spec, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits, assert_paired
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import Served, text_of
from small_window import ANSWER, QUESTION, WINDOW, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import Reasoning, Script, SimulatedLMStudio, SimulatedTokenizer, Text, ToolCall

STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
TOKENIZER = SimulatedTokenizer()
NOUNS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain", "sun", "bell")
WHOLE_LOG = "".join(f"The {one} and the {two} saw the {three}.\n" for one, two, three in product(NOUNS, repeat=3))
"""A thousand different lines, each of ten tokens for any tokenizer, so that the guess while streaming is no guess."""
THOUGHTS = WHOLE_LOG[:6000]
NOTE = {"path": "log", "text": WHOLE_LOG[:1700].replace("\n", " ")}
WRITE = ToolCall("write_note", NOTE)
TOOLS = [function_spec("write_note", path={"type": "string"}, text={"type": "string"})]
FORMAT = {"type": "json_schema", "json_schema": {"name": "log", "schema": {"type": "object"}}}


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def tokens_of(text: str) -> int:
    """Return how many tokens the model needs for a text."""
    return len(TOKENIZER.split(text))


def writes_the_log(body: dict[str, Any]) -> str:
    """Write a log that no window here holds; go on with it where it was stopped."""
    last = content_of(body["messages"][-1])
    return WHOLE_LOG if last == QUESTION else rest_of(WHOLE_LOG, content_of(body["messages"][-2]))


def check_requests(studio: SimulatedLMStudio) -> None:
    """Check all requests: each fits, with no more room for its reply than the window has left."""
    for chat in studio.chats:
        assert_fits(chat)
        assert_paired(chat.body["messages"])


async def ask(served: Served, *, stream: bool, exchanges: int = 5, **fields: Any) -> dict[str, Any]:
    """Ask the raw model; return the answer's message with its finish_reason, streamed or not."""
    body = {"model": RAW_MODEL, "messages": history(exchanges), **fields}
    if stream:
        chunks = chunks_of(await stream_bytes(served, body))
        thoughts = "".join(chunk["choices"][0]["delta"].get("reasoning_content") or "" for chunk in chunks)
        calls = calls_of(chunks)
        return {"text": text_of(chunks), "thoughts": thoughts, "calls": calls, "finish": finish_of(chunks)}
    status, answer = await ask_whole(served, body)
    assert status == 200, answer
    [choice] = answer["choices"]
    message = choice["message"]
    calls = [{"id": call["id"], **call["function"]} for call in message.get("tool_calls", ())]
    return {
        "text": message["content"] or "",
        "thoughts": message.get("reasoning_content", ""),
        "calls": calls,
        "finish": choice["finish_reason"],
    }


@STREAMED
async def test_stopped_inside_reasoning(tmp_path: Path, *, stream: bool) -> None:
    """The model thinks on from the end of its thoughts, and its answer arrives; no thought is shown twice."""

    def thinks(body: dict[str, Any]) -> Script:
        is_first = content_of(body["messages"][-1]) == QUESTION
        return Script(Reasoning(THOUGHTS)) if is_first else Script(Reasoning("It is the ninth."), Text(ANSWER))

    async with small_window(tmp_path, thinks) as (served, studio):
        answer = await ask(served, stream=stream)
        assert (answer["text"], answer["finish"]) == (ANSWER, "stop")
        shown = answer["thoughts"].removesuffix("It is the ninth.").rstrip()
        assert shown != answer["thoughts"]
        assert THOUGHTS.startswith(shown)
        first, second = turns_of(studio)
        assert first.body["messages"][-1]["content"] == QUESTION
        assert shown[-100:] in content_of(second.body["messages"][-1])
        check_requests(studio)


@pytest.mark.parametrize(("stream", "words"), spread([True, False], ["", "I will write it down."]))
async def test_call_that_crosses_the_edge(tmp_path: Path, words: str, *, stream: bool) -> None:
    """Half a call is dropped and made anew after a compaction: the client has it once, whole, and the text once."""

    def writes(body: dict[str, Any]) -> Script:
        is_first = content_of(body["messages"][-1]) == QUESTION
        return Script(*([words] if words and is_first else []), WRITE)

    async with small_window(tmp_path, writes) as (served, studio):
        answer = await ask(served, stream=stream, tools=TOOLS)
        [call] = answer["calls"]
        assert call["name"] == "write_note"
        assert json.loads(call["arguments"]) == NOTE
        assert (answer["text"], answer["finish"]) == (words, "tool_calls")
        first, second = turns_of(studio)
        assert first.counted_tokens is not None
        assert first.counted_tokens + tokens_of(json.dumps(NOTE)) > 0.95 * WINDOW
        assert orders_of(studio)
        assert second.counted_tokens is not None
        assert second.counted_tokens < first.counted_tokens
        check_requests(studio)


@pytest.mark.parametrize(("stream", "words"), spread([True, False], ["", "I will write it down."]))
async def test_call_that_no_compaction_makes_room_for(tmp_path: Path, words: str, *, stream: bool) -> None:
    """Where nothing of the conversation can go, the very same prompt is not sent again: the answer ends."""
    endless = ToolCall("write_note", {"path": "log.md", "text": WHOLE_LOG})

    def writes(body: dict[str, Any]) -> Script:
        return Script(*([words] if words and len(body["messages"]) == 1 else []), endless)

    async with small_window(tmp_path, writes) as (served, studio):
        asked = [{"role": "user", "content": QUESTION}]
        answer = await ask(served, stream=stream, messages=asked, tools=TOOLS)
        assert (answer["text"], answer["calls"], answer["finish"]) == (words, [], "length")
        prompts = [chat.body["messages"] for chat in studio.chats]
        assert len(prompts) == (2 if words else 1)
        assert prompts[0] != prompts[-1] or not words


@STREAMED
async def test_answer_with_a_format_is_not_stopped(tmp_path: Path, *, stream: bool) -> None:
    """What has to be one JSON text is left to run to the limit: one request, and `length` where it is cut there."""
    async with small_window(tmp_path, lambda body: WHOLE_LOG) as (served, studio):
        answer = await ask(served, stream=stream, response_format=FORMAT)
        assert answer["finish"] == "length"
        assert WHOLE_LOG.startswith(answer["text"])
        [chat] = studio.chats
        assert chat.counted_tokens is not None
        assert chat.body["max_tokens"] == WINDOW - chat.counted_tokens
        assert tokens_of(answer["text"]) == chat.completion_tokens > 0.95 * chat.body["max_tokens"]


@pytest.mark.parametrize(("stream", "field"), spread([True, False], ["max_tokens", "max_completion_tokens"]))
async def test_the_limit_of_the_client_holds_over_all_requests(tmp_path: Path, field: str, *, stream: bool) -> None:
    """The requests of one answer share what the client allows for it."""
    asked = 700
    async with small_window(tmp_path, writes_the_log) as (served, studio):
        answer = await ask(served, stream=stream, **{field: asked})
        assert answer["finish"] == "length"
        assert WHOLE_LOG.startswith(answer["text"])
        assert 0.95 * asked < tokens_of(answer["text"]) <= asked
        first, second = turns_of(studio)
        assert first.body["max_tokens"] == WINDOW - (first.counted_tokens or 0) < asked
        assert second.completion_tokens == second.body["max_tokens"] < asked // 2
        check_requests(studio)


@pytest.mark.fault("endless generation", "streaming", "ends after the restarts of the settings")
@pytest.mark.parametrize(("stream", "most"), spread([True, False], [0, 1, 2]))
async def test_most_restarts(tmp_path: Path, most: int, *, stream: bool) -> None:
    """There are no more requests than that many and one; then the answer ends for its length, with all its text."""
    async with small_window(tmp_path, writes_the_log, compaction=f"max_restarts = {most}") as (served, studio):
        answer = await ask(served, stream=stream)
        assert answer["finish"] == "length"
        turns = turns_of(studio)
        assert len(turns) == most + 1
        assert WHOLE_LOG.startswith(answer["text"])
        *stopped, last = turns
        room_before_the_stops = sum(0.9 * WINDOW - (chat.counted_tokens or 0) for chat in stopped)
        assert tokens_of(answer["text"]) >= 0.95 * (room_before_the_stops + last.completion_tokens)
        assert last.completion_tokens == last.body["max_tokens"]
        assert all(chat.completion_tokens < chat.body["max_tokens"] for chat in stopped)
        check_requests(studio)


@STREAMED
async def test_answer_that_ends_after_a_stop(tmp_path: Path, *, stream: bool) -> None:
    """An answer that is longer than the room beside its prompt arrives whole, and ends as the model ended it."""
    log = "".join(WHOLE_LOG.splitlines(keepends=True)[:70])

    def writes(body: dict[str, Any]) -> str:
        is_first = content_of(body["messages"][-1]) == QUESTION
        return log if is_first else rest_of(log, content_of(body["messages"][-2]))

    async with small_window(tmp_path, writes) as (served, studio):
        answer = await ask(served, stream=stream)
        assert (answer["text"], answer["finish"]) == (log, "stop")
        assert len(turns_of(studio)) == 2
        check_requests(studio)


async def test_an_answer_that_came_whole_is_not_stopped(tmp_path: Path) -> None:
    """What has ended by itself is passed on as it is, however near to the edge it ends."""

    def says_it_at_once(body: dict[str, Any]) -> Script:
        return Script(Text(WHOLE_LOG[:1500], whole=True))

    async with small_window(tmp_path, says_it_at_once) as (served, studio):
        answer = await ask(served, stream=False, exchanges=2)
        assert answer["text"] in (WHOLE_LOG[:1500], WHOLE_LOG[: len(answer["text"])])
        check_requests(studio)


async def test_a_result_that_was_answered_by_the_user_still_fits(tmp_path: Path) -> None:
    """A huge result that no model has read goes in as beginning and end, also where the user has written since."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": WHOLE_LOG},
        {"role": "user", "content": QUESTION},
    ]
    async with small_window(tmp_path) as (served, studio):
        status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": messages})
        assert status == 200, answer
        [turn] = turns_of(studio)
        assert content_of(turn.body["messages"][-1]) == QUESTION
        assert "characters are left out here" in content_of(turn.body["messages"][-2])
        check_requests(studio)


async def test_a_limit_of_the_client_is_no_reason_to_go_on(tmp_path: Path) -> None:
    """An answer that ends at the client's max_tokens ends there, also in a window that is nearly full."""
    async with small_window(tmp_path, writes_the_log, compaction="auto = true\n") as (served, studio):
        answer = await ask(served, stream=True, exchanges=2, max_tokens=40)
        assert answer["finish"] == "length"
        assert len(turns_of(studio)) == 1


async def test_a_limit_that_is_no_number_is_refused(tmp_path: Path) -> None:
    """Nothing is guessed from it."""
    async with small_window(tmp_path) as (served, studio):
        for wrong in ("100", True, 1.5):
            status, answer = await ask_whole(served, {"model": RAW_MODEL, "messages": history(1), "max_tokens": wrong})
            assert status == 400
            assert answer["error"]["param"] == "max_tokens"
        assert not studio.chats
