"""The rules of a streamed answer, over its raw bytes."""

import json
import time
from typing import Any

import pair_fixtures
import pytest
from chatting import (
    MODEL,
    RAW_MODEL,
    chat_body,
    chunks_of,
    delta_frame,
    finish_of,
    function_spec,
    split_frames,
    stream_bytes,
)
from pair_fixtures import Pair
from serving import text_of

from elbowroom.demo import Cut, Error, Pause, Raw, Reasoning, Script, ToolCall

pytestmark = pytest.mark.asyncio(loop_scope="module")
both, pair = pair_fixtures.both, pair_fixtures.pair
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL])


@pytest.mark.fault("proxy in between", "streaming", "no cache, no buffer")
async def test_headers(pair: Pair) -> None:
    """A stream is an event stream that no cache keeps and no proxy buffers."""
    served, _ = pair
    async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
        assert response.status == 200
        assert response.content_type == "text/event-stream"
        assert response.headers["Cache-Control"] == "no-cache"
        assert response.headers["X-Accel-Buffering"] == "no"
        await response.read()


@MODELS
async def test_first_chunk_has_the_role_and_no_other(pair: Pair, model: str) -> None:
    """The first chunk says `assistant` with empty content; no later chunk repeats the role."""
    served, studio = pair
    studio.enqueue("One two three.")
    first, *others = chunks_of(await stream_bytes(served, chat_body(model=model)))
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None},
    ]
    assert others
    assert all("role" not in chunk["choices"][0]["delta"] for chunk in others)


@MODELS
async def test_every_frame_is_one_line_of_json_and_a_blank_line(pair: Pair, model: str) -> None:
    """Each frame is `data: `, one JSON object, a blank line; the last is exactly `data: [DONE]`."""
    served, studio = pair
    studio.enqueue("One\n\ntwo\r\nthree.")
    stream = await stream_bytes(served, chat_body(model=model))
    assert stream.endswith(b"\n\ndata: [DONE]\n\n")
    assert stream.count(b"[DONE]") == 1
    assert b"\r" not in stream
    *frames, _ = split_frames(stream)
    assert all(isinstance(json.loads(frame), dict) for frame in frames)
    assert text_of(chunks_of(stream)) == "One\n\ntwo\r\nthree."


@MODELS
async def test_one_id_model_and_time_over_all_chunks(pair: Pair, model: str) -> None:
    """All chunks share id, the model that the client named, and a time in seconds."""
    served, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), "Yes."))
    began = int(time.time())
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model)))
    [(completion_id, named, created)] = {(chunk["id"], chunk["model"], chunk["created"]) for chunk in chunks}
    assert completion_id.startswith("chatcmpl-")
    assert named == model
    assert began <= created <= time.time()
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}


async def test_two_answers_have_different_ids(pair: Pair) -> None:
    """No two answers share an id."""
    served, _ = pair
    ids = {chunks_of(await stream_bytes(served, chat_body()))[0]["id"] for _ in range(2)}
    assert len(ids) == 2


@MODELS
async def test_every_chunk_has_one_choice_with_content(pair: Pair, model: str) -> None:
    """Naive clients read `choices[0].delta.content` of every chunk: it is there in text, thoughts, calls, finish."""
    served, studio = pair
    studio.enqueue(Script(Reasoning("Hm."), "Yes.", ToolCall("read_note", {"path": "a.md"})))
    body = chat_body(model=model, tools=[function_spec("read_note")])
    for chunk in chunks_of(await stream_bytes(served, body)):
        [choice] = chunk["choices"]
        assert choice["index"] == 0
        assert isinstance(choice["delta"]["content"], str)


@MODELS
async def test_exactly_one_finish(pair: Pair, model: str) -> None:
    """One chunk has a finish_reason, and it is the last one."""
    served, studio = pair
    studio.enqueue("Yes.")
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model)))
    assert finish_of(chunks) == "stop"
    assert chunks[-1]["choices"][0] == {"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}


@MODELS
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter"])
async def test_finish_reason_is_carried(pair: Pair, model: str, reason: str) -> None:
    """The client learns why the model stopped."""
    served, studio = pair
    studio.enqueue(Script("Yes.", finish_reason=reason))
    assert finish_of(chunks_of(await stream_bytes(served, chat_body(model=model)))) == reason


async def test_strange_finish_reason_becomes_stop(pair: Pair) -> None:
    """A reason that OpenAI's clients do not know, or `tool_calls` without a call, is an ordinary end for them."""
    served, studio = pair
    for reason in ("eosFound", "tool_calls"):
        studio.enqueue(Script("Yes.", finish_reason=reason))
        assert finish_of(chunks_of(await stream_bytes(served, chat_body()))) == "stop"


async def test_length_by_max_tokens(pair: Pair) -> None:
    """An answer that the client's own limit ended says so."""
    served, studio = pair
    studio.enqueue("One two three four five six seven eight nine ten.")
    chunks = chunks_of(await stream_bytes(served, chat_body(max_tokens=3)))
    assert finish_of(chunks) == "length"
    assert studio.chats[0].completion_tokens == 3


@MODELS
async def test_one_usage_chunk_if_asked_for(pair: Pair, model: str) -> None:
    """`include_usage` brings one chunk without choices after the finish, with the upstream's true numbers."""
    served, studio = pair
    studio.enqueue("One two three.")
    chunks = chunks_of(await stream_bytes(served, chat_body(model=model, stream_options={"include_usage": True})))
    assert [chunk for chunk in chunks if "usage" in chunk] == [chunks[-1]]
    assert chunks[-1]["choices"] == []
    [sent] = studio.chats
    assert sent.prompt_tokens
    assert sent.completion_tokens
    assert chunks[-1]["usage"] == {
        "prompt_tokens": sent.prompt_tokens,
        "completion_tokens": sent.completion_tokens,
        "total_tokens": sent.prompt_tokens + sent.completion_tokens,
    }


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
async def test_no_usage_if_not_asked_for(pair: Pair, options: Any) -> None:
    """A client that did not ask for usage gets no chunk without choices, and no usage anywhere."""
    served, studio = pair
    studio.enqueue("Yes.")
    chunks = chunks_of(await stream_bytes(served, chat_body(stream_options=options)))
    assert all("usage" not in chunk and chunk["choices"] for chunk in chunks)


async def test_open_webui_gets_its_usage_in_the_finish_chunk(pair: Pair) -> None:
    """Open WebUI, known by its headers, adds usage chunks up: it gets one, in the finish chunk."""
    served, studio = pair
    studio.enqueue("Yes.")
    chunks = chunks_of(await stream_bytes(served, chat_body(), **{"X-OpenWebUI-Chat-Id": "b20804b6"}))
    assert [chunk for chunk in chunks if "usage" in chunk] == [chunks[-1]]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["prompt_tokens"] == studio.chats[0].prompt_tokens


async def test_open_webui_that_asks_for_usage_gets_it_once(pair: Pair) -> None:
    """Where Open WebUI asks for usage, the chunk of its own is the only one."""
    served, studio = pair
    studio.enqueue("Yes.")
    body = chat_body(stream_options={"include_usage": True})
    chunks = chunks_of(await stream_bytes(served, body, **{"x-openwebui-user-id": "3289c33a"}))
    assert [chunk["choices"] for chunk in chunks if "usage" in chunk] == [[]]


@pytest.mark.fault("thoughts under another name", "streaming", "sent under both names")
@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_under_both_names(pair: Pair, field: str) -> None:
    """Thoughts go to the client apart from the answer, under both names, whichever the model's server uses."""
    served, studio = pair
    studio.enqueue(Script(Raw(delta_frame({field: "Let me "}) + delta_frame({field: "see."})), "Yes."))
    chunks = chunks_of(await stream_bytes(served, chat_body()))
    for name in ("reasoning_content", "reasoning"):
        thoughts = [chunk["choices"][0]["delta"].get(name, "") for chunk in chunks]
        assert "".join(thoughts) == "Let me see."
    assert text_of(chunks) == "Yes."


async def test_reasoning_in_both_fields_is_shown_once(pair: Pair) -> None:
    """A server that sends each thought under both names does not make the client see it twice."""
    served, studio = pair
    both = {"reasoning_content": "Hm.", "reasoning": "Hm."}
    studio.enqueue(Script(Raw(delta_frame(both)), "Yes."))
    stream = await stream_bytes(served, chat_body())
    assert stream.count(b'"reasoning":"Hm."') == stream.count(b'"reasoning_content":"Hm."') == 1


async def test_logprobs(pair: Pair) -> None:
    """Log probabilities come with the text they belong to."""
    served, studio = pair
    logprobs = {"content": [{"token": "Yes", "logprob": -0.25, "bytes": None, "top_logprobs": []}]}
    choice = {"index": 0, "delta": {"content": "Yes"}, "logprobs": logprobs, "finish_reason": None}
    studio.enqueue(Script(Raw(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"), "."))
    chunks = chunks_of(await stream_bytes(served, chat_body(logprobs=True, top_logprobs=1)))
    assert [c["choices"][0]["logprobs"] for c in chunks if c["choices"][0].get("logprobs")] == [logprobs]
    assert studio.chats[0].body["logprobs"] is True
    assert studio.chats[0].body["top_logprobs"] == 1


@pytest.mark.fault("fields that nobody knows", "streaming", "fingerprint and timings where it is managed")
@MODELS
async def test_what_the_engine_says_of_itself(pair: Pair, model: str) -> None:
    """Its fingerprint and its timings come with the end of an answer, streamed and whole."""
    served, studio = pair
    facts = {"system_fingerprint": MODEL, "timings": {"predicted_per_second": 31.5}}  # the simulator's fingerprint
    end = Raw(delta_frame({"content": ""}, "stop", timings=facts["timings"]))
    studio.enqueue(Script("Yes.", end), Script("Yes.", end))
    finish = next(c for c in chunks_of(await stream_bytes(served, chat_body(model=model))) if c.get("timings"))
    whole = await served.chat(model)
    for answer in (finish, whole):
        assert {name: answer[name] for name in facts} == facts


async def test_numbers_that_json_does_not_have_become_null(pair: Pair) -> None:
    """An impossible token's log probability of minus infinity does not make the frame unreadable in a browser."""
    served, studio = pair
    choice = '{"index":0,"delta":{"content":"Yes"},"logprobs":{"content":[{"token":"Yes","logprob":-Infinity}]}}'
    studio.enqueue(Script(Raw(b'data: {"choices":[' + choice.encode() + b"]}\n\n"), usage={"prompt_tokens": 3}))
    stream = await stream_bytes(served, chat_body(logprobs=True))
    assert b"Infinity" not in stream
    assert b'"logprob":null' in stream


async def test_what_upstreams_must_not_push_into_a_browser(pair: Pair) -> None:
    """`event`, `selected_model_id`, ids and unknown fields of the upstream's chunks never reach the client."""
    served, studio = pair
    event = {"type": "notification", "data": {"content": "pwned"}}
    frame = delta_frame({"content": "Yes."}, event=event, selected_model_id="evil", id="their-id", weird=1)
    for model in ("writer", RAW_MODEL):
        studio.enqueue(Script(Raw(frame)))
        stream = await stream_bytes(served, chat_body(model=model))
        for word in (b"pwned", b"evil", b"their-id", b"weird", b"event"):
            assert word not in stream


@pytest.mark.fault("error in the stream", "streaming", "words kept, error frame")
@MODELS
@pytest.mark.parametrize(
    "failure",
    [
        Error("The model has crashed without additional information."),
        Raw(b'data: {"error": "Model is unloaded."}\n\n'),
        Raw(b'data: {"object": "error", "message": "out of memory", "code": 500}\n\n'),
        Raw(b"data: {broken\n\n"),
        Raw(b"data: [1, 2]\n\n"),
        Raw(delta_frame({"content": ""}, "error", error={"message": "it broke", "code": 502})),
        Cut(),
    ],
    ids=["event", "string", "object", "broken json", "list", "beside a choice", "cut"],
)
async def test_failure_after_text_is_one_error_frame(pair: Pair, model: str, failure: Any) -> None:
    """A stream that breaks keeps its text and ends with an error object: no finish, no [DONE], no bare close."""
    served, studio = pair
    # Of a connection that is reset, the system drops what nobody has read yet.
    studio.enqueue(Script("Half an answer", Pause(0.3 if isinstance(failure, Cut) else 0.02), failure))
    frames = [json.loads(frame) for frame in split_frames(await stream_bytes(served, chat_body(model=model)))]
    *chunks, last = frames
    assert text_of(chunks) == "Half an answer"
    assert set(last) == {"error"}
    assert set(last["error"]) == {"message", "type", "param", "code"}
    assert last["error"]["message"]
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in chunks)


async def test_text_that_arrives_together_with_a_failure_is_kept(pair: Pair) -> None:
    """Text is kept also where it reaches elbowroom in the same read as the error behind it."""
    served, studio = pair
    studio.enqueue(Script(Raw(delta_frame({"content": "Half"}) + b'data: {"error": "Model is unloaded."}\n\n')))
    async with served.http.post(served.chat_url, json=chat_body(stream=True)) as response:
        chunk, failure = [json.loads(frame) for frame in split_frames(await response.read())][-2:]
    assert text_of([chunk]) == "Half"
    assert "unloaded" in failure["error"]["message"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ({"finish_reason": None}, "upstream_cut"),
        ({"finish_reason": None, "done": False}, "upstream_cut"),
        ({"finish_reason": "error"}, "upstream_error"),
    ],
)
async def test_end_that_is_none_is_an_error_frame(pair: Pair, ending: dict[str, Any], code: str) -> None:
    """An answer that stops without saying so, or says that it failed, is not passed off as complete."""
    served, studio = pair
    studio.enqueue(Script("Half", **ending))
    *_, last = split_frames(await stream_bytes(served, chat_body()))
    assert json.loads(last)["error"]["code"] == code
