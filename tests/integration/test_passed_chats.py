"""Chats of a server that is only passed through: every byte of the answer but the model's name."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from chatting import AGENT, elbowroom_with_studio
from fake_upstream import FakeUpstream, completion, fake_upstream, says, streams
from serving import Served, serve, settings_for

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"
HEAD = '"created":1,"id":"chatcmpl-1","model":"m","system_fingerprint":"b1-a","object":"chat.completion.chunk"'
WRITTEN = r"""
{"choices":[{"finish_reason":null,"index":0,"delta":{"role":"assistant","content":null}}],HEAD}
{"choices":[],HEAD,"prompt_progress":{"total":9,"cache":0,"processed":9,"time_ms":1}}
{"choices":[{"finish_reason":null,"index":0,"delta":{"content":"Grüße \u4f60 \"model\":\"m\""}}],HEAD}
{ "choices" : [ { "index" : 0 , "delta" : { "reasoning" : "Hm" } } ] , "model" : "m" , "odd" : 1.50 }
{"choices":[{"index":0,"delta":{"content":"x"}}],"__verbose":{"model":"m","prompt":"<s>"},HEAD}
{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{}"}}]}}],HEAD}
{"choices":[{"index":1,"delta":{"content":"Two"}}],"timings":{"predicted_ms":3.0},HEAD}
{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],HEAD}
{"choices":[{"finish_reason":"stop","index":1,"delta":{}}],HEAD}
{"choices":[],HEAD,"usage":{"prompt_tokens":9,"completion_tokens":3},"timings":{"predicted_n":3}}
"""
FRAMES = WRITTEN.strip().replace("HEAD", HEAD).splitlines()
"""Frames as llama.cpp and vLLM write them."""
OURS = '"model":"openai/m"'


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """Run a generic upstream."""
    async with fake_upstream({}) as upstream:
        yield upstream


@pytest.fixture
async def served(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of it, passing through."""
    async with serve(tmp_path, settings_for(upstream.url, kind="openai")) as served:
        yield served


def body(**fields: Any) -> dict[str, Any]:
    """Return a chat request for the upstream's model `m`."""
    return {"model": "openai/m", "messages": [{"role": "user", "content": "Hi"}], **fields}


def framed(text: str) -> bytes:
    """Return the frame of an event."""
    return f"data: {text}\n\n".encode()


def expected(text: str) -> bytes:
    """Return the frame under the name that the client gave, of which no other byte differs."""
    own = text.replace(HEAD, HEAD.replace('"model":"m"', OURS))
    return framed(own.replace('"model" : "m" ,', '"model" : "openai/m" ,'))


@pytest.mark.fault("fields that nobody knows", "streaming", "byte for byte where it is passed through")
@pytest.mark.parametrize("together", [False, True])
async def test_frames_come_as_they_were_sent(served: Served, upstream: FakeUpstream, *, together: bool) -> None:
    """Not a byte is added, lost or written anew, whether the frames come one by one or all at once."""
    sent = [framed(text) for text in FRAMES]
    upstream.answers[CHAT] = streams(*([b"".join(sent)] if together else sent), DONE)
    async with served.http.post(served.chat_url, json=body(stream=True, return_progress=True)) as response:
        received = await response.read()
    assert received == b"".join(map(expected, FRAMES)) + DONE


async def test_a_whole_answer_comes_as_it_was_sent(served: Served, upstream: FakeUpstream) -> None:
    """So does an answer in one piece, with its spaces, numbers and letters."""
    text = '{"choices": [{"message": {"content": "Grüße", "model": "m"}, "index": 0}],\n "model": "m", "x": 1.50}'
    upstream.answers[CHAT] = says(text.encode(), headers={"Content-Type": "application/json"})
    async with served.http.post(served.chat_url, json=body()) as response:
        assert response.content_type == "application/json"
        assert (await response.read()).decode() == text.replace('"model": "m", "x"', '"model": "openai/m", "x"')


async def test_several_choices(served: Served, upstream: FakeUpstream) -> None:
    """More than one answer may be asked for, since the upstream answers alone for its window."""
    both = completion()
    both["choices"] = [{**both["choices"][0], "index": index} for index in range(2)]
    upstream.answers[CHAT] = says(both)
    async with served.http.post(served.chat_url, json=body(n=2)) as response:
        assert len((await response.json())["choices"]) == 2
    assert upstream.asked_at(CHAT)[0].json["n"] == 2


@pytest.mark.parametrize("stream", [True, False])
async def test_several_choices_of_a_managed_model(tmp_path: Path, *, stream: bool) -> None:
    """Where elbowroom keeps the window, a second choice is refused in words, before anybody is asked."""
    async with elbowroom_with_studio(tmp_path, agents=AGENT) as (served, studio):
        request = {**body(n=2, stream=stream), "model": "writer"}
        async with served.http.post(served.chat_url, json=request) as response:
            assert response.status == 400
            error = (await response.json())["error"]
        assert error["param"] == "n"
        assert "manage_context" in error["message"]
        assert not studio.chats


@pytest.mark.parametrize("key", ['"event"', '"\\u0065vent"', '"selected_model_id"'])
async def test_what_could_move_a_browser_is_taken_out(served: Served, upstream: FakeUpstream, key: str) -> None:
    """However the key is written; all else of that frame means what it meant."""
    evil = '{"choices":[{"index":0,"delta":{"content":"Hi"}}],"model":"m",KEY:"evil","x":1}'.replace("KEY", key)
    upstream.answers[CHAT] = streams(framed(evil), framed(FRAMES[7]), DONE)
    async with served.http.post(served.chat_url, json=body(stream=True)) as response:
        first, *_ = (await response.read()).split(b"\n\n")
    assert json.loads(first.removeprefix(b"data: ")) == {
        "choices": [{"index": 0, "delta": {"content": "Hi"}}],
        "model": "openai/m",
        "x": 1,
    }


async def test_a_finish_is_not_told_before_the_answer_is_whole(served: Served, upstream: FakeUpstream) -> None:
    """What breaks off behind its finish_reason ends with an error alone; the words before it stand."""
    upstream.answers[CHAT] = streams(framed(FRAMES[2]), framed(FRAMES[7]), b"data: {broken\n\n")
    async with served.http.post(served.chat_url, json=body(stream=True)) as response:
        received = await response.read()
    assert received.startswith(expected(FRAMES[2]) + b'data: {"error"')
    assert b"[DONE]" not in received
