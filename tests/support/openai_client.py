"""The `openai` Python client in front of an elbowroom."""

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from chatting import MODEL, elbowroom_with_studio
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletionChunk
from serving import Served

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

Trio = tuple[AsyncOpenAI, SimulatedLMStudio, Served]


def client_of(served: Served, base: str = "/v1") -> AsyncOpenAI:
    """Return a client that asks once."""
    http = DefaultAsyncHttpxClient(trust_env=False, verify=False)  # no proxy of this machine, and no certificates
    return AsyncOpenAI(base_url=f"{served.url}{base}", api_key="none", max_retries=0, http_client=http)


def text_in(chunks: Iterable[ChatCompletionChunk]) -> str:
    """Return the text, read as naive code does: the first choice of every chunk."""
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@pytest.fixture
async def trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Run elbowroom in front of a simulated LM Studio with a model that sees, and a client."""
    vision = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
    async with elbowroom_with_studio(tmp_path, model=vision) as (served, studio), client_of(served) as client:
        yield client, studio, served
