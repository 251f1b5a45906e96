"""One elbowroom and one simulated LM Studio for all tests of a module, of which each finds them as at their start.

What is compacted behind its answer needs a pair of its own: the model would be asked for that in a later test.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from chatting import elbowroom_with_studio, forget
from serving import Served

from elbowroom.demo import SimulatedLMStudio

Pair = tuple[Served, SimulatedLMStudio]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """Run elbowroom in front of a simulated LM Studio."""
    async with elbowroom_with_studio(tmp_path_factory.mktemp("pair")) as both:
        yield both


@pytest_asyncio.fixture(loop_scope="module")
async def pair(both: Pair) -> Pair:
    """Take both; the simulated LM Studio knows nothing of the tests before."""
    forget(both[1])
    return both
