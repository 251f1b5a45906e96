"""The simulated LM Studio's chat route, driven with plain HTTP and with the real OpenAI client."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest

from elbowroom.demo import (
    Cut,
    Error,
    Pause,
    Raw,
    Reasoning,
    Reply,
    Script,
    SimulatedLMStudio,
    SimulatedModel,
    Text,
    ToolCall,
    WaitFor,
)

MODEL = SimulatedModel("qwen/qwen3-8b", loaded_context_length=4096)
CHAT = "/v1/chat/completions"


def ask(text: str = "Hello", **more: Any) -> dict[str, Any]:
    """Return the body of a chat request with one user message."""
    return {"model": MODEL.key, "messages": [{"role": "user", "content": text}], **more}


def chunks(stream: str) -> list[dict[str, Any]]:
    """Return the JSON of every data frame before [DONE]."""
    frames = [line.removeprefix("data: ") for line in stream.split("\n") if line.startswith("data: {")]
    return [json.loads(frame) for frame in frames]


def client(studio: SimulatedLMStudio) -> openai.AsyncOpenAI:
    """Return the real client, without its retries."""
    return openai.AsyncOpenAI(base_url=studio.base_url + "/v1", api_key="lm-studio", max_retries=0)


async def post(studio: SimulatedLMStudio, body: Any) -> tuple[int, str]:
    """Return the status and the text of the answer to a chat request."""
    async with (
        aiohttp.ClientSession(studio.base_url) as http,
        http.post(CHAT, json=body) as response,
    ):
        return response.status, await response.text()


async def read_into(received: bytearray, http: aiohttp.ClientSession, body: Any) -> None:
    """Collect the bytes of an answer as they come, until it ends or breaks off."""
    async with http.post(CHAT, json=body) as response:
        async for data in response.content.iter_any():
            received += data


async def test_stream_has_the_frames_of_lm_studio() -> None:
    """Every delta repeats the role, the finish is empty, usage has its own chunk, then [DONE] comes."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue(Script(Reasoning("le"), "Hi"))
        status, text = await post(studio, ask(stream=True, stream_options={"include_usage": True}))
    first, *_, last = chunks(text)
    head = f'"object":"chat.completion.chunk","created":{first["created"]},"model":"qwen/qwen3-8b",'
    head = f'data: {{"id":"{first["id"]}",{head}"system_fingerprint":"qwen/qwen3-8b",'
    usage = json.dumps(last["usage"], separators=(",", ":"))
    assert status == 200
    assert text.split("\n\n") == [
        head + '"choices":[{"index":0,"delta":{"role":"assistant","reasoning_content":"le"},'
        '"logprobs":null,"finish_reason":null}]}',
        head + '"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi"},'
        '"logprobs":null,"finish_reason":null}]}',
        head + '"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop"}]}',
        head + f'"choices":[],"usage":{usage}}}',
        "data: [DONE]",
        "",
    ]
    assert list(last["usage"]) == ["prompt_tokens", "completion_tokens", "total_tokens"]


async def test_usage_comes_only_when_asked_for() -> None:
    """Without include_usage no chunk has a usage; with it the numbers are the simulator's own counts."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue("one two", "one two")
        _, without = await post(studio, ask(stream=True))
        _, having = await post(studio, ask(stream=True, stream_options={"include_usage": True}))
        prompt_tokens = studio.tokenizer.count_tokens(ask()["messages"], None)
    assert not any("usage" in chunk for chunk in chunks(without))
    assert chunks(having)[-1]["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 2,
        "total_tokens": prompt_tokens + 2,
    }


async def test_whole_answer_has_the_shape_of_lm_studio() -> None:
    """Keys and order of the captured answer, reasoning tokens counted among the completion's."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue(Script(Reasoning("hm hm"), "Hello"))
        _, text = await post(studio, ask())
    answer = json.loads(text)
    assert list(answer) == [
        "id",
        "object",
        "created",
        "model",
        "choices",
        "usage",
        "stats",
        "system_fingerprint",
    ]
    assert answer["choices"] == [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": "Hello",
                "reasoning_content": "hm hm",
                "tool_calls": [],
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert answer["usage"]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert answer["usage"]["completion_tokens"] == 3
    assert answer["stats"] == {}
    assert answer["system_fingerprint"] == "qwen/qwen3-8b"


async def test_reasoning_field_is_the_models() -> None:
    """gpt-oss sends its thoughts in `reasoning`."""
    model = SimulatedModel(
        "openai/gpt-oss-20b", reasoning=True, reasoning_field="reasoning", loaded_context_length=4096
    )
    async with SimulatedLMStudio([model]) as studio:
        studio.enqueue(Script(Reasoning("hm"), "Hi"))
        _, text = await post(studio, ask(stream=True))
    assert chunks(text)[0]["choices"][0]["delta"] == {"role": "assistant", "reasoning": "hm"}


async def test_tool_call_deltas_have_the_form_of_lm_studio() -> None:
    """The first has id and name and no arguments, later ones null for both; ids restart every time."""
    async with SimulatedLMStudio([MODEL]) as studio:
        call = ToolCall("vault.read", pieces=['{"path":', ' "a.md"}'])
        studio.enqueue(Script(call, ToolCall("now")), Script(ToolCall("now", "{}")))
        _, text = await post(studio, ask(stream=True))
        _, whole = await post(studio, ask())
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks(text)]
    opened = {
        "index": 0,
        "id": "0",
        "type": "function",
        "function": {"name": "vault_read", "arguments": ""},
    }
    assert deltas[0] == {"role": "assistant", "tool_calls": [opened]}
    assert deltas[1]["tool_calls"] == [
        {
            "index": 0,
            "id": None,
            "type": "function",
            "function": {"name": None, "arguments": '{"path":'},
        }
    ]
    assert deltas[3]["tool_calls"][0]["index"] == 1
    assert deltas[3]["tool_calls"][0]["id"] == "1"
    assert chunks(text)[-1]["choices"][0]["finish_reason"] == "tool_calls"
    choice = json.loads(whole)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"] == [
        {"type": "function", "id": "0", "function": {"name": "now", "arguments": "{}"}}
    ]


async def test_openai_client_does_a_tools_round_trip_with_the_default_answers() -> None:
    """A tool asked for by name is called; its result comes back in the answer; nothing had to be scripted."""
    tool: Any = {
        "type": "function",
        "function": {
            "name": "read_note",
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
        },
    }
    messages: list[Any] = [{"role": "user", "content": "Use read_note on 'milk.md'"}]
    async with SimulatedLMStudio([MODEL]) as studio, client(studio) as api:
        answer = await api.chat.completions.create(model=MODEL.key, messages=messages, tools=[tool])
        message = answer.choices[0].message
        assert message.tool_calls is not None
        messages += [
            message.model_dump(),
            {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Buy two bottles"},
        ]
        stream = await api.chat.completions.create(model=MODEL.key, messages=messages, tools=[tool], stream=True)
        text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert "Buy two bottles" in text
    assert "simulated" in text


async def test_text_comes_token_by_token_or_whole() -> None:
    """One delta a token of the simulator's tokenizer, one delta in all where the script says so."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue(Script("one two three", Text(" four five", whole=True)))
        _, text = await post(studio, ask(stream=True))
    pieces = [chunk["choices"][0]["delta"].get("content") for chunk in chunks(text)]
    assert pieces == ["one", " two", " three", " four five", None]
    assert studio.chats[0].completion_tokens == 5


async def test_max_tokens_ends_the_answer_with_length() -> None:
    """Not a token more than asked for, and the reason is told."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue("one two three four", "one two three four")
        _, text = await post(studio, ask(stream=True, max_tokens=2))
        _, whole = await post(studio, ask(max_tokens=4))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks(text)] == [None, None, "length"]
    assert json.loads(whole)["choices"][0]["finish_reason"] == "stop"


async def test_stop_string_ends_the_answer() -> None:
    """The stop string itself is not sent."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue("one two three")
        _, whole = await post(studio, ask(stop=["three"]))
    assert json.loads(whole)["choices"][0]["message"]["content"] == "one two "


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"response_format": {"type": "json_object"}},
            "'response_format.type' must be 'json_schema' or 'text'",
        ),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            "Invalid tool_choice type: 'object'. Supported string values: none, auto, required",
        ),
    ],
)
async def test_refused_parameters_get_a_bare_string(more: dict[str, Any], message: str) -> None:
    """Status 400, `error` is a string; the OpenAI client shows the text only in its body."""
    async with SimulatedLMStudio([MODEL]) as studio, client(studio) as api:
        assert await post(studio, ask(**more)) == (400, json.dumps({"error": message}))
        with pytest.raises(openai.BadRequestError) as refusal:
            await api.chat.completions.create(**ask(**more))
    assert refusal.value.response.json() == {"error": message}


@pytest.mark.parametrize("body", ["no object", {"model": "x"}, {"messages": []}, {"messages": ["hi"]}])
async def test_bodies_that_are_no_chat_are_refused(body: Any) -> None:
    """They get status 400 and a string, never an internal error."""
    async with SimulatedLMStudio([MODEL]) as studio:
        status, text = await post(studio, body)
    assert status == 400
    assert isinstance(json.loads(text)["error"], str)


async def test_template_that_refuses_the_messages_is_an_error_400() -> None:
    """A counter that raises ValueError stands for a chat template that does."""

    def count(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> int:
        raise ValueError("Conversation roles must alternate")

    async with SimulatedLMStudio([MODEL], count_tokens=count) as studio:
        status, text = await post(studio, ask(stream=True))
    assert status == 400
    assert "Conversation roles must alternate" in json.loads(text)["error"]


async def test_image_needs_a_vision_model() -> None:
    """A text model refuses it; a vision model answers that it came."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, image]}]
    seeing = SimulatedModel("gemma-3-4b-it", type="vlm", loaded_context_length=4096)
    async with SimulatedLMStudio([MODEL, seeing]) as studio:
        refused = await post(studio, {"model": MODEL.key, "messages": messages})
        status, text = await post(studio, {"model": seeing.key, "messages": messages})
    assert refused == (
        400,
        json.dumps({"error": "Model does not support images. Please use a model that does."}),
    )
    assert status == 200
    assert "image/png" in json.loads(text)["choices"][0]["message"]["content"]


async def test_counter_and_splitter_from_outside_are_used() -> None:
    """Usage and pace follow the functions given, not the simulator's own tokenizer."""
    async with SimulatedLMStudio([MODEL], count_tokens=lambda messages, tools: 77, split_tokens=list) as studio:
        studio.enqueue("abc")
        _, whole = await post(studio, ask())
    usage = json.loads(whole)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (77, 3)


async def test_scripts_are_used_in_order_then_the_hook_then_the_default() -> None:
    """A conditional script waits for its request; the hook sees the body; afterwards the model speaks."""
    hooked: list[Any] = []

    def hook(body: dict[str, Any]) -> str | None:
        hooked.append(body["messages"][-1]["content"])
        return "hook" if len(hooked) == 1 else None

    async with SimulatedLMStudio([MODEL], on_request=hook) as studio:
        studio.enqueue("summary", when=lambda body: body["messages"][-1]["content"] == "Sum up")
        studio.enqueue("first")
        answers = [
            json.loads((await post(studio, ask(text)))[1])["choices"][0]["message"]["content"]
            for text in ("Hello", "Sum up", "Hello", "Hello")
        ]
    assert answers[:3] == ["first", "summary", "hook"]
    assert "simulated" in answers[3]
    assert hooked == ["Hello", "Hello"]


async def test_reply_is_sent_as_it_is() -> None:
    """Any status, body and header, JSON or not, streamed request or not; the hook may give one too."""
    async with SimulatedLMStudio([MODEL], on_request=lambda body: Script(Reply(502, b"\xff"))) as studio:
        studio.enqueue(Script(Reply(429, {"error": "busy"}, {"Retry-After": "7"})), Script(Reply(500, "<html>")))
        async with aiohttp.ClientSession(studio.base_url) as http:
            async with http.post(CHAT, json=ask(stream=True)) as response:
                assert (response.status, response.headers["Retry-After"]) == (429, "7")
                assert await response.json() == {"error": "busy"}
            async with http.post(CHAT, json=ask()) as response:
                assert (response.status, await response.text()) == (500, "<html>")
            async with http.post(CHAT, data=b"not json") as response:
                assert response.status == 400
            async with http.post(CHAT, json=ask()) as response:
                assert (response.status, await response.read()) == (502, b"\xff")


async def test_error_in_mid_stream_is_an_event_without_done() -> None:
    """The text before it arrives; the OpenAI client raises with the message."""
    async with SimulatedLMStudio([MODEL]) as studio, client(studio) as api:
        studio.enqueue(*[Script("Hello", Error("Channel Error"))] * 3)
        _, text = await post(studio, ask(stream=True))
        assert text.endswith('event: error\ndata: {"error":{"message":"Channel Error"},"message":"Channel Error"}\n\n')
        assert "[DONE]" not in text
        assert await post(studio, ask()) == (400, json.dumps({"error": "Channel Error"}))
        stream = await api.chat.completions.create(**ask(stream=True))
        assert (await anext(stream)).choices[0].delta.content == "Hello"
        with pytest.raises(openai.APIError, match="Channel Error"):
            await anext(stream)


@pytest.mark.parametrize("stream", [True, False])
async def test_cut_closes_the_socket(stream: bool) -> None:
    """What came before it arrives, the response never ends properly, and nobody is blamed for leaving."""
    async with SimulatedLMStudio([MODEL]) as studio, aiohttp.ClientSession(studio.base_url) as http:
        studio.enqueue(Script("Hello", Cut(), " never"))
        received = bytearray()
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
            await read_into(received, http, ask(stream=stream))
        await studio.wait_until(lambda: not studio.open_requests)
    assert (b"Hello" in received) is stream
    assert b"never" not in received
    assert studio.chats[0].phase == "cut"
    assert studio.disconnects == []


async def test_cut_after_bytes_cuts_there() -> None:
    """Exactly so many bytes of the body arrive."""
    async with SimulatedLMStudio([MODEL]) as studio, aiohttp.ClientSession(studio.base_url) as http:
        studio.enqueue(Script("one two three", cut_after=300))
        received = bytearray()
        with pytest.raises(aiohttp.ClientPayloadError):
            await read_into(received, http, ask(stream=True))
    assert len(received) == 300


async def test_endings_are_the_scripts() -> None:
    """No finish reason, another one, no [DONE], no usage or a wrong one, raw bytes: as written."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue(
            Script("a", finish_reason=None, done=False, usage=None),
            Script("a", Raw(b": comment\n\n"), finish_reason="weird", usage={"prompt_tokens": 5}),
            Script("a", usage=None),
        )
        body = ask(stream=True, stream_options={"include_usage": True})
        _, bare = await post(studio, body)
        _, odd = await post(studio, body)
        _, whole = await post(studio, ask())
    assert len(chunks(bare)) == 1
    assert "[DONE]" not in bare
    assert "\n\n: comment\n\n" in odd
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks(odd)[:2]] == [None, "weird"]
    assert chunks(odd)[2]["usage"] == {"prompt_tokens": 5}
    assert "usage" not in json.loads(whole)


async def test_waiting_and_pausing_hold_the_stream() -> None:
    """What comes after an event arrives only when the test sets it, and a pause takes its time."""
    gate = asyncio.Event()
    async with SimulatedLMStudio([MODEL]) as studio, client(studio) as api:
        studio.enqueue(Script("before", WaitFor(gate), Pause(0.05), "after"))
        stream = await api.chat.completions.create(**ask(stream=True))
        assert (await anext(stream)).choices[0].delta.content == "before"
        assert studio.open_requests == 1
        gate.set()
        opened = asyncio.get_running_loop().time()
        assert (await anext(stream)).choices[0].delta.content == "after"
        assert asyncio.get_running_loop().time() - opened >= 0.04
        await stream.close()


async def test_stream_opens_before_the_prompt_is_read() -> None:
    """Status and headers come at once; not a byte follows while the prompt is being read."""
    async with SimulatedLMStudio([MODEL], prefill_tokens_per_second=10) as studio:
        async with (
            aiohttp.ClientSession(studio.base_url) as http,
            http.post(CHAT, json=ask("word " * 1000, stream=True)) as response,
        ):
            assert response.status == 200
            assert response.headers["Content-Type"] == "text/event-stream"
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await response.content.readany()
        assert studio.chats[0].phase == "prefill"


async def test_pace_is_kept() -> None:
    """Twenty tokens at a hundred a second take no less than a fifth of a second."""
    async with SimulatedLMStudio([MODEL], tokens_per_second=100) as studio:
        studio.enqueue(" go" * 20)
        await post(studio, ask(stream=True))
    finished_at, received_at = studio.chats[0].finished_at, studio.chats[0].received_at
    assert finished_at is not None
    assert finished_at - received_at >= 0.19


async def test_requests_are_recorded_whole() -> None:
    """Method, path, headers, bytes, parsed body, times and what the model made of it."""
    async with SimulatedLMStudio([MODEL]) as studio, aiohttp.ClientSession(studio.base_url) as http:
        data = json.dumps(ask("Grüße")).encode()
        async with http.post(CHAT, data=data, headers={"X-Trace": "7"}) as response:
            await response.read()
    record = studio.requests[0]
    assert (record.method, record.path, record.status, record.phase) == ("POST", CHAT, 200, "done")
    assert record.headers["x-trace"] == "7"
    assert (record.raw, record.body) == (data, ask("Grüße"))
    assert record.fitted
    assert record.prompt_tokens == record.counted_tokens
    assert record.finished_at is not None
    assert record.finished_at >= record.received_at
    assert (record.instance_id, record.window) == (MODEL.key, 4096)


async def test_answers_have_ids_of_their_own() -> None:
    """No two answers share an id; the form is that of LM Studio."""
    async with SimulatedLMStudio([MODEL]) as studio:
        ids = {json.loads((await post(studio, ask()))[1])["id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(one.startswith("chatcmpl-") for one in ids)
