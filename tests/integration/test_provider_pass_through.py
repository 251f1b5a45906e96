"""Ollama and generic servers: what the client asks is what they are asked, with only the model's name put right."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_upstream import FakeUpstream, chunk, completion, fake_upstream, says, streams
from outcome import chat
from serving import Served, parse_frames, serve, settings_for

DONE = b"data: [DONE]\n\n"
CHAT = "/v1/chat/completions"
TAGS = {"models": [{"name": "llama3:latest", "size": 1}, {"name": "qwen2.5:7b"}]}
PS = {"models": [{"name": "qwen2.5:7b", "context_length": 8192}]}
VLLM = {"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 16_384}, {"id": "org/n"}]}
AGENT = """
[[agents]]
id = "writer"
provider = "{kind}"
model = "{model}"
instructions = "Be brief."
"""
BODY: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "You are \u00fcber."},
        {"role": "user", "content": [{"type": "text", "text": "Hi \U0001f600"}], "name": "me"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {}}]},
        {"role": "tool", "tool_call_id": "1", "content": ""},
        {"role": "assistant", "content": "Half an ans"},
    ],
    "temperature": 0.1,
    "max_completion_tokens": 77,
    "seed": 2**62,
    "stop": ["\n", ""],
    "response_format": {"type": "json_object"},
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}, {"type": "custom"}],
    "tool_choice": "none",
    "logit_bias": {"1": -100},
    "metadata": {"a": None},
    "options": {"num_ctx": 1},
    "api_base": "http://evil.example",
    "n": 1,
    "unknown": [1, [2, {"three": 3.5}]],
}


@pytest.fixture(params=["openai", "ollama"])
def kind(request: pytest.FixtureRequest) -> str:
    """Name the kind of provider."""
    value = request.param
    assert isinstance(value, str)
    return value


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """Run an upstream that has the lists of both kinds and answers chats."""
    answers = {"/api/tags": says(TAGS), "/api/ps": says(PS), "/v1/models": says(VLLM)}
    async with fake_upstream(answers) as upstream:
        yield upstream


@pytest.fixture
async def served(upstream: FakeUpstream, tmp_path: Path, kind: str) -> AsyncIterator[Served]:
    """Run elbowroom in front of it, with an agent as well."""
    agent = AGENT.format(kind=kind, model="llama3")
    async with serve(tmp_path, settings_for(upstream.url, kind=kind, agents=agent)) as served:
        yield served


@pytest.mark.parametrize(
    "stream", [{"stream": False}, {}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": False}}]
)
async def test_the_upstream_gets_the_clients_own_body(
    served: Served, upstream: FakeUpstream, kind: str, stream: dict[str, Any]
) -> None:
    """Every field arrives as it was sent, none is added, and the model's name loses the provider in front."""
    upstream.answers[CHAT] = streams(chunk({"content": "Hi"}), chunk({}, "stop"), DONE)
    if not stream.get("stream"):
        upstream.answers[CHAT] = says(completion())
    sent = {"model": f"{kind}/org/name:7b", **BODY, **stream}
    async with served.http.post(served.chat_url, json=sent) as response:
        assert response.status == 200
    (asked,) = upstream.asked
    assert (asked.method, asked.path) == ("POST", CHAT)
    assert asked.json == {**sent, "model": "org/name:7b"}
    assert "Authorization" not in asked.headers
    assert asked.headers["Content-Type"] == "application/json"
    assert not [name for name in asked.headers if name.lower() in ("cookie", "origin", "referer")]


async def test_a_whole_completion_comes_back_as_the_upstream_sent_it(
    served: Served, upstream: FakeUpstream, kind: str
) -> None:
    """Fields that elbowroom does not know survive; the model's name is the one that was asked for."""
    sent = completion(
        "Hi", usage={"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 3}}, timings={"x": 0.25}
    )
    sent["choices"][0]["message"]["annotations"] = [{"type": "url_citation"}]
    sent["choices"][0]["logprobs"] = {"content": []}
    upstream.answers[CHAT] = says(sent)
    body = {"model": f"{kind}/m", "messages": [{"role": "user", "content": "Hi"}]}
    async with served.http.post(served.chat_url, json=body) as response:
        assert await response.json() == {**sent, "model": f"{kind}/m"}


async def test_numbers_no_client_could_read_become_null(served: Served, upstream: FakeUpstream, kind: str) -> None:
    """NaN in an upstream's answer does not become NaN in ours, whole or streamed."""
    upstream.answers[CHAT] = says(
        json.dumps(completion(timings={"x": float("nan"), "y": float("-inf")})).encode(),
        headers={"Content-Type": "application/json"},
    )
    body = {"model": f"{kind}/m", "messages": [{"role": "user", "content": "Hi"}]}
    async with served.http.post(served.chat_url, json=body) as response:
        text = await response.text()
    assert "NaN" not in text
    assert json.loads(text)["timings"] == {"x": None, "y": None}
    said = chunk({"content": "Hi"}, usage={"prompt_tokens": 1, "speed": float("nan")})
    upstream.answers[CHAT] = streams(said, chunk({}, "stop"), DONE)
    body["stream_options"] = {"include_usage": True}  # type: ignore[assignment]  # a body is a plain object
    async with served.http.post(served.chat_url, json={**body, "stream": True}) as response:
        assert "NaN" not in await response.text()


async def test_a_stream_keeps_text_thoughts_calls_finish_and_usage(
    served: Served, upstream: FakeUpstream, kind: str
) -> None:
    """What a relayed stream says arrives, with the usage that was asked for."""
    usage = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8, "x_vendor": 1}
    call = {"tool_calls": [{"index": 0, "id": "7", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}
    upstream.answers[CHAT] = streams(
        chunk({"role": "assistant", "reasoning": "Hm"}),
        chunk({"content": "Hi"}),
        chunk(call),
        chunk({}, "tool_calls"),
        b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n",
        DONE,
    )
    body = {
        "model": f"{kind}/m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {"name": "f"}}],
    }
    async with served.http.post(served.chat_url, json=body) as response:
        frames = parse_frames(await response.read())
    assert frames.pop() == "[DONE]"
    assert frames.pop()["usage"] == usage
    choices = [frame["choices"][0] for frame in frames]
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == "Hi"
    assert "".join(choice["delta"].get("reasoning") or "" for choice in choices) == "Hm"
    calls = [call for choice in choices for call in choice["delta"].get("tool_calls", ())]
    assert calls[0]["function"]["name"] == "f"
    assert "".join(call["function"]["arguments"] for call in calls) == "{}"


@pytest.mark.parametrize("stream", [True, False])
async def test_an_agent_needs_no_list_of_models(
    served: Served, upstream: FakeUpstream, kind: str, *, stream: bool
) -> None:
    """Without context management the model's name is enough: `llama3` is Ollama's `llama3:latest`, and not listed."""
    del upstream.answers["/api/tags"], upstream.answers["/v1/models"]
    upstream.answers[CHAT] = streams(chunk({"content": "Hi"}), chunk({}, "stop"), DONE)
    outcome = await chat(served, "writer", stream=stream)
    assert outcome.text == "Hi"
    asked = upstream.asked_at(CHAT)[0].json
    assert asked["model"] == "llama3"
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}


async def listed(served: Served) -> list[dict[str, Any]]:
    """Return the raw models' rows of /v1/models."""
    async with served.http.get(f"{served.url}/v1/models") as response:
        answer = await response.json()
    return [row for row in answer["data"] if row["owned_by"] != "elbowroom"]


async def test_ollamas_models_are_listed_with_what_is_loaded(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Pulled models, with the window of those that run; a path /v1 in the address makes no difference."""
    for path in ("", "/v1", "/v1/"):
        async with serve(tmp_path, settings_for(upstream.url + path, kind="ollama")) as served:
            rows = {row["id"]: row for row in await listed(served)}
        assert set(rows) == {"ollama/llama3:latest", "ollama/qwen2.5:7b"}
        assert rows["ollama/qwen2.5:7b"]["context_length"] == 8192
        assert rows["ollama/qwen2.5:7b"]["state"] == "loaded"
        assert "context_length" not in rows["ollama/llama3:latest"]


async def test_with_context_management_ollamas_latest_is_found(upstream: FakeUpstream, tmp_path: Path) -> None:
    """Where the window is wanted the model has to be listed, and `llama3` means `llama3:latest` as in Ollama.

    One that does not run has no window yet: that is said, with what to do, and nothing is sent unchecked.
    """
    upstream.answers["/api/ps"] = says({"models": [{"name": "llama3:latest", "context_length": 4096}]})
    upstream.answers[CHAT] = streams(chunk({"content": "Hi"}), chunk({}, "stop"), DONE)
    settings = settings_for(upstream.url, kind="ollama") + "manage_context = true\n"
    async with serve(tmp_path, settings) as served:
        assert (await chat(served, "ollama/llama3", stream=True)).text == "Hi"
        outcome = await chat(served, "ollama/none", stream=True)
    assert outcome.status == 404
    assert "llama3:latest" in outcome.message
    upstream.answers["/api/ps"] = says({"models": []})
    async with serve(tmp_path, settings) as served:
        outcome = await chat(served, "ollama/llama3", stream=True)
    assert outcome.status == 503
    assert outcome.error is not None
    assert outcome.error["code"] == "window_unknown"
    assert "ollama run" in outcome.message


@pytest.mark.parametrize("running", [says(b"", status=404), says("nonsense"), says({"models": [{"name": [1]}, 7]})])
async def test_ollama_without_its_list_of_what_runs(upstream: FakeUpstream, tmp_path: Path, running: Any) -> None:
    """Older versions have no /api/ps, and odd rows in it are passed over; the pulled models are listed all the same."""
    upstream.answers["/api/ps"] = running
    async with serve(tmp_path, settings_for(upstream.url, kind="ollama")) as served:
        assert len(await listed(served)) == 2


async def test_what_is_no_ollama_says_so(upstream: FakeUpstream, tmp_path: Path) -> None:
    """An address that has no /api/tags is named, with what was looked for."""
    del upstream.answers["/api/tags"]
    settings = settings_for(upstream.url, kind="ollama") + "manage_context = true\n"
    async with serve(tmp_path, settings) as served:
        outcome = await chat(served, "ollama/m", stream=True)
    assert outcome.status == 502
    assert "/api/tags" in outcome.message


async def test_a_generic_servers_models_and_window(upstream: FakeUpstream, tmp_path: Path) -> None:
    """The address is taken with a path or without; vLLM tells the window; a bare list will do."""
    for path in ("", "/v1", "/v1/"):
        async with serve(tmp_path, settings_for(upstream.url + path, kind="openai")) as served:
            rows = {row["id"]: row for row in await listed(served)}
        assert set(rows) == {"openai/m", "openai/org/n"}
        assert rows["openai/m"]["context_length"] == 16_384
    upstream.answers["/v1/models"] = says([{"id": "bare"}, {"id": 7}, None])
    async with serve(tmp_path, settings_for(upstream.url, kind="openai")) as served:
        assert [row["id"] for row in await listed(served)] == ["openai/bare"]


async def test_a_long_path_in_the_address_is_kept(tmp_path: Path) -> None:
    """Gateways have their own paths; nothing is added to one that is given."""
    path = "/gateway/openai/v1beta"
    answers = {f"{path}/chat/completions": says(completion("There")), f"{path}/models": says(VLLM)}
    async with (
        fake_upstream(answers) as upstream,
        serve(tmp_path, settings_for(upstream.url + path, kind="openai")) as served,
    ):
        assert (await chat(served, "openai/m", stream=False)).text == "There"
        assert len(await listed(served)) == 2
