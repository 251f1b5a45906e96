"""Embeddings and bare completions of a server that is only passed through: what goes up, what comes back, and when."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from chatting import MODEL, RAW_MODEL, elbowroom_with_studio, eventually
from fake_upstream import Answer, FakeUpstream, fake_upstream, says, streams
from openai_schemas import check_schema
from serving import Served, parse_frames, serve, settings_for

from elbowroom.agents.admission import Priority
from elbowroom.demo import SimulatedModel
from elbowroom.server.state import SHARED, Timing

COMPLETIONS, EMBEDDINGS = "/v1/completions", "/v1/embeddings"
BODY = {"model": "openai/m", "prompt": "Once", "suffix": "end", "unknown": [1]}


def piece(text: str) -> bytes:
    """Return one frame of a continuation."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": None}
    return b"data: " + json.dumps({"id": "c", "model": "theirs", "choices": [choice]}).encode() + b"\n\n"


@asynccontextmanager
async def passed(folder: Path, answers: Mapping[str, Answer]) -> AsyncIterator[tuple[Served, FakeUpstream]]:
    """Run elbowroom in front of an upstream that answers so."""
    async with fake_upstream(answers) as upstream:
        async with serve(folder, settings_for(f"{upstream.url}/v1", kind="openai")) as served:
            yield served, upstream


async def frames(served: Served, **fields: Any) -> list[Any]:
    """Ask for a stream and return what its frames hold."""
    async with served.http.post(f"{served.url}{COMPLETIONS}", json={**BODY, "stream": True, **fields}) as response:
        assert response.status == 200, await response.text()
        return parse_frames(await response.read())


async def test_the_body_goes_up_as_it_is(tmp_path: Path) -> None:
    """All but the model's name stays as sent, and what comes back names the model as the client did."""
    vector = {"object": "list", "model": "theirs", "data": [], "usage": {"prompt_tokens": 1, "total_tokens": 1}}
    answers = {EMBEDDINGS: says(vector), COMPLETIONS: streams(piece("On"), piece("ce."), b"data: [DONE]\n\n")}
    async with passed(tmp_path, answers) as (served, upstream):
        said = await frames(served)
        assert [one["choices"][0]["text"] for one in said[:-1]] == ["On", "ce."]
        assert {one["model"] for one in said[:-1]} == {"openai/m"}
        assert said[-1] == "[DONE]"
        assert upstream.asked_at(COMPLETIONS)[0].json == {**BODY, "model": "m", "stream": True}
        asked = {"model": "openai/m", "input": [1, 2], "dimensions": 3}
        async with served.http.post(f"{served.url}{EMBEDDINGS}", json=asked) as response:
            assert await response.json() == {**vector, "model": "openai/m"}
        assert upstream.asked_at(EMBEDDINGS)[0].json == {**asked, "model": "m"}


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        (b'event: error\ndata: "it broke"\n\n', "upstream_error"),
        (b'data: {"error": {"message": "it broke"}}\n\n', "upstream_error"),
        (b"data: it broke\n\n", "upstream_error"),
        (b"", "upstream_cut"),
    ],
)
async def test_a_stream_that_breaks_off(tmp_path: Path, rest: bytes, code: str) -> None:
    """What was said comes, then an error in OpenAI's form, and no end that looks well."""
    async with passed(tmp_path, {COMPLETIONS: streams(piece("On"), rest)}) as (served, _):
        first, failure = await frames(served)
        assert first["choices"][0]["text"] == "On"
        check_schema("ErrorResponse", failure)
        assert failure["error"]["code"] == code
        assert not rest or "it broke" in failure["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [COMPLETIONS, EMBEDDINGS])
@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (says({"error": "it broke"}, 400), 400),
        (says({"error": {"message": "it broke"}}, 500), 502),
        (says({"error": "it broke"}), 502),
        (says("it broke", 429, {"Retry-After": "3"}), 429),
        (says("it broke"), 502),
    ],
)
async def test_refusals(tmp_path: Path, path: str, answer: Answer, status: int, stream: bool) -> None:
    """Whatever form an upstream gives its refusal, it comes as an error of OpenAI's with its words."""
    async with passed(tmp_path, {path: answer}) as (served, _):
        body = {"model": "openai/m", "prompt": "a", "input": "a", "stream": stream}
        async with served.http.post(f"{served.url}{path}", json=body) as response:
            assert response.status == status
            failure = await response.json()
            assert response.headers.get("Retry-After") == ("3" if status == 429 else None)
        check_schema("ErrorResponse", failure)
        assert "it broke" in failure["error"]["message"]


async def test_nobody_is_there(tmp_path: Path) -> None:
    """A provider that does not run is named, with what to do."""
    async with serve(tmp_path, settings_for("http://127.0.0.1:9/v1", kind="openai")) as served:
        async with served.http.post(f"{served.url}{COMPLETIONS}", json=BODY) as response:
            assert response.status == 503
            assert "Start it" in (await response.json())["error"]["message"]


async def test_leaving_closes_the_upstream(tmp_path: Path) -> None:
    """As soon as the client is gone, before the first word or behind it, so is the request."""
    began, ended = asyncio.Event(), asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            if body.get("stream"):
                await response.write(piece("On"))
            began.set()
            await asyncio.sleep(60)
        finally:
            ended.set()
        return response

    async with passed(tmp_path, {COMPLETIONS: endless}) as (served, _):
        for stream in (False, True):
            began.clear()
            ended.clear()
            asking = asyncio.create_task(frames(served, stream=stream))
            await asyncio.wait_for(began.wait(), 60)
            asking.cancel()
            await asyncio.wait([asking])
            await asyncio.wait_for(ended.wait(), 60)


@pytest.mark.slow
async def test_a_slow_client_pauses_the_upstream(tmp_path: Path) -> None:
    """While a client does not read, the upstream is not read on."""
    written = 0

    async def flood(request: web.Request) -> web.StreamResponse:
        nonlocal written
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(360):  # of 64 KiB each, much more than all buffers on the way hold
            await response.write(piece("~" * 65_536))
            written += 1
        await response.write(b"data: [DONE]\n\n")
        return response

    async with passed(tmp_path, {COMPLETIONS: flood}) as (served, _):
        async with served.http.post(f"{served.url}{COMPLETIONS}", json={**BODY, "stream": True}) as response:
            before = -1
            while before != written or not written:
                before = written
                await asyncio.sleep(0.3)
            assert written < 270
            received = 0
            async for part in response.content.iter_any():
                received += part.count(b"~")
            assert received == 360 * 65_536


@pytest.mark.parametrize("end", [b"data: [DONE]\n", b"data: [DONE]", b"data: [DONE] \r\n\r\n"])
async def test_ends_that_are_written_sloppily(tmp_path: Path, end: bytes) -> None:
    """What says that it is finished is finished, as in a chat."""
    async with passed(tmp_path, {COMPLETIONS: streams(piece("On"), end)}) as (served, _):
        said, done = await frames(served)
        assert (said["choices"][0]["text"], done) == ("On", "[DONE]")


async def test_what_it_may_grow_to_is_held(tmp_path: Path) -> None:
    """Beside an answer that holds much of the window it waits, for it could not be stopped where both outgrow it."""
    async with elbowroom_with_studio(tmp_path, model=SimulatedModel(MODEL, loaded_context_length=4096)) as pair:
        served, studio = pair
        admission, pool = served.app[SHARED].admission, ("lmstudio", MODEL)
        body = {"model": RAW_MODEL, "prompt": "Once", "max_tokens": 3000, "stream": True}
        async with admission.admitted(pool, capacity=4096, tokens=2000, prompt=1, priority=Priority.CHAT):
            asking = asyncio.create_task(served.http.post(f"{served.url}{COMPLETIONS}", json=body))
            await eventually(lambda: admission.waiting(pool) or asking.done(), "it neither waits nor is answered")
            assert admission.waiting(pool)
            assert not [record for record in studio.requests if record.path == COMPLETIONS]
        async with await asking as response:
            assert (await response.read()).endswith(b"data: [DONE]\n\n")


async def test_while_its_model_is_loaded(tmp_path: Path) -> None:
    """The client of a stream hears that the connection stands, and a server that is stopped ends it in words."""
    idle = SimulatedModel(MODEL, default_context_length=2048, load_seconds=60.0)
    async with elbowroom_with_studio(tmp_path, model=idle, timing=Timing(keep_alive=0.05)) as (served, _):
        body = {"model": RAW_MODEL, "prompt": "Once", "stream": True}
        async with served.http.post(f"{served.url}{COMPLETIONS}", json=body) as response:
            assert (await response.content.readline()).startswith(b":")
            served.app[SHARED].running.stop()
            assert b'"server_stopping"' in await response.read()
