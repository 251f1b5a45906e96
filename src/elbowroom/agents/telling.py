"""Work that goes on while a person is told how far it is: who reads slowly holds up the telling, never the work."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from elbowroom.agents.answer import Notice

T = TypeVar("T")
SECONDS_BETWEEN = 2.0
"""How long at least one update stands before the next."""


async def told_meanwhile(
    work: Coroutine[Any, Any, T],
    opening: Notice,
    newest: Callable[[], Notice],
    tell: Callable[[Notice], Awaitable[None]],
) -> T:
    """Return what the work returns, once the telling of it has ended too.

    `opening` is told before the work begins, and later what `newest` returns, where its text is another.
    Cancelling this ends the work at once, and so does a failure to tell, which is raised.
    """
    working = asyncio.ensure_future(work)
    last = opening
    try:
        await tell(opening)
        while not (await asyncio.wait([working], timeout=SECONDS_BETWEEN))[0]:
            if (notice := newest()).text != last.text:
                last = notice
                await tell(notice)
        return working.result()
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
