"""This server among those that share its database: what they ask each other, and which of them answers what."""

import asyncio
import importlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from elbowroom.context.conversation import QueuedMessage
from elbowroom.context.reuse import ReadPrompt
from elbowroom.store.base import ANSWERED_SECONDS, HELD_LEASE, Operation, Servers, WindowShare, passed
from elbowroom.store.place import ServerPlace
from elbowroom.store.sharing.leases import Lease, Leases
from elbowroom.store.write_behind import WriteBehindStore

if TYPE_CHECKING:
    from elbowroom.store.sql import Call, Listener, SqlServers, SqlStore

log = logging.getLogger(__name__)
LOOKED_SECONDS: Final = 0.28
"""How often a server looks for what it is asked, where nothing wakes it."""
BUSY_SECONDS: Final = 0.1
"""How often one does that is answering, so that a cancel elsewhere takes less than half a second."""
SOONEST_SECONDS: Final = 0.05
"""How soon who has just asked looks again for the answer; later it does so less often."""
DRAINED_SECONDS: Final = 1.0
"""How often a server looks for what waits, where nothing wakes it."""
SWEPT_SECONDS: Final = 3.0
"""How often it looks for what dead servers have left, and for changes that it may not have heard of."""
TAKEN_SECONDS: Final = 2.0
"""How long a server that is there needs to take what it is asked, as a rule; who has died does not take it."""
READ_SECONDS: Final = 0.25
"""How long a request waits to be told which machine has read its conversation; then this server's own memory counts."""
TICK_SECONDS: Final = 0.25
STOOD_SECONDS: Final = 2.0
"""So long a busy event loop takes at most; beyond it the process stood still."""
FAILED: Final[Mapping[str, Any]] = {"failed": True}
AGENTS: Final = "agents"
"""What another server is asked to look at, where this one has saved them."""
Answer = TypeVar("Answer")


class Together(Servers):
    """This server among all that share a database on a PostgreSQL server; where that fails, no other one is known."""

    may_remember = False

    def __init__(self, store: WriteBehindStore, place: ServerPlace, own: str) -> None:
        self.id = own
        self._operations: dict[str, Operation] = {}
        self._drains: list[Callable[[], Awaitable[None]]] = []
        self._looks: list[Callable[[], Awaitable[None]]] = []
        self._is_busy: Callable[[], object] = bool
        self._lapses: list[Callable[[], object]] = []
        self._wakings: list[Callable[[float], object]] = []
        self._seen_awake = self._counts_until = 0.0
        self._ticking: asyncio.TimerHandle | None = None
        self._store = store
        self._place = place
        self._listener: Listener | None = None
        self._woken = asyncio.Event()
        self._answered = asyncio.Condition()
        self._wakes = 0
        self._work: set[asyncio.Task[Any]] = set()
        self._draining: asyncio.Task[None] | None = None
        self._keeping = asyncio.Lock()
        self._wants_keeping, self._kept = False, 0.0
        self._leases = Leases(lambda question: store.ask(lambda sql: question(sql.leases)), self._begin)
        self._swept = 0.0

    def start(self, sql: "SqlStore") -> None:
        """Begin to listen, now that the database is open; once."""
        if self._listener is None:
            loop = asyncio.get_running_loop()

            def call(work: Callable[[], object]) -> None:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(work)

            module = importlib.import_module("elbowroom.store.sql")  # which is loaded: it has opened the database
            self._listener = module.Listener(
                self._place, self.id, lambda: call(self._woken.set), lambda: call(self._has_lapsed)
            )
            self._listener.start()
            self._draining = asyncio.create_task(self._drain())
            self._tick()

    def offer(
        self,
        operations: Mapping[str, Operation],
        *,
        drain: Callable[[], Awaitable[None]] | None = None,
        lapse: Callable[[], object] | None = None,
        waking: Callable[[float], object] | None = None,
        busy: Callable[[], object] | None = None,
    ) -> None:
        """Answer what others ask of this server, and call back when it is woken or may have been taken for dead."""
        self._is_busy = busy or self._is_busy
        self._wakings += [waking] if waking is not None else []
        self._operations |= operations
        self._drains += [drain] if drain is not None else []
        self._lapses += [lapse] if lapse is not None else []

    async def in_step(self, work: Callable[[], Awaitable[object]]) -> None:
        """Do it."""
        await work()

    async def answering(self, conversation: str) -> list[str]:
        """Return the other servers that answer a conversation now."""
        return await self._asked(lambda servers: servers.answering(conversation)) or []

    async def answered(self, conversations: Sequence[str]) -> set[str]:
        """Return those of the conversations that other servers answer now."""
        if not conversations:
            return set()
        return await self._asked(lambda servers: servers.answered(conversations)) or set()

    async def writer(self, turn: str) -> str | None:
        """Return the other server that writes a turn now; None for none."""
        return await self._asked(lambda servers: servers.writer(turn))

    async def others(self) -> list[str]:
        """Return the other servers that are there."""
        return await self._asked(lambda servers: servers.others()) or []

    async def wake(self, server: str) -> None:
        """Have a server look at once for what is new."""
        await self._asked(lambda servers: servers.wake(server))

    async def claim_queue(
        self, conversations: Sequence[str], known: Collection[str] | None = None
    ) -> list[QueuedMessage]:
        """Take the messages that wait in conversations and are with no server; return them in order.

        With `known` also those that this server has and does not know, since the answer was lost when it took them.
        """

        async def claimed(servers: "SqlServers") -> list[QueuedMessage]:
            is_any = await servers.has_waiting(conversations)  # hardly ever, and taking them costs a transaction
            return await servers.claim_queue(conversations, known) if is_any else []

        return await self._asked(claimed) or []

    async def waiting(self, conversation: str) -> list[QueuedMessage]:
        """Return the messages that wait in a conversation, with whichever server, in order."""
        return await self._asked(lambda servers: servers.waiting(conversation)) or []

    async def remove(self, conversation: str, ids: Sequence[str] | None) -> list[QueuedMessage]:
        """Delete messages that wait in a conversation and are with no server, of `ids` where given; return them."""
        return await self._asked(lambda servers: servers.remove(conversation, ids)) or []

    async def ask(
        self, server: str, operation: str, given: Mapping[str, Any], seconds: float = ANSWERED_SECONDS
    ) -> Mapping[str, Any] | None:
        """Return what another server answers; None where it does not answer in time."""
        number = await self._asked(lambda servers: servers.ask(server, operation, given))
        if number is None:
            return None
        began, is_taken, answer = time.monotonic(), True, None
        while answer is None and (waited := time.monotonic() - began) < seconds:
            wakes = self._wakes
            is_taken, answer = await self._asked(lambda servers: servers.answer_to(number)) or (False, None)
            if not is_taken and waited > TAKEN_SECONDS:
                break
            if answer is None:
                pause = min(LOOKED_SECONDS, max(SOONEST_SECONDS, waited / 4))
                await self._woken_after(wakes, min(seconds - waited, pause))
        if is_taken:  # another one may still be about to take it
            await self._asked(lambda servers: servers.forget(number))
        return answer if answer != FAILED else None

    async def ask_all(
        self, servers: Sequence[str], operation: str, given: Mapping[str, Any], seconds: float = ANSWERED_SECONDS
    ) -> list[Mapping[str, Any]]:
        """Ask several servers at once, and return what those answer that do."""
        answers = await asyncio.gather(*(self.ask(server, operation, given, seconds) for server in servers))
        return [answer for answer in answers if answer is not None]

    async def ask_any(
        self, servers: Sequence[str], operation: str, given: Mapping[str, Any], seconds: float = ANSWERED_SECONDS
    ) -> Mapping[str, Any]:
        """Ask several servers at once, and return the first answer that tells anything; nothing where none does."""
        asking = [asyncio.create_task(self.ask(server, operation, given, seconds)) for server in servers]
        self._work.update(asking)
        for task in asking:
            task.add_done_callback(self._work.discard)
        for each in asyncio.as_completed(asking):
            if answer := await each:
                return answer
        return {}

    async def agents(self, known: int | None) -> tuple[int, str | None] | None:
        """Return the revision of the agents and their rows as JSON; None where that is known, and where it fails."""
        return await self._asked(lambda servers: servers.agents(known))

    async def save_agents(self, known: int, rows: str) -> bool | None:
        """Put rows in place of those of a revision; tell whether it was the newest, None where that fails.

        All other servers that answer have looked at them when this returns.
        """
        is_saved = await self._asked(lambda servers: servers.save_agents(known, rows))
        if is_saved:
            await self.ask_all(await self.others(), AGENTS, {})
        return is_saved

    @property
    def counts_for(self) -> float:
        """Return for how many seconds more the others count this server as there; 0 where it has not said so."""
        return self._listener.counts_for if self._listener is not None else 0.0

    @property
    def hears(self) -> bool:
        """Tell whether the other servers know of this one, and it hears at once what they ask."""
        return self._listener is not None and self._listener.is_listening

    def when_agents_change(self, look: Callable[[], Awaitable[None]]) -> None:
        """Call this whenever another server has saved agents, and now and then in case that was not heard."""

        async def looked(_: Mapping[str, Any]) -> Mapping[str, Any]:
            await look()
            return {}

        self.offer({AGENTS: looked})
        self._looks.append(look)

    async def hold(
        self, pool: str, capacity: int, tokens: int, rank: int, look: Callable[[float], Awaitable[None]]
    ) -> Lease:
        """Hold tokens of the window of a model; where the database does not tell, beside its own requests alone."""
        self.check_awake()
        return await self._leases.hold(WindowShare(pool, capacity, tokens, rank), look)

    def note_read(self, conversation: str, prompt: ReadPrompt) -> None:
        """Let the others know, a moment later, which model has read the last prompt of a conversation."""
        self._begin(self._asked(lambda servers: servers.note_read(conversation, prompt)))

    async def last_read(self, conversation: str) -> ReadPrompt | None:
        """Return the last prompt of a conversation that any server had read; None where the database is slow."""
        with suppress(TimeoutError):
            async with asyncio.timeout(READ_SECONDS):
                return await self._asked(lambda servers: servers.last_read(conversation)) if conversation else None
        return None

    @asynccontextmanager
    async def alone(self, name: str) -> AsyncIterator[bool]:
        """Hold the lease of this name; where the database fails, nobody is waited for, nor a server that is dead."""
        lease = await self._leases.hold(WindowShare.sole(name), _wait)
        HELD_LEASE.set(lease.number)
        try:
            yield lease.has_waited
        finally:
            HELD_LEASE.set(None)
            lease.release()

    async def aclose(self) -> None:
        """Say that this server ends."""
        if self._ticking is not None:
            self._ticking.cancel()
        if self._draining is not None:
            self._draining.cancel()
            await asyncio.wait([self._draining])
        for task in self._work:
            task.cancel()
        if self._work:
            await asyncio.wait(self._work)
        if self._listener is not None:
            await asyncio.to_thread(self._listener.stop)
            await self._asked(lambda servers: servers.leave())

    async def _drain(self) -> None:
        """Answer what this server is asked, whenever it is woken and a few times a second."""
        while True:
            is_woken = await self._is_woken()
            self._woken.clear()
            self._wakes += 1
            async with self._answered:
                self._answered.notify_all()
            claiming = asyncio.ensure_future(self._asked(lambda servers: servers.claim()))
            if is_woken:
                self._begin(self._leases.look())
            for call in await claiming or []:
                self._begin(self._answer(call))
            # What is asked does not wait for what is only looked after.
            if is_woken or time.monotonic() - self._kept >= DRAINED_SECONDS:
                self._begin(self._keep(is_woken=is_woken))

    async def _is_woken(self) -> bool:
        """Wait until this server is woken, and tell that it was; or until it is to look without."""
        until = time.monotonic() + LOOKED_SECONDS
        while not self._woken.is_set() and (left := until - time.monotonic()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(BUSY_SECONDS, left)):
                    await self._woken.wait()
            if self._is_busy():  # it may have begun to answer meanwhile
                break
        return self._woken.is_set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _keep(self, *, is_woken: bool) -> None:
        """Look after what waits, what others have changed, and what dead servers have left."""
        self._wants_keeping, self._kept = True, time.monotonic()
        async with self._keeping:
            if not self._wants_keeping:
                return
            self._wants_keeping = False
            is_due = time.monotonic() - self._swept >= SWEPT_SECONDS
            for drain in (*self._drains, *(self._looks if is_woken or is_due else ())):
                await drain()
            if is_due:
                await self._sweep()

    async def _answer(self, call: "Call") -> None:
        try:
            answer = await self._operations[call.operation](call.given)
        except Exception:
            log.exception("What another server asks could not be answered: %s", call.operation)
            answer = FAILED
        await self._asked(lambda servers: servers.answer(call, answer))

    async def _sweep(self) -> None:
        self._swept = time.monotonic()
        await self._leases.put_right()
        if await self._asked(lambda servers: servers.has_left()) and (
            left := await self._asked(lambda servers: servers.sweep())
        ):
            log.warning("A server ended without a word: %d of its turns are marked as interrupted.", left)

    async def _woken_after(self, wakes: int, seconds: float) -> None:
        """Wait until this server is woken, unless it was since it had been so often."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._answered:
                await self._answered.wait_for(lambda: self._wakes != wakes)

    def check_awake(self) -> None:
        """Let go all that others may have taken, where this server has stood still until now for so long.

        To be asked before anything is sent or taken; nobody else may have run since it woke.
        """
        before, until, now = self._seen_awake, self._counts_until, passed()
        self._seen_awake, self._counts_until = now, now + self.counts_for
        # By then it may have said again that it is there, in another thread.
        if before < until < now and (stood := now - before) > STOOD_SECONDS:
            log.warning("This server stood still for %.0f seconds; others may have gone on with what it did.", stood)
            for lapse in self._lapses:
                lapse()
            for waking in self._wakings:
                waking(stood)

    def _tick(self) -> None:
        """Look a few times a second whether this server has stood still, before what has come meanwhile is read."""
        self.check_awake()
        self._ticking = asyncio.get_running_loop().call_later(TICK_SECONDS, self._tick)

    def _has_lapsed(self) -> None:
        log.warning("This server could not say that it is there for a while; others may have taken it for dead.")
        for lapse in self._lapses:
            lapse()

    async def _asked(self, question: Callable[["SqlServers"], Awaitable[Answer]]) -> Answer | None:
        """Return what the database says; None where it fails."""
        return await self._store.ask(lambda sql: question(sql.servers))


async def _wait(_: float) -> None:
    """Go on waiting."""
