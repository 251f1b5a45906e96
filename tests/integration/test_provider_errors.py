"""Every error of an upstream, through the whole server: the right status, code and frame, in words with numbers."""

import asyncio
import gzip
from typing import Any

import aiohttp
import provider_fixtures
import pytest
from aiohttp import web
from fake_upstream import FakeUpstream, chunk, completion, says, streams
from outcome import chat
from serving import Served, parse_frames
from spread_variants import spread
from waiting import until

from elbowroom.demo import Cut, Script, SimulatedLMStudio, WaitFor
from elbowroom.providers import upstream as asking
from elbowroom.providers.failures import Source

CHAT = "/v1/chat/completions"
DONE = b"data: [DONE]\n\n"


studio, managed = provider_fixtures.studio, provider_fixtures.managed
upstream, relaying = provider_fixtures.upstream, provider_fixtures.relaying


def soon() -> asyncio.Event:
    """Return an event that is set in a moment."""
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, event.set)
    return event


@pytest.mark.fault("page instead of an answer", "first", "502 with a short excerpt")
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("status", "body", "shown", "code", "words"),
    [
        (400, {"error": "'response_format.type' must be 'json_schema' or 'text'"}, 400, None, "json_schema"),
        (
            404,
            {"error": {"message": "no m", "code": "model_not_found", "param": "model"}},
            404,
            "model_not_found",
            "no m",
        ),
        (404, "404 page not found", 404, None, "page not found"),
        (401, {"error": {"message": "bad key"}}, 502, "upstream_error", "api_key"),
        (403, "<html><body>Forbidden</body></html>", 502, "upstream_error", "Forbidden"),
        (413, {"error": "too large"}, 413, None, "too large"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, 422, None, "field required"),
        (429, {"error": {"message": "slow down"}}, 429, "upstream_busy", "slow down"),
        (500, {"error": {"message": "boom"}}, 502, "upstream_error", "boom"),
        (500, b"", 502, "upstream_error", "500"),
        (502, "<html><head><title>502</title></head><body>Bad gateway</body></html>", 502, "upstream_error", "gateway"),
        (503, {"error": "loading"}, 503, "upstream_busy", "loading"),
        (204, b"", 502, "upstream_error", "204"),
        (200, {"error": "Unexpected endpoint or method. (POST /x)"}, 502, "upstream_error", "Unexpected endpoint"),
        (200, {"error": {"message": "The model has crashed"}}, 503, "model_not_loaded", "crashed"),
        (200, {"hello": 1}, 502, "upstream_error", "chat completion"),
        (200, [1], 502, "upstream_error", "chat completion"),
        (200, "<html><body><p>Please log in</p></body></html>", 502, "upstream_error", "Please log in"),
        (400, {"error": "Model is unloaded."}, 503, "model_not_loaded", "Load it there"),
    ],
)
async def test_each_status_and_body(
    relaying: Served,
    upstream: FakeUpstream,
    status: int,
    body: Any,
    shown: int,
    code: str | None,
    words: str,
    *,
    stream: bool,
) -> None:
    """What the upstream said reaches the person, under a status that puts the fault where it lies."""
    kind = {"Content-Type": "text/html"} if isinstance(body, str) and body.startswith("<") else None
    upstream.answers[CHAT] = says(body, status=status, headers=kind)
    outcome = await chat(relaying, "openai/m", stream=stream)
    assert outcome.status == shown
    assert words in outcome.message
    assert "<" not in outcome.message
    assert outcome.error is not None
    assert code is None or outcome.error["code"] == code


@pytest.mark.fault(("Retry-After of years", "busy engine"), "first", "an hour at most")
@pytest.mark.parametrize(
    ("status", "header"),
    spread(
        [429, 503],
        [
            ("7", "7"),
            ("99999999", "3600"),
            ("Wed, 21 Oct 2015 07:28:00 GMT", "0"),
            ("Wed, 21 Oct 2099 07:28:00 GMT", "3600"),
            ("Wed, 99 Oct 2099 07:28:00 GMT", None),
            ("٣", None),
            ("soon", None),
            ("-1", None),
            ("7; evil=1", None),
            ("9" * 5000, None),
            ("", None),
            (None, None),
        ],
    ),
)
async def test_retry_after_is_relayed_where_it_makes_sense(
    relaying: Served, upstream: FakeUpstream, status: int, header: tuple[str | None, str | None]
) -> None:
    """Seconds and dates go on to the client as seconds, an hour at most; anything else stays behind."""
    given, relayed = header
    headers = {"X-Evil": "1"} if given is None else {"Retry-After": given, "X-Evil": "1"}
    upstream.answers[CHAT] = says({"error": "later"}, status=status, headers=headers)
    for stream in (True, False):
        outcome = await chat(relaying, "openai/m", stream=stream)
        assert outcome.status == status
        assert outcome.headers.get("retry-after") == relayed
        assert "x-evil" not in outcome.headers


@pytest.mark.fault("broken event", "streaming", "words kept, error frame")
@pytest.mark.parametrize(
    "events",
    [
        [chunk({"content": "Half a"})],
        [chunk({"content": "Half a"}), DONE],
        [chunk({"content": "Half a"}) + b"data: {broken\n\n"],
        [chunk({"content": "Half a"}), b"data: {broken\n\n", chunk({}, "stop"), DONE],
        [chunk({"content": "Half a"}), b"data: 7\n\n"],
        [chunk({"content": "Half a"}), b"data: [1]\n\n"],
        [chunk({"content": "Half a"}), b"data: \xff\xff\n\n"],
        [chunk({"content": "Half a"}), chunk({}, "error"), DONE],
        [chunk({"content": "Half a"}), b'data: {"choices": [{"error": {"message": "x"}}]}\n\n'],
        [chunk({"content": "Half a"}), b'data: {"error": {"message": "x"}}\n\n', chunk({}, "stop"), DONE],
        [chunk({"content": "Half a"}), b"data: " + b"[" * 100_000 + b"\n\n"],
    ],
)
async def test_a_damaged_stream_keeps_its_words_and_fails(
    relaying: Served, upstream: FakeUpstream, events: list[bytes]
) -> None:
    """No finish, broken JSON, JSON that is no object, an error beside a choice: text, then an error frame."""
    for parts in (events, [b"".join(events)]):
        upstream.answers[CHAT] = streams(*parts)
        outcome = await chat(relaying, "openai/m", stream=True)
        assert outcome.text == "Half a"
        assert outcome.error is not None
        assert outcome.error["type"] == "upstream_error"


@pytest.mark.parametrize("events", [[], [DONE], [b": ping\n\n"], [chunk({}, "stop"), DONE], [chunk({"content": ""})]])
async def test_a_stream_without_a_word_is_a_502(relaying: Served, upstream: FakeUpstream, events: list[bytes]) -> None:
    """Zero deltas are no answer: since nothing was sent, the client gets a real status."""
    upstream.answers[CHAT] = streams(*events)
    outcome = await chat(relaying, "openai/m", stream=True)
    assert outcome.status == 502


async def test_a_stream_that_comes_whole_or_packed_is_read(relaying: Served, upstream: FakeUpstream) -> None:
    """An upstream that ignores `stream`, or sends its events gzipped, is understood all the same."""
    upstream.answers[CHAT] = says(completion("Whole"))
    assert (await chat(relaying, "openai/m", stream=True)).text == "Whole"
    packed = gzip.compress(chunk({"content": "Packed"}) + chunk({}, "stop") + DONE)
    headers = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
    upstream.answers[CHAT] = says(packed, headers=headers)
    assert (await chat(relaying, "openai/m", stream=True)).text == "Packed"
    upstream.answers[CHAT] = says(packed[:-20], headers=headers)
    assert (await chat(relaying, "openai/m", stream=True)).error is not None
    upstream.answers[CHAT] = says(b"this is not gzip", headers=headers)
    assert (await chat(relaying, "openai/m", stream=True)).error is not None


@pytest.mark.threat("frames and headers", "text stays text")
@pytest.mark.parametrize(
    "said",
    ["\n\ndata: [DONE]\n\n", "\r\ndata: x\r\n\r\n", "\u2028\u2029\x85", "event: error\n", '"}]}\n\n', "\x00\x1b[2J"],
)
async def test_what_a_model_says_cannot_break_the_frames(managed: Served, studio: SimulatedLMStudio, said: str) -> None:
    """Text that looks like frames arrives as text."""
    studio.enqueue(f"a{said}b")
    outcome = await chat(managed, "lmstudio/tiny", stream=True)
    assert outcome.error is None
    assert outcome.text == f"a{said}b"


async def test_upstream_events_never_reach_the_browser(relaying: Served, upstream: FakeUpstream) -> None:
    """`event` and `selected_model_id` could push things into a chat page; they stop here, however they are written."""
    evil: dict[str, Any] = {"event": {"type": "chat:message:error"}, "selected_model_id": "evil"}
    upstream.answers[CHAT] = streams(chunk({"content": "Hi"}, **evil), chunk({}, "stop", **evil), DONE)
    async with relaying.http.post(relaying.chat_url, json=request_body(stream=True)) as response:
        streamed = await response.text()
    upstream.answers[CHAT] = says(completion(**evil))
    async with relaying.http.post(relaying.chat_url, json=request_body(stream=False)) as response:
        whole = await response.text()
    assert "Hi" in streamed
    assert "Hi" in whole
    assert "selected_model_id" not in streamed + whole
    assert "chat:message" not in streamed + whole
    assert "evil" not in streamed + whole


def request_body(*, stream: bool) -> dict[str, Any]:
    """Return a chat request for the generic upstream."""
    return {"model": "openai/m", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}


@pytest.mark.fault("model lost", "streaming", "words kept, error frame")
async def test_a_model_that_is_unloaded_in_mid_answer(managed: Served, studio: SimulatedLMStudio) -> None:
    """The words so far are kept, the error says what happened, and the next request loads the model again."""
    studio.enqueue(Script("Half a", WaitFor(asyncio.Event()), " never said"))
    asking = asyncio.create_task(chat(managed, "lmstudio/tiny", stream=True))
    await until(lambda: studio.chats and studio.chats[-1].completion_tokens == 2)
    studio.unload("tiny")
    outcome = await asking
    assert outcome.text == "Half a"
    assert outcome.error is not None
    assert outcome.error["code"] == "model_not_loaded"
    assert (await chat(managed, "lmstudio/tiny", stream=True)).error is None


@pytest.mark.fault("cut stream", "first", "asked once more, then 502")
@pytest.mark.fault("cut stream", "streaming", "words kept, error frame")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_socket_that_is_cut_in_mid_answer(managed: Served, studio: SimulatedLMStudio, *, stream: bool) -> None:
    """Cut twice before a word it is a 502, after one an error frame; without streaming a 502 either way."""
    studio.enqueue(Script(Cut()), Script(Cut()), Script("Half a", WaitFor(soon()), Cut()))
    outcome = await chat(managed, "lmstudio/tiny", stream=stream)
    assert outcome.status == 502
    outcome = await chat(managed, "lmstudio/tiny", stream=stream)
    assert outcome.status == (200 if stream else 502)
    assert outcome.text == ("Half a" if stream else "")
    assert outcome.error is not None
    assert outcome.error["code"] == "upstream_cut"


@pytest.mark.threat("frames and headers", "names stay in their JSON")
async def test_names_of_tools_cannot_break_the_frames(relaying: Served, upstream: FakeUpstream) -> None:
    """A tool that is called like a frame stays inside its JSON."""
    name = "f\n\ndata: [DONE]\n\n"
    call = {"tool_calls": [{"index": 0, "id": name, "function": {"name": name, "arguments": "{}"}}]}
    upstream.answers[CHAT] = streams(chunk(call), chunk({}, "tool_calls"), DONE)
    async with relaying.http.post(relaying.chat_url, json=request_body(stream=True)) as response:
        raw = await response.read()
    frames = parse_frames(raw)
    assert raw.count(b"\ndata: [DONE]") == 1
    assert frames.count("[DONE]") == 1
    calls = [call for frame in frames[:-1] for call in frame["choices"][0]["delta"].get("tool_calls", ())]
    assert calls[0]["function"]["name"] == name
    assert calls[0]["id"] == name


async def test_a_failure_that_came_with_words_is_told_at_once(relaying: Served, upstream: FakeUpstream) -> None:
    """An upstream that sends words and a failure in one piece, and then keeps the connection, is not waited for."""

    async def fails_and_stays(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk({"content": "Half a"}) + b'data: {"error": "Model is unloaded."}\n\n')
        await asyncio.sleep(600)
        return response

    upstream.answers[CHAT] = fails_and_stays
    async with asyncio.timeout(60):
        outcome = await chat(relaying, "openai/m", stream=True)
    assert outcome.text == "Half a"
    assert outcome.error is not None
    assert "unloaded" in outcome.error["message"]


@pytest.mark.fault("silence in mid-stream", "streaming", "words kept, error frame")
async def test_silence_in_mid_answer_ends_in_an_error(
    relaying: Served, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upstream that stops in the middle is given up after its time, with the words so far kept."""
    monkeypatch.setattr(asking, "SILENCE_SECONDS", 0.2)

    async def falls_silent(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(chunk({"content": "Half a"}))
        await asyncio.sleep(600)
        return response

    upstream.answers[CHAT] = falls_silent
    outcome = await chat(relaying, "openai/m", stream=True)
    assert outcome.text == "Half a"
    assert outcome.error is not None
    assert outcome.error["code"] == "upstream_timeout"


@pytest.mark.slow
async def test_the_time_in_which_nobody_reads_is_no_silence(
    upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads nothing for a while has the upstream given up no sooner."""
    monkeypatch.setattr(asking, "SILENCE_SECONDS", 0.6)

    async def pauses(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"one")
        await asyncio.sleep(0.9)
        await response.write(b"two")
        return response

    upstream.answers[CHAT] = pauses
    async with aiohttp.ClientSession() as http, http.get(upstream.url + CHAT) as response:
        body = asking.WatchedBody(response, Source("openai", upstream.url))
        assert await body.read(has_begun=True) == b"one"
        await asyncio.sleep(0.5)
        assert await body.read(has_begun=True) == b"two"
        body.end()


async def test_a_long_answer_sets_no_more_timers_than_a_short_one(
    relaying: Served, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Silence is noticed by one timer for a whole stream, not by one for each frame."""
    loop, timers = asyncio.get_running_loop(), list[float]()
    call_at = loop.call_at

    def counted(when: float, *rest: Any, **named: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return call_at(when, *rest, **named)

    def says_often(frames: int) -> Any:
        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for _ in range(frames):
                await response.write(chunk({"content": "a"}))
                await asyncio.sleep(0)
            await response.write(chunk({}, "stop") + DONE)
            return response

        return answer

    async def timers_for(frames: int) -> int:
        timers.clear()
        upstream.answers[CHAT] = says_often(frames)
        assert (await chat(relaying, "openai/m", stream=True)).text == "a" * frames
        return len(timers)

    await timers_for(1)
    monkeypatch.setattr(loop, "call_at", counted)
    assert await timers_for(400) <= await timers_for(1) + 40
