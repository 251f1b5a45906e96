"""The simulated LM Studio's chat route, driven with plain HTTP and with the real OpenAI client."""

import asyncio
import json
from typing import Any

import aiohttp
import openai
import pytest

from elbowroom.demo import (
    Error,
    Reasoning,
    Script,
    SimulatedLMStudio,
    SimulatedModel,
    ToolCall,
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


async def test_max_tokens_ends_the_answer_with_length() -> None:
    """Not a token more than asked for, and the reason is told."""
    async with SimulatedLMStudio([MODEL]) as studio:
        studio.enqueue("one two three four", "one two three four")
        _, text = await post(studio, ask(stream=True, max_tokens=2))
        _, whole = await post(studio, ask(max_tokens=4))
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks(text)] == [None, None, "length"]
    assert json.loads(whole)["choices"][0]["finish_reason"] == "stop"


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
        ({"stop": 5}, "'stop' must be a string or an array of strings"),
        ({"stop": [1]}, "'stop' must be a string or an array of strings"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "data:image/png;base64,"}]}]},
            "'image_url' must be an object with a 'url'",
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


async def test_answers_have_ids_of_their_own() -> None:
    """No two answers share an id; the form is that of LM Studio."""
    async with SimulatedLMStudio([MODEL]) as studio:
        ids = {json.loads((await post(studio, ask()))[1])["id"] for _ in range(5)}
    assert len(ids) == 5
    assert all(one.startswith("chatcmpl-") for one in ids)
