"""Turns of several requests for chats of one owner that alternate in an engine which keeps one prompt alone.

Such an engine reads a whole prompt again with each change from one chat to another. So a chat that is about to bring
the results of its tools is waited for, for a moment, before another one that brings results of its own has its turn.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from elbowroom.agents.admission.pool import PoolKey

LONGEST_PAUSE: Final = 3.0
"""Seconds for which a chat is waited for at most; not longer than its prompt takes to be read again."""
MOST_READINGS: Final = 2
"""For how many readings of the prompt that the engine has another chat waits at most, from its arrival on."""
QUIET_SECONDS: Final = 0.3
"""A person is not told of a wait that is no longer."""
KNOWN_SECONDS: Final = 600.0
"""How long it is known how a chat has paused."""


@dataclass(slots=True)
class TakenTurn:
    """One request of a turn; `reading` is how many seconds its prompt takes to be read again.

    That is set where the chat goes on with results; at 0 it is not waited for.
    """

    reading: float = 0.0


@dataclass(slots=True)
class Line:
    """The chats of one owner with one engine, which has read the prompt of the `holder` last.

    Of each chat so many requests are `running`; after those of the holder it is waited for `until` a time. So many
    requests are `waiting`. The last prompt takes `reading` seconds. Of each chat it is known when it `ended` a request
    with calls, and how long it `paused` then.
    """

    holder: Hashable = None
    running: Counter[Hashable] = field(default_factory=Counter)
    waiting: int = 0
    until: float = 0.0
    reading: float = 0.0
    ended: dict[Hashable, float] = field(default_factory=dict)
    paused: dict[Hashable, float] = field(default_factory=dict)
    changed: "asyncio.Future[None]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    def arrive(self, chat: Hashable, now: float) -> None:
        """Note how long a chat has paused; forget chats that have been left."""
        left = [each for each, at in self.ended.items() if now - at > KNOWN_SECONDS]
        for each in left:
            del self.ended[each]
            self.paused.pop(each, None)
        if (at := self.ended.get(chat)) is not None:
            self.paused[chat] = now - at

    def is_anothers(self, chat: Hashable, now: float) -> bool:
        """Tell whether another chat has the engine, or is waited for."""
        return self.holder != chat and (self.holder in self.running or now < self.until)

    def begin(self, chat: Hashable) -> None:
        """Let a chat have the engine."""
        self.running[chat] += 1
        self.holder = chat

    def end(self, chat: Hashable, reading: float, now: float) -> None:
        """Note the end of a request, after which the chat goes on where reading its prompt again takes some time."""
        if reading:
            self.ended[chat], self.reading = now, reading
        else:
            self.ended.pop(chat, None)
            self.paused.pop(chat, None)
        self.running[chat] -= 1
        self.running = +self.running  # without those at 0
        if self.holder != chat:
            return  # others were not kept waiting for so long
        pause = min(LONGEST_PAUSE, reading)
        self.until = now + pause if self.paused.get(chat, 0.0) <= pause else now
        self.changed.set_result(None)
        self.changed = asyncio.get_running_loop().create_future()


class Turns:
    """The turns in all engines with one slot, by the engine's key and the chats' owner."""

    def __init__(self) -> None:
        self._lines: dict[tuple[PoolKey, str], Line] = {}

    @asynccontextmanager
    async def taken(
        self, pool: PoolKey, owner: str, chat: Hashable, on_wait: Callable[[], Awaitable[None]] | None
    ) -> AsyncIterator[TakenTurn]:
        """Hold the engine for one request of a chat, which may go on with its turn, as soon as another's has ended.

        A request that brings results waits for that, and `on_wait` is called after a moment of it; one that has
        no `on_wait`, a person's, waits for nobody.
        """
        loop = asyncio.get_running_loop()
        line = self._lines.setdefault((pool, owner), Line())
        line.arrive(chat, loop.time())
        try:
            if on_wait is not None:
                await _wait(line, chat, on_wait)
            line.begin(chat)
            turn = TakenTurn()
            try:
                yield turn
            finally:
                line.end(chat, turn.reading, loop.time())
        finally:
            if not (line.running or line.waiting or line.ended):
                self._lines.pop((pool, owner), None)


async def _wait(line: Line, chat: Hashable, on_wait: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    began, is_told = loop.time(), False
    last = began + MOST_READINGS * line.reading
    line.waiting += 1
    try:
        while line.is_anothers(chat, now := loop.time()) and now < last:
            if not is_told and now - began >= QUIET_SECONDS:
                is_told = True
                await on_wait()
                continue
            pause = [] if line.holder in line.running else [line.until]
            ends = [last, *pause, *([] if is_told else [began + QUIET_SECONDS])]
            await asyncio.wait([line.changed], timeout=max(0.0, min(ends) - now))
    finally:
        line.waiting -= 1
