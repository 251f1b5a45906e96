"""Waiting for something that another task brings about."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Return as soon as the condition holds; raise AssertionError where it does not within that time."""
    for _ in range(int(seconds / 0.005)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("what was waited for has not happened")
