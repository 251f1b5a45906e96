"""Who may use a model's context now: requests of one loaded model share its window, and too many at once all fail.

One `Admission` for the server, on its event loop. Each request to a model has to be admitted first:

    with running.chat((provider.id, model, chat_id)):            # a chat: from its arrival to its end
        async with admission.admitted(
            (provider.id, model), capacity=window, tokens=prompt + reserve, prompt=prompt,
            priority=Priority.CHAT, on_wait=tell,
        ) as ticket:
            async for events in provider.stream(...):            # and nothing but this one request
                ticket.first_token()
                if not ticket.grow(prompt + generated + ahead):  # where the answer outgrows its reserve
                    break

    await admission.before_task((provider.id, model, chat_id))   # a title, tags: first this, then `admitted` as TASK,
    await admission.giving_way((provider.id, model, chat_id), answer)           # and anew where a chat goes before it

Background work is admitted with `on_preempt=task.cancel` and begins only if `background_may_start`. A request that
holds a ticket must not wait for another one of the same pool: it could wait for itself. What is done for a chat - a
pruning request - has the chat's priority, after or before the chat's own ticket.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple, TypeVar

from elbowroom.agents.admission.pool import DEFAULT_RATE, Clock, Pool, PoolKey, Priority, Ticket
from elbowroom.agents.admission.slots import ModelSlots
from elbowroom.agents.admission.turns import Turns
from elbowroom.agents.running import ChatKey, Running
from elbowroom.context.costs import Engine
from elbowroom.errors import ElbowroomError, TooManyRequests, UpstreamTimeout
from elbowroom.providers.base import ModelInfo, Provider
from elbowroom.store import ALONE, Servers

log = logging.getLogger(__name__)
MAX_WAITING: Final = 1000
QUIET_SECONDS: Final = 0.3
"""A person is not told of a wait that is no longer."""
TASK_PATIENCE: Final = 0.3
"""Seconds: a client asks for a new chat's title up to 130 ms before it sends the chat."""
LONGEST_TASK_WAIT: Final = 120.0
"""Seconds: a chat that takes longer, such as an agent at work for an hour, is no longer waited for."""
MOST_WAYS_GIVEN: Final = 3
"""How often a task begins anew for the sake of chats."""

LOOK_SECONDS: Final = 1.0
"""How often a request that waits is asked whether it had better go to another machine."""

Done = TypeVar("Done")
OnWait = Callable[[Sequence[Priority]], Awaitable[None]]
Leaving = Callable[[float], bool]
"""Takes the seconds that a request has waited, and tells whether it leaves for another machine, which has room."""


class Load(NamedTuple):
    """How many tokens of a model's window are held, and how many requests wait for some."""

    held: int
    waiting: int


class RoomElsewhere(ElbowroomError):
    """A request that waits leaves for another machine; its step is prepared anew for that one."""


class Admission:
    """The pools of all models. At most `max_waiting` requests wait for each; it may be changed at any time.

    Where several `servers` share a store, what all of them hold of a model is counted together.
    """

    def __init__(
        self,
        running: Running | None = None,
        *,
        max_waiting: int = MAX_WAITING,
        clock: Clock | None = None,
        servers: Servers = ALONE,
    ) -> None:
        self.max_waiting = max_waiting
        self.servers = servers
        self._given_clock = clock
        self._pools: dict[PoolKey, Pool] = {}
        self._slots: dict[PoolKey, ModelSlots] = {}
        self._sharing: Counter[PoolKey] = Counter()
        self.turns = Turns()
        self.running = running if running is not None else Running()  # an empty one is false

    @asynccontextmanager
    async def admitted(
        self,
        pool_key: PoolKey,
        *,
        capacity: int,
        tokens: int,
        priority: Priority,
        prompt: int,
        slots: int | None = None,
        on_wait: OnWait | None = None,
        leaves: Leaving | None = None,
        on_preempt: Callable[[], object] | None = None,
    ) -> AsyncIterator[Ticket]:
        """Hold `tokens` of the model's `capacity`, the whole of it at most, as soon as there is room for them.

        No more requests are admitted at once than the engine has `slots`, None where that is not known.

        Requests are admitted by priority, then in the order of arrival; none overtakes another that needs more room.
        `on_wait` is called after a moment of waiting, with the ranks of those before this one, and again whenever half
        of them have gone: none where the engine only reads the prompt of a cancelled request to its end. Raises
        TooManyRequests where too many wait, and RoomElsewhere as soon as it `leaves` for another machine. `on_preempt`
        cancels background work that is in the way, be it that this still waits for other servers.

        Everything is given back at the end. Where the block is left before the ticket's `first_token` by a
        cancellation, or by an error that the upstream does not know of, the tokens stay held until the engine has
        read `prompt`: it does not stop in the middle of one.
        """
        pool = self._pool(pool_key)
        if priority is Priority.CHAT:
            self.running.make_way((*pool_key, ""))
        ticket = pool.ask(capacity, priority, tokens, prompt, slots=slots)
        ticket.on_preempt = on_preempt
        try:
            if ticket.state == "waiting":
                await self._wait(pool_key, pool, ticket, on_wait, leaves)
            await self._share(pool_key, pool, ticket, on_wait, leaves)
            ticket.begins()
            yield ticket
        except BaseException as error:
            self._leave(pool_key, pool, ticket, error)
            raise
        else:
            pool.free(ticket)

    def waiting_for_all(self) -> dict[PoolKey, int]:
        """Return how many requests wait, for each model that has been asked since the server began."""
        return {key: self.waiting(key) for key in self._pools}

    def background_may_start(self, pool_key: PoolKey) -> bool:
        """Tell whether background work is in nobody's way: nobody waits for the model, and no chat holds any of it."""
        return not self.waiting(pool_key) and not self._pool(pool_key).is_busy_with_chats

    async def before_task(self, chat_key: ChatKey) -> None:
        """Wait until the task's chat has not run for a moment, or any chat of the model where the task names none.

        A chat does not run while a client runs its tools. A chat that goes on for minutes is not waited for. Raises
        TooManyRequests where the task would have to wait and too many do.
        """
        until = self._clock.time() + LONGEST_TASK_WAIT
        await self._sleep(TASK_PATIENCE)
        if not self.running.delays(chat_key):
            return
        self._check_queue(chat_key[:2], self.waiting(chat_key[:2]))
        with self.running.task_waiting(chat_key):
            while self.running.delays(chat_key) and (left := until - self._clock.time()) > 0:
                ended = asyncio.ensure_future(self.running.chats_ended(chat_key))
                try:
                    await self._sleep(left, ended)
                finally:
                    ended.cancel()
                await self._sleep(TASK_PATIENCE)

    async def giving_way(
        self, chat_key: ChatKey, work: Callable[[], Awaitable[Done]], *, may_leave: Callable[[], bool] = lambda: True
    ) -> Done:
        """Do a task's work and return its result; cancel it and begin anew where it is in the way of a new chat.

        That happens only while the work `may_leave`, and a few times at most: a task is answered at last. Raises what
        the work and `before_task` raise.
        """
        for _ in range(MOST_WAYS_GIVEN):
            way = asyncio.timeout(None)
            try:
                async with way:
                    with self.running.task_at_work(chat_key, partial(_expire, way, may_leave)):
                        return await work()
            except TimeoutError:
                if not way.expired():
                    raise
            log.debug("A task for %s makes way for a chat.", chat_key[1])
            await self.before_task(chat_key)
        return await work()

    def forget(self, pool_key: PoolKey) -> None:
        """Give back the tokens of cancelled requests: the model was unloaded or loaded anew, and reads nothing."""
        if pool_key in self._pools:
            self._pools[pool_key].forget()

    def held(self, pool_key: PoolKey) -> int:
        """Return how many tokens of the model's context are held."""
        return self._pool(pool_key).held

    def waiting(self, pool_key: PoolKey) -> int:
        """Return how many requests wait for the model, tasks that wait for their chats included."""
        # No pool is made here: a task may name a model that does not exist, and metrics have a line for each pool.
        in_pool = self._pools[pool_key].waiting if pool_key in self._pools else 0
        return in_pool + self._sharing[pool_key] + self.running.waiting_tasks(*pool_key)

    def pool(self, pool_key: PoolKey) -> Pool | None:
        """Return the tokens of a model that has been asked since the server began, None of another."""
        return self._pools.get(pool_key)

    def engine(self, pool_key: PoolKey) -> Engine:
        """Return how fast a model reads and writes, as far as it is known."""
        pool = self._pools.get(pool_key) or Pool(self._clock)
        reading = pool.rate.usual if pool.rate.is_known else DEFAULT_RATE
        return Engine(reading, pool.writing.tokens_per_second)

    def slots(self, provider: Provider, info: ModelInfo) -> ModelSlots | None:
        """Return the slots of a model as it is loaded now, None where it has none that this server may choose.

        Where several servers share a store, none sees which slots the others have given to their prompts.
        """
        if provider.slot_files is None or self.servers.id:
            return None
        key, load = (provider.id, info.id), (provider, info.loaded_context, info.slots)
        if key not in self._slots or self._slots[key].load != load:
            self._slots[key] = ModelSlots(provider, provider.slot_files, info, partial(self.engine, key))
        return self._slots[key]

    def load(self, pool_key: PoolKey) -> Load:
        """Return how busy a model is."""
        pool = self._pools.get(pool_key)
        return Load(pool.held, pool.waiting + self._sharing[pool_key]) if pool is not None else Load(0, 0)

    def close(self) -> None:
        """End all timers."""
        for pool in self._pools.values():
            pool.forget()

    @property
    def _clock(self) -> Clock:
        return self._given_clock or asyncio.get_running_loop()

    def _pool(self, key: PoolKey) -> Pool:
        if key not in self._pools:
            self._pools[key] = Pool(self._clock)
        return self._pools[key]

    def _check_queue(self, key: PoolKey, before: int) -> None:
        if before >= self.max_waiting:
            raise TooManyRequests(key[1], waiting=before, retry_after=self._pool(key).retry_after())

    async def _wait(
        self,
        key: PoolKey,
        pool: Pool,
        ticket: Ticket,
        on_wait: OnWait | None,
        leaves: Leaving | None,
    ) -> None:
        since = self._clock.time()
        self._check_queue(key, self.waiting(key) - 1)
        if ticket.priority is not Priority.BACKGROUND:
            pool.make_room()
        await self._sleep(QUIET_SECONDS, ticket.admitted)
        told: int | None = None
        while ticket.state == "waiting":
            before = pool.ahead(ticket)
            if on_wait is not None and (told is None or len(before) <= told // 2 < told):
                told = len(before)
                await on_wait(before)
            if leaves is not None and leaves(self._clock.time() - since):
                raise RoomElsewhere(f"{key[1]} has room on another machine than {key[0]}.")
            # Counting who is before takes as long as many wait: so those at the end of a long queue look less often.
            await self._sleep(LOOK_SECONDS * (1 if leaves is not None else 1 + len(before) // 32), ticket.admitted)

    async def _share(
        self,
        key: PoolKey,
        pool: Pool,
        ticket: Ticket,
        on_wait: OnWait | None,
        leaves: Leaving | None,
    ) -> None:
        """Hold the ticket's tokens beside what requests of other servers hold of the same model."""
        has_told = False

        async def look(waited: float) -> None:
            nonlocal has_told
            if leaves is not None and leaves(waited):
                raise RoomElsewhere(f"{key[1]} has room on another machine than {key[0]}.")
            if waited > QUIET_SECONDS and on_wait is not None and not has_told:
                has_told = True
                await on_wait(pool.ahead(ticket))

        self._sharing[key] += 1
        try:
            ticket.lease = await self.servers.hold("/".join(key), pool.capacity, ticket.tokens, ticket.priority, look)
        finally:
            self._sharing[key] -= 1

    def _leave(self, key: PoolKey, pool: Pool, ticket: Ticket, error: BaseException) -> None:
        """Give a ticket back after an error. A silent upstream may still be reading the prompt."""
        if isinstance(error, ElbowroomError) and not isinstance(error, UpstreamTimeout):
            pool.free(ticket)
        elif seconds := pool.abandon(ticket):
            log.info("%s may read a cancelled prompt of %d tokens for %.0f s yet.", key[1], ticket.prompt, seconds)

    async def _sleep(self, seconds: float, end: asyncio.Future[None] | None = None) -> None:
        """Wait that long, or until `end` is done."""
        alarm = asyncio.get_running_loop().create_future()
        timer = self._clock.call_at(self._clock.time() + seconds, partial(_ring, alarm))
        try:
            await asyncio.wait([alarm] if end is None else [alarm, end], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()


def _expire(timeout: asyncio.Timeout, may_leave: Callable[[], bool]) -> None:
    """End the block of a timeout that has none yet at the event loop's next turn, if it may be left."""
    if timeout.when() is None and may_leave():
        timeout.reschedule(0)


def _ring(alarm: asyncio.Future[None]) -> None:
    if not alarm.done():
        alarm.set_result(None)
