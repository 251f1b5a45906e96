"""The `openai` Python client on the routes that are passed on: embeddings and bare completions."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from chatting import AGENT, MODEL, RAW_MODEL, eventually
from openai_client import Trio, client_of
from serving import serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

EMBEDDER = "nomic-embed-text-v1.5"


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Run elbowroom in front of a simulated LM Studio with a small window and a model for embeddings, and a client."""
    models = [
        SimulatedModel(MODEL, loaded_context_length=2048),
        SimulatedModel(EMBEDDER, type="embedding", loaded_context_length=2048),
    ]
    async with SimulatedLMStudio(models) as studio:
        async with serve(tmp_path, settings_for(studio.base_url, agents=AGENT)) as served, client_of(served) as client:
            yield client, studio, served
            await eventually(lambda: studio.open_requests == 0, "requests are left open upstream")


@pytest.mark.parametrize("model", [EMBEDDER, f"lmstudio/{EMBEDDER}"])
async def test_embeddings(trio: Trio, model: str) -> None:
    """A vector for each text, by the model's name with the provider's before it or not."""
    client, _, _ = trio
    found = await client.embeddings.create(model=model, input=["one", "two"], encoding_format="float")
    assert found.model == model
    assert [row.index for row in found.data] == [0, 1]
    assert len(found.data[0].embedding) == len(found.data[1].embedding) > 0
    assert found.data[0].embedding != found.data[1].embedding


async def test_embeddings_as_base64(trio: Trio) -> None:
    """Who asks for base64 gets it, though LM Studio answers with numbers: older openai-node reads nothing else."""
    client, _, served = trio
    body = {"model": EMBEDDER, "input": "one", "encoding_format": "base64"}
    async with served.http.post(f"{served.url}/v1/embeddings", json=body) as response:
        [row] = (await response.json())["data"]
    packed = base64.b64decode(row["embedding"], validate=True)
    numbers = (await client.embeddings.create(model=EMBEDDER, input="one", encoding_format="float")).data[0].embedding
    assert struct.unpack(f"<{len(numbers)}f", packed) == pytest.approx(numbers)
    assert (await client.embeddings.create(model=EMBEDDER, input="one")).data[0].embedding == pytest.approx(numbers)


async def test_embeddings_of_a_model_that_is_not_there(trio: Trio) -> None:
    """No other model answers for it: what is there is named."""
    client, _, _ = trio
    for name in ("nobody", "lmstudio/nobody"):
        with pytest.raises(openai.NotFoundError, match=EMBEDDER):
            await client.embeddings.create(model=name, input="one")


@pytest.mark.parametrize("model", [MODEL, RAW_MODEL, "writer"])
async def test_completions(trio: Trio, model: str) -> None:
    """A text is continued, whole or streamed; what it may grow to ends with the window."""
    client, studio, _ = trio
    whole = await client.completions.create(model=model, prompt="Once upon a time")
    assert whole.choices[0].text
    assert whole.model == model
    stream = await client.completions.create(model=model, prompt="Once upon a time", stream=True)
    chunks = [chunk async for chunk in stream]
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == whole.choices[0].text
    assert {chunk.model for chunk in chunks} == {model}
    sent = [record.body for record in studio.requests if record.path == "/v1/completions"]
    assert [body["model"] for body in sent] == [MODEL, MODEL]
    assert all(2000 < body["max_tokens"] < 2048 for body in sent)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_that_does_not_fit_is_refused(trio: Trio, stream: bool) -> None:
    """Nothing of it is left out without a word: the error has OpenAI's code, and the engine is not asked."""
    client, studio, _ = trio
    for fields in ({"prompt": "word " * 3000}, {"prompt": "Once", "max_tokens": 4000}, {"prompt": ["a", "b " * 3000]}):
        with pytest.raises(openai.BadRequestError, match="maximum context length is 2048") as refused:
            await client.completions.create(model=RAW_MODEL, stream=stream, **fields)
        assert refused.value.code == "context_length_exceeded"
    assert not [record for record in studio.requests if record.path == "/v1/completions"]


@pytest.mark.parametrize(
    "fields", [{"prompt": 3}, {"prompt": []}, {"prompt": "a", "max_tokens": "b"}, {"prompt": "a", "stream": 1}, {}]
)
async def test_wrong_fields(trio: Trio, fields: dict[str, Any]) -> None:
    """What is no prompt is refused in words."""
    _, _, served = trio
    async with served.http.post(f"{served.url}/v1/completions", json={"model": RAW_MODEL, **fields}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["type"] == "invalid_request_error"


async def test_the_upstream_is_left_with_the_client(trio: Trio) -> None:
    """A client that leaves a stream closes it upstream."""
    client, studio, _ = trio
    stream = await client.completions.create(model=RAW_MODEL, prompt="Once upon a time", stream=True)
    async for _ in stream:
        break
    await stream.close()
    await eventually(lambda: studio.open_requests == 0, "the upstream still writes")
    await asyncio.sleep(0)
