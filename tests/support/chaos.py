"""The hand that kills, freezes and restarts what a crowd of clients depends on, and knows when it did so."""

import asyncio
import itertools
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from postgresql import PostgreSQL
from server_processes import OneServer
from studio_processes import Studio

PAUSES: Final = (4.0, 9.0)
FROZEN: Final = 20.0
"""Seconds for which a server stands still: longer than others wait for a sign of it."""
DOWN: Final = (0.0, 2.0)
CALM: Final = 4.0
"""Seconds after a fault is over in which it still counts: until what has waited meanwhile is worked off."""
FORGOTTEN: Final = 10.0
"""Seconds after which a silent server is taken for dead."""
KILLS: Final = {"server killed": 70, "LM Studio killed": 30}
CHAOS: Final = {"server killed": 30, "LM Studio killed": 15, "server frozen": 20, "database restarted": 35}


@dataclass(slots=True)
class Fault:
    """What was done, when, and when it was over; `server` is what it was done to, where that is one.

    `killed` is when nothing was left of a server.
    """

    kind: str
    server: OneServer | None
    began: float
    killed: float = 0.0
    ended: float = float("inf")

    def __str__(self) -> str:
        return f"{self.kind}, {self.server.folder.name if self.server else ''} {self.ended - self.began:.2f} s"


class Hand:
    """Does one fault after the other, each as often as its weight says; `up` are the servers that can be asked.

    While a server stands still another fault may happen. Of the restarts of the database every second is a kill.
    """

    def __init__(
        self,
        servers: Sequence[OneServer],
        studios: Sequence[Studio],
        faults: Mapping[str, int],
        rng: random.Random,
        database: PostgreSQL | None = None,
    ) -> None:
        self.up = list(servers)
        self.done: list[Fault] = []
        self._studios = studios
        self._faults = faults
        self._rng = rng
        self._database = database
        self._began = time.monotonic()
        self._kills = itertools.cycle((True, False))

    async def act(self, seconds: float) -> None:
        """Go on for so long."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, self._rng.uniform(*PAUSES)))
            await self._one_of(self._faults)

    def is_calm(self, since: float, until: float) -> bool:
        """Tell whether nothing was wrong in this time, nor just before."""
        return not any(fault.began <= until and fault.ended + CALM >= since for fault in self.done)

    def hid_what_is_held(self, when: float) -> bool:
        """Tell whether servers may not have known at this time what is held of a window.

        That is so while the database is away and a moment after, and while a server stands still that the others take
        for dead: the LM Studios go on with what it has asked them.
        """
        hidden = {"database restarted": (0.0, CALM), "server frozen": (FORGOTTEN, CALM)}
        return any(
            fault.began + hidden[fault.kind][0] <= when <= fault.ended + hidden[fault.kind][1]
            for fault in self.done
            if fault.kind in hidden
        )

    def when(self, at: float) -> str:
        """Return a time of the run in words."""
        return f"after {at - self._began:.2f} s"

    def killed_after(self, server: OneServer, at: float) -> float | None:
        """Return when a server was killed first of which something came at this time; None where it never was."""
        return next((fault.began for fault in self.done if fault.server is server and fault.killed >= at), None)

    async def _one_of(self, faults: Mapping[str, int]) -> None:
        (kind,) = self._rng.choices(list(faults), list(faults.values()))
        server = self._rng.choice(self.up) if kind.startswith("server") else None
        fault = Fault(kind, server, time.monotonic())
        self.done.append(fault)
        if server is None:
            await (self._restart() if kind == "database restarted" else self._end_one())
        else:
            self.up.remove(server)
            await (self._freeze(server) if kind == "server frozen" else self._kill(server, fault))
            self.up.append(server)
        fault.ended = time.monotonic()

    async def _kill(self, server: OneServer, fault: Fault) -> None:
        await server.kill()
        fault.killed = time.monotonic()
        await server.start()

    async def _end_one(self) -> None:
        studio = self._rng.choice(self._studios)
        await studio.kill()
        await studio.start()

    async def _freeze(self, server: OneServer) -> None:
        others = {kind: weight for kind, weight in self._faults.items() if kind != "server frozen"}
        server.freeze()
        try:
            thawing = asyncio.create_task(asyncio.sleep(FROZEN))
            if self._rng.random() < 0.5:
                await asyncio.sleep(self._rng.uniform(*PAUSES))
                await self._one_of(others)
            await thawing
        finally:
            server.thaw()

    async def _restart(self) -> None:
        assert self._database is not None
        await asyncio.to_thread(self._database.kill if next(self._kills) else self._database.stop)
        await asyncio.sleep(self._rng.uniform(*DOWN))
        await asyncio.to_thread(self._database.start)
