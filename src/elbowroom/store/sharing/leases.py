"""What requests of this server hold of the windows of models beside those of the other servers that use them.

Each request has a lease: tokens of a window, in a row of the database. The row counts until it is given back, or until
its server has not said for ten seconds that it is there. What a server holds is what its own requests are: every few
seconds it puts rows right that are missing, too many or too small, such as those of one that was taken for dead.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from elbowroom.store.base import LeaseRow, WindowShare, WindowTokens

if TYPE_CHECKING:
    from elbowroom.store.sql import SqlServerLeases

log = logging.getLogger(__name__)
HELD_SECONDS: Final = 2.0
"""How long the database may take to note a lease; a request does not wait longer for it."""
LOOKED_SECONDS: Final = 1.0
"""How often a request that waits for room is told how long it has."""
AHEAD: Final = 256
"""Tokens before the end of a lease from which on more are asked for."""
NOT_SHARED: Final = (
    "The database does not tell what other servers hold of the windows of models. Until it does, this server goes by "
    "its own requests alone, and an LM Studio may get more than its window holds."
)
SHARED_AGAIN: Final = "The windows of models are shared with the other servers again."
Answer = TypeVar("Answer")


class Asking(Protocol):
    """Asks the database."""

    async def __call__(self, question: Callable[["SqlServerLeases"], Awaitable[Answer]]) -> Answer | None:
        """Return the answer, None where the database fails."""


class Lease(WindowTokens):
    """Tokens of a model's window that this server holds beside the others, until they are released."""

    def __init__(self, leases: "Leases", share: WindowShare) -> None:
        self.share = share
        self.number: int | None = None
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_over = self.has_waited = False
        self._leases = leases
        self._growing: asyncio.Task[None] | None = None

    @property
    def is_granted(self) -> bool:
        """Tell whether the tokens are held, and not waited for."""
        return self.granted.done()

    def grant(self) -> None:
        """Hold the tokens from now on."""
        if not self.granted.done():
            self.granted.set_result(None)

    def covers(self, tokens: int) -> bool:
        """Tell whether so many tokens are held; more are asked for in the background, some before they are needed."""
        tokens = min(tokens, self.share.capacity)
        if self.number is None or self._leases.is_alone:
            self.grow(tokens)
        elif tokens + AHEAD > self.share.tokens < self.share.capacity and (
            self._growing is None or self._growing.done()
        ):
            more = min(self.share.capacity, tokens + 2 * AHEAD)
            self._growing = asyncio.create_task(self._leases.hold_more(self, more))
        return tokens <= self.share.tokens

    def grow(self, tokens: int) -> None:
        """Hold this many tokens at least."""
        if tokens > self.share.tokens:
            self.share = replace(self.share, tokens=tokens)

    def release(self) -> None:
        """Give everything back; a second time does nothing."""
        if not self.is_over:
            self.is_over = True
            self._leases.end(self)


class Leases:
    """All leases of this server. Nothing here raises: where the database fails, each server goes by its own requests.

    `ask` asks the database, and `begin` does work in the background.
    """

    def __init__(self, ask: Asking, begin: Callable[[Coroutine[Any, Any, None]], None]) -> None:
        self.is_alone = False
        """Whether the database has not told for a while what others hold."""
        self._ask = ask
        self._begin = begin
        self._held: dict[Lease, None] = {}
        self._ended: set[int] = set()
        self._being_noted = 0
        self._looking = asyncio.Lock()
        self._has_news = False

    async def hold(self, share: WindowShare, look: Callable[[float], Awaitable[None]]) -> Lease:
        """Hold tokens of a window as soon as there is room for them beside all other servers.

        First come first served over all servers, but a lower `rank` goes before. Every second the database is asked, in
        case nobody woke this server, and `look` is awaited with the seconds waited; it may raise.
        """
        lease, began = Lease(self, share), time.monotonic()
        self._held[lease] = None
        if self.is_alone:
            lease.grant()
        else:
            self._begin(self._note(lease))
        try:
            while not lease.is_granted:
                await asyncio.wait([lease.granted], timeout=LOOKED_SECONDS)
                if not lease.is_granted:
                    self._begin(self.look())
                    await look(time.monotonic() - began)
        except BaseException:
            lease.release()
            raise
        return lease

    async def look(self) -> None:
        """Ask which of the leases that wait are granted by now."""
        self._has_news = True
        if self._looking.locked():
            return
        async with self._looking:
            while self._has_news:
                self._has_news = False
                for waiting in _by_pool(lease for lease in self._held if not lease.is_granted):
                    await self._look_at(waiting)

    async def put_right(self) -> None:
        """Let the database have this server's leases as they are, whatever it has lost or kept of them."""
        await self._give_back_all()
        leases: list[Lease] = []

        def put_right(sql: "SqlServerLeases") -> Awaitable[list[int]]:
            leases.extend(lease for lease in self._held if lease.number is not None or lease.is_granted)
            rows = [LeaseRow(lease.number, lease.share, lease.is_granted) for lease in leases]
            return sql.put_right(rows, ends_others=not self._being_noted)

        for lease, number in zip(leases, await self._answer(put_right) or (), strict=False):
            self._numbered(lease, number)

    async def hold_more(self, lease: Lease, tokens: int) -> None:
        """Let a lease grow in the background, where there is room."""
        share, number = replace(lease.share, tokens=tokens), lease.number
        if number is not None and await self._answer(lambda sql: sql.hold_more(share, number)):
            lease.grow(tokens)

    def end(self, lease: Lease) -> None:
        """End a lease in the background, again and again until the database has it."""
        self._held.pop(lease, None)
        if lease.number is not None:
            self._ended.add(lease.number)
            self._begin(self._give_back_all())

    async def _note(self, lease: Lease) -> None:
        """Let the database have a new lease."""
        self._being_noted += 1
        try:
            noted = await self._answer(lambda sql: sql.hold(lease.share))
        finally:
            self._being_noted -= 1
        if noted is None:
            return
        number, is_granted = noted
        lease.has_waited = not is_granted
        self._numbered(lease, number)
        if is_granted:
            lease.grant()

    def _numbered(self, lease: Lease, number: int) -> None:
        lease.number = number
        if lease.is_over:
            self.end(lease)

    async def _look_at(self, waiting: Sequence[Lease]) -> None:
        share, numbers = waiting[-1].share, [lease.number for lease in waiting if lease.number is not None]
        if not numbers:
            return
        granted = await self._answer(lambda sql: sql.look(share, numbers)) or set()
        for lease in waiting:
            if lease.number in granted:
                lease.grant()

    async def _give_back_all(self) -> None:
        numbers = set(self._ended)
        if not numbers:
            return
        is_written = await self._answer(lambda sql: _done(sql.give_back(numbers)))
        if is_written:
            self._ended -= numbers

    async def _answer(self, question: Callable[["SqlServerLeases"], Awaitable[Answer]]) -> Answer | None:
        """Return what the database says, however long that takes; go on alone where it fails or takes long."""
        going_on = asyncio.get_running_loop().call_later(HELD_SECONDS, self._go_on_alone)
        try:
            answer = await self._ask(question)
        finally:
            going_on.cancel()
        if answer is None:
            self._go_on_alone()
        elif self.is_alone:
            self.is_alone = False
            log.info(SHARED_AGAIN)
        return answer

    def _go_on_alone(self) -> None:
        if not self.is_alone:
            self.is_alone = True
            log.warning(NOT_SHARED)
        for lease in self._held:
            lease.grant()


def _by_pool(leases: Iterable[Lease]) -> list[list[Lease]]:
    pools: dict[str, list[Lease]] = {}
    for lease in leases:
        pools.setdefault(lease.share.pool, []).append(lease)
    return list(pools.values())


async def _done(work: Awaitable[object]) -> bool:
    """Do something that returns nothing, and tell that it is done."""
    await work
    return True
