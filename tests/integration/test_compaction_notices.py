"""What a person reads of a compaction, of a model that is being loaded, and of a window that is nearly taken."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, MODEL, RAW_MODEL, chunks_of, finish_of, function_spec, stream_bytes
from patient_counting import wait_for_counts
from request_checks import assert_fits
from scripted_pruner import rest_of
from scripted_pruner import text_of as content_of
from serving import serve, settings_for, text_of
from small_window import ANSWER, QUESTION, ask_whole, history, orders_of, small_window, turns_of
from spread_variants import spread

from elbowroom.demo import SimulatedLMStudio, SimulatedModel
from elbowroom.server.state import SHARED

COMPACTING = "Compacting conversation history..."
COMPACTED = "Context compacted, continuing..."
WORDS = ("boat", "sea", "man", "rope", "lamp", "dog", "wind", "rain")
LONG = {"model": RAW_MODEL, "messages": history(12)}
LARGE_TOOLS = [
    function_spec(f"tool_{number}", path={"type": "string", "description": "way " * 20}) for number in range(6)
]


@pytest.fixture(autouse=True)
def _exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_counts(monkeypatch)


def statuses(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the chunks that carry a status."""
    return [chunk for chunk in chunks if "event" in chunk]


@pytest.mark.parametrize(("notices", "model"), spread(["auto", "event"], ["writer", RAW_MODEL]))
async def test_status_chunks(tmp_path: Path, notices: str, model: str) -> None:
    """One chunk opens the status and one closes it with the sizes; any client reads both as empty text."""
    async with small_window(tmp_path, compaction=f'notices = "{notices}"') as (served, studio):
        chunks = chunks_of(await stream_bytes(served, {**LONG, "model": model}))
        opening, closing = statuses(chunks)
        assert opening["event"] == {"type": "status", "data": {"description": COMPACTING, "done": False}}
        assert closing["event"]["data"]["description"].startswith(COMPACTED)
        assert closing["event"]["data"]["done"] is True
        assert opening["elbowroom"]["kind"] == "compacting"
        told = closing["elbowroom"]
        assert told["kind"] == "compacted"
        assert 0 < told["after"] < 800 <= told["before"]
        assert told["before"] == opening["elbowroom"]["before"]
        assert told["seconds"] >= 0
        for chunk in (opening, closing):
            assert chunk["choices"] == [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]
            assert chunk["id"] == chunks[0]["id"]
        assert chunks.index(closing) < next(n for n, one in enumerate(chunks) if text_of([one]))
        assert text_of(chunks) == ANSWER
        assert finish_of(chunks) == "stop"
        [turn] = turns_of(studio)
        assert_fits(turn)
        assert turn.counted_tokens == told["after"]


@pytest.mark.parametrize("host", ["127.0.0.1", "host.docker.internal"])
async def test_open_webui_is_led_to_the_compaction(tmp_path: Path, host: str) -> None:
    """The last chunk before the end names the conversation and its compaction, where the person's browser finds it."""
    async with small_window(tmp_path) as (served, _):
        headers = {"X-Elbowroom-Message-Id": "m", "Host": f"{host}:{served.port}"}
        async with served.http.post(served.chat_url, json={**LONG, "stream": True}, headers=headers) as response:
            conversation = response.headers["X-Conversation-Id"]
            *_, told, finish = chunks_of(await response.read())
        assert finish["choices"][0]["finish_reason"] == "stop"
        await served.app[SHARED].store.conversations.settled()
        async with served.http.get(f"{served.url}/v1/conversations/{conversation}") as response:
            [made] = (await response.json())["compactions"]
        address = (
            f"http://127.0.0.1:{served.port}/#/conversations/{conversation}?freed={made['before'] - made['after']}"
        )
        assert told["event"]["type"] == "source"
        assert told["event"]["data"]["document"] == [address]
        assert told["choices"] == [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]
        chunks = chunks_of(await stream_bytes(served, {**LONG, "messages": LONG["messages"]}))
        assert not [one for one in chunks if one.get("event", {}).get("type") == "source"]


async def test_no_notice_below_the_trigger(tmp_path: Path) -> None:
    """A history that fits goes as it is, in silence."""
    async with small_window(tmp_path) as (served, studio):
        body = {"model": RAW_MODEL, "messages": history(3)}
        assert statuses(chunks_of(await stream_bytes(served, body))) == []
        [turn] = studio.chats
        assert turn.body["messages"] == history(3)


async def test_lines_of_text(tmp_path: Path) -> None:
    """With `content` the notices stand in the text, and what the client sends back of them no model reads."""
    async with small_window(tmp_path, compaction='notices = "content"') as (served, studio):
        chunks = chunks_of(await stream_bytes(served, LONG))
        text = text_of(chunks)
        assert statuses(chunks) == []
        assert f"> *elbowroom: {COMPACTING}*\n\n" in text
        assert f"> *elbowroom: {COMPACTED}" in text
        assert text.endswith(ANSWER)
        sent_back = [*history(2), {"role": "assistant", "content": text}, {"role": "user", "content": "And before?"}]
        await stream_bytes(served, {"model": RAW_MODEL, "messages": sent_back})
        received = turns_of(studio)[-1].body["messages"]
        assert received == [*history(2), {"role": "assistant", "content": ANSWER}, sent_back[-1]]


@pytest.mark.parametrize("in_parts", [False, True], ids=["text", "parts"])
async def test_lines_in_the_middle_of_an_answer(tmp_path: Path, *, in_parts: bool) -> None:
    """An answer that was stopped and went on is sent to the model without the notices in it, as it was said."""
    log = "".join(f"Then the {one} at last saw the {two}.\n" for one in WORDS for two in WORDS)

    def writes(body: dict[str, Any]) -> str:
        last = content_of(body["messages"][-1])
        if last == "Thanks.":
            return ANSWER
        return log if last == QUESTION else rest_of(log, content_of(body["messages"][-2]))

    async with small_window(tmp_path, writes, compaction='notices = "content"') as (served, studio):
        text = text_of(chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": history(5)})))
        assert f"> *elbowroom: {COMPACTING}*" in text
        assert text.startswith(log[:100])
        assert text.endswith(log[-100:])
        content = [{"type": "text", "text": text}] if in_parts else text
        sent_back = [*history(0), {"role": "assistant", "content": content}, {"role": "user", "content": "Thanks."}]
        await stream_bytes(served, {"model": RAW_MODEL, "messages": sent_back})
        assert [content_of(message) for message in studio.chats[-1].body["messages"]] == [
            *(content_of(message) for message in history(0)),
            log,
            "Thanks.",
        ]


async def test_comments(tmp_path: Path) -> None:
    """With `comment` they are comments of the stream, which no client shows."""
    async with small_window(tmp_path, compaction='notices = "comment"') as (served, _):
        stream = await stream_bytes(served, LONG)
        blocks = stream.decode().split("\n\n")
        assert f": {COMPACTING}" in blocks
        assert any(block.startswith(f": {COMPACTED}") for block in blocks)
        assert statuses(chunks_of(stream)) == []
        assert text_of(chunks_of(stream)) == ANSWER


async def test_off(tmp_path: Path) -> None:
    """With `off` it is compacted all the same, and nothing is said."""
    async with small_window(tmp_path, compaction='notices = "off"') as (served, studio):
        stream = await stream_bytes(served, LONG)
        assert orders_of(studio)
        assert b"ompact" not in stream
        assert text_of(chunks_of(stream)) == ANSWER


@pytest.mark.parametrize("notices", ["auto", "content", "comment"])
async def test_answers_in_one_piece_have_none(tmp_path: Path, notices: str) -> None:
    """Without streaming an answer is what the model said, whatever was chosen."""
    async with small_window(tmp_path, compaction=f'notices = "{notices}"') as (served, studio):
        status, answer = await ask_whole(served, LONG)
        assert status == 200
        assert orders_of(studio)
        assert answer["choices"][0]["message"]["content"] == ANSWER
        assert COMPACTING not in json.dumps(answer)


@pytest.mark.slow
async def test_model_that_is_being_loaded(tmp_path: Path) -> None:
    """Who waits for a model to be loaded is told so, and told when it is."""
    slow = SimulatedModel(MODEL, load_seconds=0.7)
    async with SimulatedLMStudio([slow]) as studio:
        studio.enqueue(ANSWER, when=lambda body: QUESTION in content_of(body["messages"][-1]))
        async with serve(tmp_path, settings_for(studio.base_url)) as served:
            body = {"model": RAW_MODEL, "messages": [{"role": "user", "content": QUESTION}]}
            chunks = chunks_of(await stream_bytes(served, body))
            opening, closing = statuses(chunks)
            assert opening["event"]["data"] == {"description": "Loading model...", "done": False}
            assert closing["event"]["data"] == {"description": "Model loaded.", "done": True}
            assert text_of(chunks) == ANSWER
            assert statuses(chunks_of(await stream_bytes(served, body))) == []


async def test_tight_window(tmp_path: Path) -> None:
    """Where tools take most of the window, the first message tells which, and what to do; later ones do not.

    No more do the calls of tools for the first message, of which a coding agent sends each as a request.
    """
    async with small_window(tmp_path, server='client_tools = "pass"') as (served, _):
        first = {"model": RAW_MODEL, "messages": history(0), "tools": LARGE_TOOLS}
        told = statuses(chunks_of(await stream_bytes(served, first)))
        assert [notice["elbowroom"]["kind"] for notice in told] == ["tight", "tight"]
        assert {notice["event"]["data"]["done"] for notice in told} == {True}
        words, line = (notice["event"]["data"]["description"] for notice in told)
        assert line.startswith("Switch tools off in the client: ")
        assert "of this model's 1000 tokens" in words
        assert "6 tools (the largest: tool_" in words
        assert "larger context length" in words
        assert 'client_tools = "slim"' in words
        call = {"id": "call00001", "type": "function", "function": {"name": "tool_1", "arguments": "{}"}}
        called = [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": ""},
        ]
        for messages in (history(1), [*history(0), *called]):
            told = statuses(chunks_of(await stream_bytes(served, {**first, "messages": messages})))
            assert [one for one in told if one["elbowroom"]["kind"] == "tight"] == []


@pytest.mark.parametrize("stream", [True, False])
async def test_tools_larger_than_the_window(tmp_path: Path, *, stream: bool) -> None:
    """No compaction can help: a 400 names the largest tools, and no model is asked, for nothing at all."""
    whole = 'client_tools = "pass"'
    async with small_window(tmp_path, server=whole, agents=f"{AGENT}{whole}\n") as (served, studio):
        huge = {"path": {"type": "string", "description": "a long way " * 500}}
        body = {**LONG, "stream": stream, "tools": [function_spec("huge_tool", **huge), *LARGE_TOOLS]}
        status, answer = await ask_whole(served, body)
        assert status == 400
        assert (answer["error"]["code"], answer["error"]["param"]) == ("window_too_small", "tools")
        message = answer["error"]["message"]
        assert re.match(r"Load the model with [0-9,]+ tokens or more, switch tools off in the client", message)
        assert "It is loaded with 1,000" in message
        assert "7 tools (the largest: huge_tool " in message
        assert "switch tools off" in message
        assert studio.chats == []
