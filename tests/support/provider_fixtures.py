"""elbowroom in front of one upstream: fixtures that a test module takes over by naming them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fake_upstream import FakeUpstream, fake_upstream
from serving import Served, serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel


@pytest.fixture
async def studio() -> AsyncIterator[SimulatedLMStudio]:
    """Run a simulated LM Studio with one loaded model."""
    async with SimulatedLMStudio([SimulatedModel("tiny", loaded_context_length=4096)]) as studio:
        yield studio


@pytest.fixture
async def managed(studio: SimulatedLMStudio, tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of LM Studio."""
    async with serve(tmp_path, settings_for(studio.base_url)) as served:
        yield served


@pytest.fixture
async def upstream() -> AsyncIterator[FakeUpstream]:
    """Run a generic upstream."""
    async with fake_upstream({}) as upstream:
        yield upstream


@pytest.fixture
async def relaying(upstream: FakeUpstream, tmp_path: Path) -> AsyncIterator[Served]:
    """Run elbowroom in front of it, passing through."""
    async with serve(tmp_path, settings_for(upstream.url, kind="openai")) as served:
        yield served
