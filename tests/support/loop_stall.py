"""How long the event loop could do nothing else while something ran."""

import asyncio
import time
from collections.abc import Awaitable


async def longest_stall(work: Awaitable[object]) -> float:
    """Return for how many seconds at a time the loop was held up."""
    stalls = [0.0]

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            stalls.append(time.perf_counter() - before)

    ticking = asyncio.create_task(tick())
    await work
    ticking.cancel()
    return max(stalls)
