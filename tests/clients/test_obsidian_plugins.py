"""Requests as the plugins of Obsidian send them: their addresses, headers, preflights and habits."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from chatting import RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, finish_of, function_spec, split_frames
from serving import Served, text_of

from elbowroom.demo import Error, Pause, Script, SimulatedLMStudio, ToolCall
from elbowroom.server.keys import Timing

Pair = tuple[Served, SimulatedLMStudio]
DESKTOP, IOS, ANDROID = "app://obsidian.md", "capacitor://localhost", "http://localhost"
STAINLESS = {
    "x-stainless-arch": "x64",
    "x-stainless-lang": "js",
    "x-stainless-os": "Linux",
    "x-stainless-package-version": "6.49.0",
    "x-stainless-retry-count": "0",
    "x-stainless-runtime": "browser:chrome",
    "x-stainless-timeout": "600",
}
COPILOT = {"Origin": DESKTOP, "dangerously-allow-browser": "true", **STAINLESS}
CLIENTS = {
    "Copilot, without a key": ("/v1/chat/completions", COPILOT),
    "Copilot, older": ("/v1/chat/completions", {"Authorization": "Bearer default-key", **COPILOT}),
    "Smart Composer": ("/v1/chat/completions", {"Origin": DESKTOP, "Authorization": "Bearer ", **STAINLESS}),
    "Smart Composer with /v1 in the address": ("/v1/v1/chat/completions", {"Origin": DESKTOP, **STAINLESS}),
    "AI Providers on the desktop": ("/v1/chat/completions", {"Authorization": "Bearer placeholder-key"}),
    "Smart Connections": ("/v1/chat/completions", {"Origin": DESKTOP, "Authorization": "Bearer no api key required"}),
    "Smart Connections on iOS": ("/v1/chat/completions", {"Origin": IOS}),
    "BMO Chatbot on Android": ("/v1/chat/completions", {"Origin": ANDROID, "Authorization": "Bearer "}),
    "Text Generator": (
        "/v1/chat/completions",
        {"Origin": DESKTOP, "HTTP-Referer": "https://example.test", "X-Title": "Obsidian"},
    ),
    "SystemSculpt without /v1": ("/chat/completions", {"Origin": DESKTOP}),
    "full address as the base": ("/v1/chat/completions/chat/completions", {"Origin": DESKTOP}),
    "slash at the end": ("/v1/chat/completions/", {"Origin": DESKTOP}),
    "doubled slash": ("/v1//chat/completions", {"Origin": DESKTOP}),
}
CLIENT = pytest.mark.parametrize(("path", "headers"), CLIENTS.values(), ids=CLIENTS)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Run elbowroom in front of a simulated LM Studio."""
    async with elbowroom_with_studio(tmp_path) as both:
        yield both


@CLIENT
@pytest.mark.parametrize("stream", [True, False])
async def test_chat(pair: Pair, path: str, headers: dict[str, str], stream: bool) -> None:
    """Each plugin's request is answered in its form, and a web view may read the answer."""
    served, studio = pair
    studio.enqueue("An answer.")
    body = chat_body(stream=stream, temperature=0.1)
    async with served.http.post(f"{served.url}{path}", json=body, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers.getall("Access-Control-Allow-Origin", []) == [
            value for name, value in headers.items() if name == "Origin"
        ]
        answer = await response.read()
    if stream:
        assert text_of(chunks_of(answer)) == "An answer."
    else:
        assert json.loads(answer)["choices"][0]["message"]["content"] == "An answer."


@CLIENT
async def test_preflight(pair: Pair, path: str, headers: dict[str, str]) -> None:
    """A preflight to whatever address was typed is allowed, with exactly the headers that were asked for."""
    served, _ = pair
    if "Origin" not in headers:
        headers = {**headers, "Origin": DESKTOP}
    asked = ", ".join(sorted(name.lower() for name in headers if name != "Origin")) or "content-type"
    preflight = {
        "Origin": headers["Origin"],
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": asked,
    }
    async with served.http.options(f"{served.url}{path}", headers=preflight) as response:
        assert response.status == 204
        assert response.headers["Access-Control-Allow-Origin"] == headers["Origin"]
        assert response.headers["Access-Control-Allow-Headers"] == asked
        assert "POST" in response.headers["Access-Control-Allow-Methods"]


@pytest.mark.parametrize(
    "path", ["/v1/models", "/models", "/v1/models/", "/v1/v1/models", "/v1/chat/completions/models"]
)
async def test_list_of_models(pair: Pair, path: str) -> None:
    """Every plugin's address for the list works: `object` is `list`, and rows have what each of them reads."""
    served, _ = pair
    async with served.http.get(f"{served.url}{path}", headers={"Origin": DESKTOP}) as response:
        assert response.status == 200
        answer = await response.json()
    assert answer["object"] == "list"
    assert [row["id"] for row in answer["data"]] == ["writer", RAW_MODEL]
    for row in answer["data"]:
        assert row["object"] == "model"
        assert isinstance(row["created"], int)
        assert row["created"] < 10_000_000_000, "seconds, not milliseconds"
        assert row["context_length"] == 32_768
        assert row["name"]
        assert row["owned_by"]


async def test_error_can_be_read_by_a_web_view(pair: Pair) -> None:
    """An error has the CORS headers too, else the plugin shows a network failure instead of its words."""
    served, _ = pair
    body = chat_body(model="nobody")
    async with served.http.post(served.chat_url, json=body, headers=COPILOT) as response:
        assert response.status == 404
        assert response.headers["Access-Control-Allow-Origin"] == DESKTOP


async def test_ping_of_copilot(pair: Pair) -> None:
    """The short request with which Copilot tests a model is one request upstream, cut where it asked."""
    served, studio = pair
    studio.enqueue("One two three four five. " * 20)
    answer = await served.chat("writer", "hello", max_tokens=30, stream=False)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(studio.chats) == 1


async def test_fields_that_plugins_send_by_habit(pair: Pair) -> None:
    """`n: 1`, an empty `stop`, null and unknown fields are no reason to refuse."""
    served, studio = pair
    fields: dict[str, Any] = {
        "n": 1,
        "stop": "",
        "parallel_tool_calls": False,
        "tool_choice": None,
        "logit_bias": None,
        "odd": {},
    }
    assert (await served.chat("writer", **fields))["choices"]
    assert studio.chats[0].body["parallel_tool_calls"] is False
    assert studio.chats[0].body["odd"] == {}


async def test_reader_that_parses_every_line(tmp_path: Path) -> None:
    """BMO Chatbot parses every line that is not a comment as JSON and appends `delta.content`: never undefined."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=0.02)) as (served, studio):
        studio.enqueue(Script(Pause(0.1), "One ", Pause(0.1), "two."))
        async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
            lines = (await response.text()).split("\n")
        shown = ""
        for line in lines:
            if line.startswith("data: ") and line != "data: [DONE]":
                shown += json.loads(line.removeprefix("data: "))["choices"][0]["delta"]["content"]
            else:
                assert line in ("", ": elbowroom", "data: [DONE]")
        assert shown == "One two."


async def test_reader_that_waits_for_done(pair: Pair) -> None:
    """Smart Connections ends on the exact string `data: [DONE]` and reads the first tool call."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("lookup", {"hypotheticals": ["a"]})))
    body = chat_body(stream=True, tools=[function_spec("lookup")])
    async with served.http.post(served.chat_url, json=body) as response:
        stream = await response.read()
    assert stream.rstrip(b"\n").endswith(b"\n\ndata: [DONE]")
    assert finish_of(chunks_of(stream)) == "tool_calls"


async def test_error_in_the_middle(pair: Pair) -> None:
    """An error in a stream is an object with a message, which openai-node raises."""
    served, studio = pair
    studio.enqueue(Script("Half", Pause(0.02), Error("Out of memory.")))
    async with served.http.post(served.chat_url, json=chat_body(stream=True), headers=COPILOT) as response:
        last: dict[str, Any] = json.loads(split_frames(await response.read())[-1])
    assert "Out of memory." in last["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/embeddings", "/v1/completions", "/v2/chat"])
async def test_routes_that_are_not_there(pair: Pair, path: str) -> None:
    """A route that does not exist is an error object that names those that do, also in a web view."""
    served, _ = pair
    async with served.http.post(f"{served.url}{path}", json={}, headers=COPILOT) as response:
        assert response.status == 404
        assert response.headers["Access-Control-Allow-Origin"] == DESKTOP
        assert "/v1/chat/completions" in (await response.json())["error"]["message"]
