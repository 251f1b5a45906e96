"""Outputs of tools in memory stay within their bounds, but for what was kept a moment ago."""

import random

from elbowroom.store.tool_outputs_memory import SAFE_SECONDS, MemoryToolOutputs
from kept_outputs import ME, read, text_of
from standing_clock import Clock


def noise(number: int) -> str:
    """Return a text that compression makes no smaller than 100,000 bytes."""
    return random.Random(number).randbytes(100_000).hex()


async def test_the_outputs_that_nobody_used_for_longest_go_first() -> None:
    """With one too many, the one goes that was neither kept, found, read nor named lately."""
    clock = Clock()
    outputs = MemoryToolOutputs(most_bytes=600_000, clock=clock)
    refs = [await outputs.keep(ME, "read", noise(number)) for number in range(5)]
    await outputs.find(ME, refs[0].id)
    assert len(await read(outputs, refs[1].id)) > 0
    await outputs.in_use(ME, [refs[2].id])
    await outputs.keep(ME, "read", noise(3))
    clock.now += SAFE_SECONDS
    new = await outputs.keep(ME, "read", noise(5))
    found = [await outputs.find(ME, ref.id) for ref in [*refs, new]]
    assert found == [*refs[:4], None, new]
    assert sum(held.size for held in outputs.all()) <= 600_000


async def test_what_was_kept_within_the_minute_stays() -> None:
    """However much it is, what an answer has just kept can be read; it goes when the minute is over."""
    clock = Clock()
    outputs = MemoryToolOutputs(most_bytes=10, clock=clock)
    refs = [await outputs.keep(ME, "read", noise(number)) for number in range(3)]
    assert [await text_of(outputs, ref.id) for ref in refs] == [noise(number) for number in range(3)]
    clock.now += SAFE_SECONDS - 1
    assert await outputs.keep(ME, "search", noise(0)) == refs[0]
    assert all([await outputs.find(ME, ref.id) for ref in refs])
    clock.now += 1
    last = await outputs.keep(ME, "read", "last")
    assert [held.output.ref for held in outputs.all()] == [refs[0], last]


async def test_a_text_takes_less_than_it_is() -> None:
    """Outputs are compressed; the same one kept again takes nothing more."""
    outputs = MemoryToolOutputs()
    for _ in range(3):
        await outputs.keep(ME, "read", "the same line\n" * 100_000)
    (held,) = outputs.all()
    assert held.size < 100_000
    await outputs.aclose()
    assert outputs.all() == []
