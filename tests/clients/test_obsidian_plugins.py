"""Requests as the plugins of Obsidian send them: their addresses, headers, preflights and habits."""

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import RAW_MODEL, chat_body, chunks_of, elbowroom_with_studio, eventually, split_frames
from obsidian_readers import READERS, Shown, bmo_chatbot, smart_connections, text_generator
from obsidian_requests import COPILOT, DESKTOP, LOOKUP, REQUESTS, PluginRequest, in_web_view, past_web_view
from pair_fixtures import Pair
from serving import Served, parse_frames, text_of
from small_window import ANSWER, WINDOW, history, orders_of, small_window

from elbowroom.demo import Error, Pause, Script, Text, ToolCall, WaitFor
from elbowroom.server.state import Timing

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
Reader = Callable[[Iterable[bytes]], Shown]
WEB_VIEW = in_web_view(**COPILOT)
EACH_REQUEST = pytest.mark.parametrize("request_sent", REQUESTS.values(), ids=REQUESTS)
EACH_READER = pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
FROM_WEB_VIEWS = {name: sent for name, sent in REQUESTS.items() if sent.origin}


async def pieces_of(served: Served, body: dict[str, Any]) -> list[bytes]:
    """Return a stream in the pieces in which a web view of Obsidian gets it."""
    async with served.http.post(served.chat_url, json=body, headers=WEB_VIEW) as response:
        assert response.status == 200, await response.text()
        return [piece async for piece in response.content.iter_any()]


@EACH_REQUEST
async def test_chat(pair: Pair, request_sent: PluginRequest) -> None:
    """Each plugin's request is answered in its form, and its web view may read the answer."""
    served, studio = pair
    studio.enqueue("An answer.")
    async with served.http.post(
        served.url + request_sent.path, json=request_sent.body, headers=request_sent.headers
    ) as response:
        assert response.status == 200, await response.text()
        allowed = response.headers.getall("Access-Control-Allow-Origin", [])
        assert allowed == ([request_sent.origin] if request_sent.origin else [])
        answer = await response.read()
    if request_sent.body["stream"]:
        assert text_of(chunks_of(answer)) == "An answer."
    else:
        assert json.loads(answer)["choices"][0]["message"]["content"] == "An answer."
    sent = studio.chats[0].body
    assert "ferry" in json.dumps(sent["messages"][-1]).lower()
    assert [tool["function"]["name"] for tool in sent.get("tools", [])] == [
        tool["function"]["name"] for tool in request_sent.body.get("tools", [])
    ]
    assert sent.get("stop") != ""


@pytest.mark.parametrize("request_sent", FROM_WEB_VIEWS.values(), ids=FROM_WEB_VIEWS)
async def test_preflight(pair: Pair, request_sent: PluginRequest) -> None:
    """A preflight to whatever address was typed is allowed, with exactly the headers that were asked for."""
    served, _ = pair
    asked = request_sent.preflight
    async with served.http.options(served.url + request_sent.path, headers=asked) as response:
        assert response.status == 204
        assert response.headers.getall("Access-Control-Allow-Origin") == [request_sent.origin]
        assert response.headers.getall("Access-Control-Allow-Headers") == [asked["Access-Control-Request-Headers"]]
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
    async with served.http.post(served.chat_url, json=body, headers=WEB_VIEW) as response:
        assert response.status == 404
        assert response.headers["Access-Control-Allow-Origin"] == DESKTOP


async def test_ping_of_copilot(pair: Pair) -> None:
    """The short request with which Copilot tests a model is one request upstream, cut where it asked."""
    served, studio = pair
    studio.enqueue("One two three four five. " * 20)
    answer = await served.chat("writer", "hello", max_tokens=30, stream=False)
    assert answer["choices"][0]["finish_reason"] == "length"
    assert len(studio.chats) == 1


async def test_short_calls_beside_a_long_chat(tmp_path: Path) -> None:
    """Copilot's calls for a topic and its ping go beside a chat that fills half of the window, and wake no agent."""
    topic = "Generate a concise title (max 5 words) for this conversation. Conversation:\nuser: Which pier?"
    async with small_window(tmp_path, compaction="background = false") as (served, studio):
        await pieces_of(served, {"model": "writer", "messages": history(6), "stream": True})
        for message, limit in ((topic, {}), ("hello", {"max_tokens": 30})):
            answer = await served.chat("writer", message, stream=False, **limit)
            assert answer["choices"][0]["message"]["content"] == ANSWER
            assert [said["role"] for said in studio.chats[-1].body["messages"]] == ["system", "user"]
        assert (studio.chats[0].prompt_tokens or 0) > WINDOW * 0.5
        assert not orders_of(studio)


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


@EACH_READER
async def test_silence_does_not_disturb_a_reader(tmp_path: Path, reader: Reader) -> None:
    """While the model reads a long prompt, what fills the silence is words that say nothing, also for those readers
    that take every line for JSON."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=0.02)) as (served, studio):
        studio.enqueue(Script(Pause(0.1), "One ", Pause(0.1), "two."))
        pieces = await pieces_of(served, chat_body(stream=True))
    assert len(pieces) > 5, "nothing has filled the silence"
    assert reader(pieces) == Shown("One two.", ended=True)


async def test_silence_is_a_comment_elsewhere(tmp_path: Path) -> None:
    """Clients that are no web view of Obsidian get a comment, which is no chunk at all."""
    async with elbowroom_with_studio(tmp_path, timing=Timing(keep_alive=0.02)) as (served, studio):
        studio.enqueue(Script(Pause(0.1), "One."))
        async with served.http.post(served.chat_url, json=chat_body(stream=True), headers=past_web_view()) as response:
            stream = await response.read()
    assert stream.startswith(b": elbowroom\n\n")
    assert len(chunks_of(stream)) < 5


async def test_reader_that_waits_for_done(pair: Pair) -> None:
    """Smart Connections ends on the exact string `data: [DONE]` and puts the tool call together."""
    served, studio = pair
    studio.enqueue(Script(ToolCall("lookup", {"hypotheticals": ["log data: the ferry"]})))
    pieces = await pieces_of(served, chat_body(stream=True, tools=[LOOKUP]))
    assert b"".join(pieces).endswith(b"\n\ndata: [DONE]\n\n")
    shown = smart_connections(pieces)
    assert shown.ended
    assert shown.call["name"] == "lookup"
    assert shown.call["id"]
    assert json.loads(shown.call["arguments"]) == {"hypotheticals": ["log data: the ferry"]}


@EACH_READER
async def test_text_that_looks_like_the_stream_itself(pair: Pair, reader: Reader) -> None:
    """An answer about server-sent events has their marks in its text and arrives whole."""
    served, studio = pair
    answer = 'A line is "data: {}", the last one\n\ndata: 1\n\n: none. data: "x"'
    studio.enqueue(Script(Text(answer, whole=True)))
    assert reader(await pieces_of(served, chat_body(stream=True))) == Shown(answer, ended=True)


async def test_error_in_the_middle(pair: Pair) -> None:
    """An error in a stream is an object with a message, which openai-node raises."""
    served, studio = pair
    studio.enqueue(Script("Half", Pause(0.02), Error("Out of memory.")))
    [error] = [
        frame["error"]
        for frame in map(json.loads, split_frames(b"".join(await pieces_of(served, chat_body(stream=True))))[:-1])
        if "error" in frame
    ]
    assert "Out of memory." in error["message"]


@pytest.mark.parametrize("reader", [bmo_chatbot, smart_connections], ids=["BMO Chatbot", "Smart Connections"])
async def test_error_in_the_middle_is_told_in_words(pair: Pair, reader: Reader) -> None:
    """Plugins that pass over an error show in the text why it ends, and know that it has ended."""
    served, studio = pair
    studio.enqueue(Script("Half", Pause(0.02), Error("Out of memory.")))
    shown = reader(await pieces_of(served, chat_body(stream=True)))
    assert shown.text.startswith("Half\n\n> *elbowroom: ")
    assert "Out of memory." in shown.text
    assert shown.ended


async def test_error_in_the_middle_ends_text_generator(pair: Pair) -> None:
    """Text Generator's own reader takes the error's frame for a chunk and fails there, which ends its answer."""
    served, studio = pair
    studio.enqueue(Script("Half", Pause(0.02), Error("Out of memory.")))
    pieces = await pieces_of(served, chat_body(stream=True))
    with pytest.raises(LookupError):
        text_generator(pieces)


async def test_words_of_an_error_do_not_come_back(pair: Pair) -> None:
    """What was told in the text is not the model's: the next turn goes upstream without it."""
    served, studio = pair
    studio.enqueue(Script("Half", Pause(0.02), Error("Out of memory.")))
    shown = bmo_chatbot(await pieces_of(served, chat_body(stream=True)))
    messages = [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": shown.text.strip()},
        {"role": "user", "content": "Go on."},
    ]
    await pieces_of(served, {"model": "writer", "messages": messages, "stream": True})
    assert [message["content"] for message in studio.chats[-1].body["messages"][-2:]] == ["Half", "Go on."]


async def test_stop_of_a_web_view(pair: Pair) -> None:
    """A plugin whose `fetch` is aborted stops the model."""
    served, studio = pair
    never = asyncio.Event()
    studio.enqueue(Script("Half", WaitFor(never)))
    async with served.http.post(served.chat_url, json=chat_body(stream=True), headers=WEB_VIEW) as response:
        assert await response.content.readany()
    await eventually(lambda: studio.disconnects, "the model goes on for nobody")


@pytest.mark.parametrize("stream", [True, False])
async def test_copilots_older_provider(pair: Pair, stream: bool) -> None:
    """Copilot's provider "LM Studio" asks for responses, after the same preflight, and reads the text and the end."""
    served, studio = pair
    studio.enqueue("An answer.")
    said = [{"type": "message", "role": role, "content": f"For the {role}"} for role in ("system", "user")]
    function = LOOKUP["function"]
    tool = {"type": "function", "name": "lookup", "parameters": function["parameters"], "description": "d"}
    body = {"model": "writer", "stream": stream, "tools": [tool], "text": {"format": {"type": "text"}}, "input": said}
    sent = PluginRequest("/v1/responses", in_web_view(key="default-key", **COPILOT), body)
    async with served.http.options(served.url + sent.path, headers=sent.preflight) as response:
        assert response.status == 204
        asked = sent.preflight["Access-Control-Request-Headers"]
        assert response.headers.getall("Access-Control-Allow-Headers") == [asked]
    async with served.http.post(served.url + sent.path, json=sent.body, headers=sent.headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers.getall("Access-Control-Allow-Origin") == [DESKTOP]
        answer = await response.read()
    whole = parse_frames(answer)[-1]["response"] if stream else json.loads(answer)
    assert whole["status"] == "completed"
    assert whole["output"][-1]["content"][0]["text"] == "An answer."
    assert [tool["function"]["name"] for tool in studio.chats[0].body["tools"]] == ["lookup"]


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v1/images/generations", "/v2/chat"])
async def test_routes_that_are_not_there(pair: Pair, path: str) -> None:
    """A route that does not exist is an error object that names those that do, also in a web view."""
    served, _ = pair
    async with served.http.post(f"{served.url}{path}", json={}, headers=WEB_VIEW) as response:
        assert response.status == 404
        assert response.headers["Access-Control-Allow-Origin"] == DESKTOP
        assert "/v1/chat/completions" in (await response.json())["error"]["message"]
