"""Failures before the first word: a real status, an OpenAI error object, words that help."""

import json
import time
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, chat_body, elbowroom_with_studio, finish_of, split_frames
from pair_fixtures import Pair
from serving import Served, serve, settings_for

from elbowroom.demo import Cut, Error, Overflow, Raw, Reply, Script, SimulatedLMStudio, SimulatedModel

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
STREAMED = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
DEAD = "http://127.0.0.1:9"


async def refused(served: Served, body: Any) -> tuple[int, dict[str, Any]]:
    """Return status and error object of a request that fails."""
    headers = {"Content-Type": "application/json"}
    async with served.http.post(served.chat_url, data=json.dumps(body), headers=headers) as response:
        assert response.content_type == "application/json"
        answer = await response.json()
        assert set(answer) == {"error"}
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        return response.status, answer["error"]


@pytest.mark.fault("malformed body", "first", "400 that names the field")
@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"messages": None}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [123]}, "messages[0]"),
        ({"messages": [{}]}, "messages[0].role"),
        ({"messages": [{"role": 7, "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "martian", "content": "a"}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": 123}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [7]}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"model": None}, "model"),
        ({"model": 7}, "model"),
        ({"model": ""}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": "yes"}, "stream_options"),
        ({"n": 2}, "n"),
        ({"tools": "x"}, "tools"),
        ({"tools": [7]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function"),
        ({"tools": [{"function": {"name": 7}}]}, "tools[0].function"),
    ],
)
async def test_malformed_requests(pair: Pair, change: dict[str, Any], param: str) -> None:
    """A request that makes no sense is a 400 that names the field; nothing goes upstream."""
    served, studio = pair
    status, error = await refused(served, {**chat_body(), **change})
    assert status == 400
    assert error["type"] == "invalid_request_error"
    assert error["param"] == param
    assert studio.chats == []


@pytest.mark.parametrize("body", [[], "text", 7, None, True])
async def test_body_that_is_no_object(pair: Pair, body: Any) -> None:
    """JSON that is no object is a 400."""
    status, error = await refused(pair[0], body)
    assert (status, error["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "messages",
    [
        [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
        [{"role": "user", "content": None}],
        [{"role": "assistant"}, {"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
    ],
)
async def test_odd_but_legal_messages_pass(pair: Pair, messages: list[dict[str, Any]]) -> None:
    """What real clients send is the model's to judge, not ours."""
    served, studio = pair
    async with served.http.post(served.chat_url, json={"model": RAW_MODEL, "messages": messages}) as response:
        assert response.status == 200, await response.text()
    assert studio.chats[0].body["messages"] == messages


async def test_two_answers_at_the_end_are_one(pair: Pair) -> None:
    """An engine goes on with one answer and refuses two in a row, so they come to it as one."""
    served, studio = pair
    messages = [{"role": "assistant", "content": text} for text in ("a", "b")]
    async with served.http.post(served.chat_url, json={"model": RAW_MODEL, "messages": messages}) as response:
        assert response.status == 200, await response.text()
    assert studio.chats[0].body["messages"] == [{"role": "assistant", "content": "a\n\nb"}]


@STREAMED
@pytest.mark.parametrize("model", ["nobody", "lmstudio/nobody", "other/nobody"])
async def test_wrong_model(pair: Pair, model: str, stream: bool) -> None:
    """A model that is not there is a 404 with the list of those that are."""
    status, error = await refused(pair[0], chat_body(model=model, stream=stream))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert MODEL in error["message"]
    assert pair[1].chats == []


@STREAMED
@pytest.mark.parametrize("model", ["writer", RAW_MODEL, MODEL])
async def test_upstream_down(tmp_path: Path, model: str, stream: bool) -> None:
    """While LM Studio is down: a 503 within two seconds that says what to start; it goes on when it comes back."""
    async with elbowroom_with_studio(tmp_path) as (served, studio):
        await studio.stop()
        began = time.monotonic()
        status, error = await refused(served, chat_body(model=model, stream=stream))
        assert time.monotonic() - began < 2
        assert (status, error["code"]) == (503, "upstream_unreachable")
        assert "LM Studio does not answer" in error["message"]
        assert "Start its server" in error["message"]
        assert studio.base_url in error["message"]
        await studio.start()
        assert (await served.chat(model))["choices"]


async def test_one_provider_of_two_down(tmp_path: Path) -> None:
    """A wrong name is a 404 with what there is as long as any provider answers."""
    async with SimulatedLMStudio([SimulatedModel(MODEL, loaded_context_length=4096)]) as studio:
        second = f'[[providers]]\nid = "off"\nkind = "ollama"\nbase_url = "{DEAD}"\n'
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT + second)) as served:
            status, error = await refused(served, chat_body(model="nobody"))
            assert (status, error["code"]) == (404, "model_not_found")
            assert MODEL in error["message"]


@STREAMED
@pytest.mark.parametrize(
    ("reply", "status", "code", "words"),
    [
        (Reply(500, "<html><h1>Internal Server Error</h1></html>"), 502, "upstream_error", "500"),
        (Reply(400, {"error": "Something is odd."}), 400, "upstream_rejected", "Something is odd."),
        (Reply(422, {"error": {"message": "No.", "code": "x"}}), 422, "x", "No."),
        (Reply(401, {"error": {"message": "A token is needed."}}), 502, "upstream_error", "api_key"),
        (Reply(302, "", {"Location": "http://example.test/"}), 502, "upstream_error", "redirects"),
        (Reply(200, "<html>A login page</html>", {"Content-Type": "text/html"}), 502, "upstream_error", "login"),
        (Reply(200, {"error": "Unexpected endpoint or method."}), 502, "upstream_error", "Unexpected endpoint"),
        (Reply(404, {"error": "gone"}), 404, "upstream_rejected", "gone"),
    ],
)
async def test_upstream_refusals(pair: Pair, reply: Reply, status: int, code: str, words: str, stream: bool) -> None:
    """What the upstream says instead of an answer becomes a status and its words."""
    served, studio = pair
    studio.enqueue(Script(reply))
    got, error = await refused(served, chat_body(stream=stream))
    assert (got, error["code"]) == (status, code)
    assert words in error["message"]
    assert len(studio.chats) == 1


@pytest.mark.fault("busy engine", "first", "its status and Retry-After")
@pytest.mark.parametrize("status", [429, 503])
async def test_busy_upstream(pair: Pair, status: int) -> None:
    """A busy upstream's status and Retry-After reach the client, which knows best when to come again."""
    served, studio = pair
    studio.enqueue(Script(Reply(status, {"error": "Queue full."}, {"Retry-After": "7"})))
    async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
        assert response.status == status
        assert response.headers["Retry-After"] == "7"
        assert (await response.json())["error"]["code"] == "upstream_busy"


@pytest.mark.fault("overflow refused", "first", "else 400 with the numbers")
@STREAMED
@pytest.mark.parametrize("as_event", [True, False])
async def test_prompt_that_does_not_fit(tmp_path: Path, stream: bool, as_event: bool) -> None:
    """An overflow before the first word is a 400 `context_length_exceeded` with the numbers, however it was told."""
    model = SimulatedModel(MODEL, loaded_context_length=256)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, studio):
        studio.overflow = Overflow(prompt="C", streamed="event" if as_event else "status")
        status, error = await refused(served, chat_body("word " * 400, stream=stream))
        assert status == 400
        assert (error["type"], error["param"]) == ("invalid_request_error", "messages")
        assert error["code"] == "context_length_exceeded"
        assert "256" in error["message"]


@pytest.mark.fault("overflow as an empty stream", "first", "else 400 with the numbers")
async def test_empty_answer_at_the_edge_of_the_window(tmp_path: Path) -> None:
    """An empty answer to a prompt that fills the window is an overflow, not an empty answer."""
    model = SimulatedModel(MODEL, loaded_context_length=256)
    async with elbowroom_with_studio(tmp_path, model=model) as (served, studio):
        studio.overflow = Overflow(prompt="empty")
        status, error = await refused(served, chat_body("word " * 400, stream=True))
        assert (status, error["code"]) == (400, "context_length_exceeded")


@pytest.mark.fault("empty answer", "first", "an error that says so")
@STREAMED
@pytest.mark.parametrize("script", [Script(), Script(usage=None), Script(Raw(b": only a comment\n\n"))])
async def test_empty_answer(pair: Pair, script: Script, stream: bool) -> None:
    """An answer without a word in it is an error that says so, not a success."""
    served, studio = pair
    studio.enqueue(script)
    status, error = await refused(served, chat_body(stream=stream))
    assert (status, error["code"]) == (502, "upstream_empty")


@pytest.mark.fault("error in the stream", "first", "a status")
@STREAMED
@pytest.mark.parametrize("failure", [Error("It crashed."), Cut()])
async def test_failure_before_the_first_word(pair: Pair, failure: Any, stream: bool) -> None:
    """A stream upstream that fails before it said anything is a status for the client, not a stream."""
    served, studio = pair
    studio.enqueue(Script(failure), repeat=True)
    status, _ = await refused(served, chat_body(stream=stream))
    assert status == 502


async def test_error_is_sent_once_and_the_server_goes_on(pair: Pair) -> None:
    """After a failed answer the next request on the same connection works."""
    served, studio = pair
    studio.enqueue(Script("Half", Error("It crashed.")), "Whole.")
    async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
        assert (await response.read()).count(b'"error"') == 1
    async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
        *frames, done = split_frames(await response.read())
        assert done == b"[DONE]"
        assert finish_of([json.loads(frame) for frame in frames]) == "stop"


async def test_model_that_is_not_loaded_and_cannot_be(pair: Pair) -> None:
    """Without just-in-time loading an unloaded model is a 503 that says how to load it."""
    served, studio = pair
    studio.unload(MODEL)
    studio.just_in_time = False
    status, error = await refused(served, chat_body(stream=True))
    assert status == 503
    assert "lms load" in error["message"] or "Load" in error["message"]
