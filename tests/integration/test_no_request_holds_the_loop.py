"""No request and no answer holds the event loop for longer than 50 ms, in CPU time of its thread."""

import gc
import io
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import aiohttp
import mcp_odd_server
import pytest
from aiohttp import web
from fake_upstream import Answer, chunk, fake_upstream, says
from large_requests import BODIES, OWN_PAGE, PATHS, request_of
from mcp_sample import program
from serving import Served, settings_for
from watched_loop import WatchedLoop, served_apart

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

LONGEST_STALL = 0.05
WINDOW = 100_000_000
CHATS = PATHS["chat"]
SMALL = b'{"model": "openai/big", "messages": [{"role": "user", "content": "hi"}], "stream": true}'
Apart = tuple[Served, WatchedLoop]
AGENT = '[[agents]]\nid = "helper"\nmodel = "big"\ninstructions = "Be kind."\nprovider = "{provider}"\n'
QUICK = [
    ("1,000 tool calls with one id", "chat count"),
    ("20,000 messages of one letter", "chat"),
    ("10,000 pictures", "responses count"),
    ("1,000,000 spaces", "messages count"),
]
"""The cells of the quick suite; the long one has all."""
CELLS = [
    pytest.param(row, column, marks=() if (row, column) in QUICK else pytest.mark.long)
    for row in BODIES
    for column in PATHS
]


@pytest.fixture(autouse=True)
def _no_garbage_stays() -> Iterator[None]:
    """Look once for garbage in what `watch` has put aside."""
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def watch(watched: WatchedLoop) -> None:
    """Begin to measure: what was loaded before is no more searched for garbage, whose time counts as the loop's."""
    gc.collect()
    gc.freeze()
    watched.longest = 0.0


@pytest.fixture(params=[WINDOW])
async def apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Apart]:
    """Run elbowroom on a loop of its own, in front of an engine that takes every prompt and counts none.

    With a small window the engine counts as engines do.
    """
    window = request.param
    big = SimulatedModel("big", loaded_context_length=window, max_context_length=window)
    embedder = SimulatedModel("embedder", type="embedding", loaded_context_length=4096)
    count = (lambda messages, tools: 100) if window == WINDOW else None
    async with SimulatedLMStudio([big, embedder], count_tokens=count) as studio:
        settings = settings_for(studio.base_url, agents=AGENT.format(provider="lmstudio"))
        async with served_apart(tmp_path, settings, monkeypatch) as (served, watched):
            yield served, watched


async def send(url: str, column: str, body: bytes) -> int:
    """Send a body as a file, as no client sends it in one piece, and return the status once all is read."""
    own = {"Origin": url, "X-Elbowroom-Page": "1"} if column in OWN_PAGE else {}
    method = "PATCH" if column == "settings" else "POST"
    headers = {"Content-Type": "application/json", **own}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, url + PATHS[column], data=io.BytesIO(body), headers=headers) as response,
    ):
        await response.read()
        return response.status


@pytest.mark.slow
@pytest.mark.parametrize(("row", "column"), CELLS)
async def test_no_body_holds_the_loop(apart: Apart, row: str, column: str) -> None:
    """Whatever is sent to whichever route, it is answered or refused as the client's fault, and others go on."""
    assert await answered(apart, row, column) < LONGEST_STALL


@pytest.mark.long
@pytest.mark.parametrize("apart", [8192], indirect=True)
@pytest.mark.parametrize("column", ["chat", "agent", "compact"])
@pytest.mark.parametrize("row", BODIES)
async def test_no_compaction_of_a_body_holds_the_loop(apart: Apart, row: str, column: str) -> None:
    """Whatever is far larger than the window is made to fit, or refused as the client's fault, and others go on."""
    assert await answered(apart, row, column) < LONGEST_STALL


@pytest.mark.slow
@pytest.mark.parametrize("count", [*(pytest.param(few, marks=pytest.mark.long) for few in (300, 1000)), 3000])
async def test_no_tools_of_an_mcp_server_hold_the_loop(tmp_path: Path, apart: Apart, count: int) -> None:
    """However many a server offers, reading and sending them holds nobody up; 500 of them are sent."""
    served, watched = apart
    odd = [sys.executable, str(Path(mcp_odd_server.__file__))]
    few, many = program("few", [*odd, "1"]), program("many", [*odd, str(count), "12"])
    agents = ["few", "many"]
    rows = "".join(f'[[agents]]\nid = "{name}"\nmodel = "big"\nmcp = ["{name}"]\n' for name in agents)
    written = served.settings.read_text(encoding="utf-8")
    served.settings.write_text(f"{written}\n{rows}{few}{many}".replace(AGENT.format(provider="lmstudio"), ""))
    sent = []
    for name in agents:  # the first request of all loads the SDK
        watch(watched)
        body = {"model": name, "messages": [{"role": "user", "content": "hi"}]}
        assert await send(served.url, "agent", json.dumps(body).encode()) == 200
        sent.append(watched.longest)
    assert sent[-1] < LONGEST_STALL


@pytest.mark.long
async def test_no_diagnosis_holds_the_loop(apart: Apart) -> None:
    """What a long history has changed since an earlier one is found beside the other requests."""
    served, watched = apart
    asked = json.loads(request_of("messages", "60 MB of messages"))
    body = json.dumps({**asked, "diagnostics": {"previous_message_id": None}}).encode()
    watch(watched)
    assert await send(served.url, "messages", body) == 200
    assert watched.longest < LONGEST_STALL


@pytest.mark.long
async def test_no_long_conversation_holds_the_loop(apart: Apart) -> None:
    """A conversation of 15,000 messages is listed, read and gone on with while others go on."""
    served, watched = apart
    told = {"Content-Type": "application/json", "X-Conversation-Id": "long"}
    url = f"{served.url}/v1/conversations/long/items"
    async with aiohttp.ClientSession() as http:
        asked = json.loads(request_of("chat", "20,000 messages of one letter"))
        body = json.dumps({**asked, "messages": asked["messages"][:15_001]}).encode()
        async with http.post(served.chat_url, data=io.BytesIO(body), headers=told) as response:
            assert response.status == 200, await response.text()
        watch(watched)
        async with http.get(url) as response:
            [first, *_] = (await response.json())["data"]
        async with http.get(f"{url}/{first['id']}") as response:
            assert (await response.json())["id"] == first["id"]
        asked = {"model": "lmstudio/big", "input": "And now?", "conversation": "long"}
        async with http.post(f"{served.url}/v1/responses", json=asked) as response:
            assert response.status == 200, await response.text()
    assert watched.longest < LONGEST_STALL


async def answered(apart: Apart, row: str, column: str) -> float:
    """Have a body answered or refused, and return how many seconds it has held the loop at most."""
    served, watched = apart
    body = request_of(column, row)
    if column == "agent":  # the first request to an agent loads the SDK
        await send(served.url, column, b'{"model": "helper", "messages": [{"role": "user", "content": "hi"}]}')
    watch(watched)
    assert await send(served.url, column, body) in (200, 400, 413, 422)
    return watched.longest


def streamed(*parts: Callable[[], bytes]) -> Answer:
    """Answer with a stream of events, each made when it is sent."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await response.write(part())
        await response.write(chunk({}, "stop") + b"data: [DONE]\n\n")
        return response

    return answer


TEXT = "word " * 3_000_000
ANSWERS: Final[Mapping[str, Sequence[Callable[[], bytes]]]] = {
    "one frame of 15 MB": [lambda: chunk({"content": TEXT})],
    "thoughts of 15 MB": [lambda: chunk({"reasoning_content": TEXT}), lambda: chunk({"content": "So."})],
    "100,000 frames": [lambda: chunk({"content": "a"}) * 1000] * 100,
}
FORMS = [
    ("chat", True, True),
    ("chat", True, False),
    ("chat", False, True),
    ("responses", True, True),
    ("messages", True, True),
]


@pytest.mark.long
@pytest.mark.parametrize(("column", "stream", "manages"), FORMS)
@pytest.mark.parametrize("row", ANSWERS)
async def test_no_answer_holds_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: str, column: str, *, stream: bool, manages: bool
) -> None:
    """However an engine frames its answer, all of it arrives and others go on meanwhile."""
    models = {"data": [{"id": "big", "max_model_len": WINDOW}]}
    answers = {"/v1/models": says(models), CHATS: streamed(lambda: chunk({"content": "a"}))}
    managed = f"manage_context = {str(manages).lower()}"
    async with (
        fake_upstream(answers) as upstream,
        served_apart(tmp_path, settings_for(upstream.url, kind="openai", provider=managed), monkeypatch) as (
            served,
            watched,
        ),
        aiohttp.ClientSession() as http,
    ):
        messages = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 50_000_000}
        asked: dict[str, Any] = {"input": "hi"} if column == "responses" else messages
        if column == "messages":  # which shows thoughts only to those who ask for them
            asked |= {"thinking": {"type": "enabled", "budget_tokens": 1024}}
        await send(served.url, "chat", SMALL)  # what the first answer of all loads is no matter of its size
        upstream.answers[CHATS] = streamed(*ANSWERS[row])
        watch(watched)
        async with http.post(
            served.url + PATHS[column], json={"model": "openai/big", "stream": stream, **asked}
        ) as response:
            size = sum([len(part) async for part in response.content.iter_any()])
            assert response.status == 200
    assert size > 100_000
    assert watched.longest < LONGEST_STALL
