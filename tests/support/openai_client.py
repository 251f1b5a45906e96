"""The `openai` Python client in front of an elbowroom.

Tests that take `trio` share one, which lasts as long as their module has tests; those that change it for good take
`own_trio`.
"""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
from chatting import MODEL, elbowroom_with_studio, forget
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


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Trio]:
    """Run elbowroom in front of a simulated LM Studio with a model that sees, and a client."""
    vision = SimulatedModel(MODEL, type="vlm", loaded_context_length=32_768)
    async with elbowroom_with_studio(folder, model=vision) as (served, studio), client_of(served) as client:
        yield client, studio, served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Trio]:
    """Run them for all tests of a module."""
    async with running(tmp_path_factory.mktemp("trio")) as trio:
        yield trio


@pytest.fixture
def trio(lasting: Trio) -> Trio:
    """Take them; the simulated LM Studio knows nothing of the tests before."""
    forget(lasting[1])
    return lasting


@pytest_asyncio.fixture(loop_scope="module")
async def own_trio(tmp_path: Path) -> AsyncIterator[Trio]:
    """Run them for one test."""
    async with running(tmp_path) as trio:
        yield trio
