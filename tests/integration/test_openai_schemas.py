"""Everything that clients are answered with has the form that OpenAI describes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pair_fixtures
import pytest
import pytest_asyncio
from chatting import AGENT, MODEL, RAW_MODEL, Message, chunks_of, function_spec, stream_bytes
from openai_schemas import check_schema
from pair_fixtures import Pair
from patient_counting import wait_for_counts
from serving import Served, parse_frames, serve, settings_for
from small_window import history, small_window

from elbowroom.demo import Cut, Error, Reasoning, Script, SimulatedLMStudio, SimulatedModel, ToolCall

EMBEDDER = "nomic-embed-text-v1.5"
pytestmark = pytest.mark.asyncio(loop_scope="module")
pair = pair_fixtures.pair
MODELS = pytest.mark.parametrize("model", ["writer", RAW_MODEL, f"openai/{MODEL}"])
TOOLS = [function_spec("read_note")]
FLAT_TOOLS: list[Message] = [{"type": "function", **TOOLS[0]["function"]}]
USED_TOOLS = Script(Reasoning("Hm."), "Looking.", ToolCall("read_note", {"path": "a"}), ToolCall("read_note", {}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom in front of a simulated LM Studio, which is also reached as any other server."""
    models = [
        SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768),
        SimulatedModel(EMBEDDER, type="embedding", loaded_context_length=2048),
    ]
    async with SimulatedLMStudio(models) as studio:
        other = f'[[providers]]\nid = "openai"\nkind = "openai"\nbase_url = "{studio.base_url}/v1"\n'
        async with serve(
            tmp_path_factory.mktemp("schemas"), settings_for(studio.base_url, agents=other + AGENT)
        ) as served:
            yield served, studio


async def answer_to(served: Served, path: str, method: str = "POST", **body: Any) -> tuple[int, Any]:
    """Return the status and the parsed body of an answer."""
    async with served.http.request(method, f"{served.url}/v1/{path}", json=body or None) as response:
        return response.status, await response.json()


async def checked_events(served: Served, **body: Any) -> list[Message]:
    """Return the events of a streamed response, each of the right form and with the number that comes next."""
    async with served.http.post(f"{served.url}/v1/responses", json={**body, "stream": True}) as response:
        assert response.status == 200, await response.text()
        text = await response.read()
    events = parse_frames(text)
    names = [line.removeprefix("event: ") for line in text.decode().split("\n") if line.startswith("event: ")]
    assert names == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert added == list(range(len(added)))
    for event in events:
        check_schema("ResponseStreamEvent", event)
    return events


@pytest.mark.parametrize("model", ["writer", RAW_MODEL])
async def test_chats(pair: Pair, model: str) -> None:
    """A whole chat and every chunk of a stream, with thoughts, tools and usage; what is passed on is the upstream's."""
    served, studio = pair
    studio.enqueue(USED_TOOLS, USED_TOOLS, "Short.")
    whole = await served.chat(model, tools=TOOLS)
    check_schema("CreateChatCompletionResponse", whole)
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], "tools": TOOLS}
    for chunk in chunks_of(await stream_bytes(served, {**body, "stream_options": {"include_usage": True}})):
        check_schema("CreateChatCompletionStreamResponse", chunk)
    check_schema("CreateChatCompletionResponse", await served.chat(model))


@pytest.mark.parametrize("notices", ["auto", "content"])
async def test_compactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: str) -> None:
    """Notices change the form of nothing."""
    wait_for_counts(monkeypatch)
    async with small_window(tmp_path, compaction=f'notices = "{notices}"') as (served, _):
        for chunk in chunks_of(await stream_bytes(served, {"model": RAW_MODEL, "messages": history(12)})):
            check_schema("CreateChatCompletionStreamResponse", chunk)
        events = await checked_events(served, model=RAW_MODEL, input=history(12))
        assert events[-1]["type"] == "response.completed"


@MODELS
async def test_responses(pair: Pair, model: str) -> None:
    """A whole response and every event of a stream, with thoughts, tools and all that is repeated of the request."""
    served, studio = pair
    studio.enqueue(USED_TOOLS, USED_TOOLS)
    asked: Message = {
        "model": model,
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "instructions": "Be short.",
        "tools": FLAT_TOOLS,
        "metadata": {"a": "b"},
        "temperature": 0.5,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "max_output_tokens": 500,
        "truncation": "auto",
    }
    status, whole = await answer_to(served, "responses", **asked)
    assert status == 200
    check_schema("Response", whole)
    events = await checked_events(served, **asked)
    last = events[-1]["response"]
    check_schema("Response", last)
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call", "function_call"]
    for response in (whole, last):
        if response["store"]:
            status, kept = await answer_to(served, f"responses/{response['id']}", "GET")
            assert status == 200
            check_schema("Response", kept)
            assert kept["output"] == response["output"]


@pytest.mark.parametrize("ending", [Error("it broke"), Cut()])
async def test_responses_that_fail(pair: Pair, ending: Any) -> None:
    """One that breaks off ends with an error and the response as it failed; one that is cut short says why."""
    served, studio = pair
    studio.enqueue(Script("Begun", ending))
    events = await checked_events(served, model="writer", input="Hello")
    assert [event["type"] for event in events[-2:]] == ["error", "response.failed"]
    studio.enqueue("One two three four five six seven.")
    events = await checked_events(served, model="writer", input="Hello", max_output_tokens=3)
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_lists_vectors_and_sizes(pair: Pair) -> None:
    """Models, embeddings, bare completions and sizes."""
    served, studio = pair
    _, listed = await answer_to(served, "models", "GET")
    check_schema("ListModelsResponse", listed)
    _, model = await answer_to(served, "models/writer", "GET")
    check_schema("Model", model)
    _, found = await answer_to(served, "embeddings", model=f"lmstudio/{EMBEDDER}", input="one")
    check_schema("CreateEmbeddingResponse", found)
    _, continued = await answer_to(served, "completions", model=RAW_MODEL, prompt="Once")
    check_schema("CreateCompletionResponse", continued)
    async with served.http.post(
        f"{served.url}/v1/completions", json={"model": RAW_MODEL, "prompt": "Once", "stream": True}
    ) as response:
        for chunk in chunks_of(await response.read()):
            for choice in chunk["choices"]:  # OpenAI too sends null before the last, which its description forgets
                choice["finish_reason"] = choice["finish_reason"] or "stop"
            check_schema("CreateCompletionResponse", chunk)
    _, size = await answer_to(served, "responses/input_tokens", model="writer", input="One two three.")
    check_schema("TokenCountsResource", size)
    assert size["window"] == 32_768
    assert size["input_tokens"] > 0
    studio.enqueue("Yes.")
    _, chat_size = await answer_to(
        served,
        "chat/completions/input_tokens",
        model="writer",
        messages=[{"role": "user", "content": "One two three."}],
    )
    assert chat_size == size


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"model": "nobody", "messages": [{"role": "user", "content": "a"}]}),
        ("chat/completions", {"model": "writer"}),
        ("responses", {"model": "nobody", "input": "a"}),
        ("responses", {"model": "writer", "input": 3}),
        ("responses", {"model": "writer", "input": "a", "previous_response_id": "resp_0"}),
        ("responses/input_tokens", {"model": "writer"}),
        ("responses/resp_0/cancel", {}),
        ("embeddings", {"model": "nobody", "input": "a"}),
        ("completions", {"model": RAW_MODEL, "prompt": "a " * 40_000}),
        ("nothing", {}),
    ],
)
async def test_errors(pair: Pair, path: str, body: Message) -> None:
    """Every refusal."""
    status, answer = await answer_to(pair[0], path, **body)
    assert 400 <= status < 500
    check_schema("ErrorResponse", answer)
