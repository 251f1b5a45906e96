"""Random sequences of clients: nothing acknowledged is lost, one writes, branches are whole, all ways to read agree.

A failure names its seed, as `seed-17`; `test_seeds` with `range(17, 18)` plays it again.
"""

import asyncio
from collections.abc import Sequence as Numbers
from pathlib import Path

import pytest
from chatting import AGENT, MODEL
from random_clients import Sequence, says
from serving import serve, settings_for

from elbowroom.demo import SimulatedLMStudio, SimulatedModel

AT_ONCE = 10
QUICK = range(2)
LONG = [range(2, 50), *(range(start, start + 50) for start in range(50, 1000, 50))]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [QUICK, *(pytest.param(seeds, marks=pytest.mark.long) for seeds in LONG)], ids=str)
async def test_seeds(tmp_path: Path, seeds: Numbers[int]) -> None:
    """Three clients of a person use two conversations at once; what holds then holds after a restart as well."""
    model = SimulatedModel(MODEL, loaded_context_length=100_000)
    played: list[Sequence] = []
    async with SimulatedLMStudio([model], on_request=says) as studio:
        settings = settings_for(studio.base_url, agents=AGENT)
        async with serve(tmp_path, settings) as served:
            for start in range(0, len(seeds), AT_ONCE):
                some = [Sequence(served, seed) for seed in seeds[start : start + AT_ONCE]]
                await asyncio.gather(*(one.play() for one in some))
                for one in some:
                    await one.check()
                played += some
        async with serve(tmp_path, settings) as served:
            for one in played:
                one.goes_on_with(served)
                await one.check()
    assert [wrong for one in played for wrong in one.wrong] == []
