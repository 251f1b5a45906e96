"""Work for a conversation while its person reads the answer: it keeps out of the way of whoever asks for the model."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from elbowroom.agents.admission.admission import Admission, PoolKey, Priority, Ticket
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.errors import ElbowroomError
from elbowroom.providers.base import ModelInfo, Provider

log = logging.getLogger(__name__)
QUIET_SECONDS: Final = 1.0
"""How long nobody may have asked for the model before work begins: titles and tags are asked for behind an answer."""
MOST_TRIES: Final = 5
PATIENCE_SECONDS: Final = 900.0

Outcome = Compaction | Cannot


@dataclass(slots=True, eq=False)
class Job:
    """The work behind one answer: a compaction, whose `outcome` the next turn may wait for, and what follows it.

    `conversation` is its id, as far as it has one.
    `waiting` is how many turns wait: an answer that is asked for anew waits beside the one before it. While it
    `is_flushing`, before the compaction, nobody waits for it: who goes on with the conversation ends it.
    """

    key: str
    outcome: "asyncio.Future[Outcome | None]"
    conversation: str = ""
    is_compacting: bool = False
    waiting: int = 0
    is_flushing: bool = False
    task: "asyncio.Task[None] | None" = None
    attempt: "asyncio.Task[None] | None" = None
    _is_in_the_way: bool = False

    def cancel(self) -> None:
        """End the work; who waits for the outcome is told that there is none."""
        if self.task is not None:
            self.task.cancel()

    def leave_out(self) -> None:
        """End the work for a conversation that goes on without it, unless another turn waits for it."""
        if not self.waiting:
            self.cancel()

    @property
    def priority(self) -> Priority:
        """Return how its requests rank: as those of the person who waits for it, if one does."""
        return Priority.CHAT if self.waiting else Priority.BACKGROUND

    def has_model(self) -> None:
        """Take note that a request of its is let in: from now on it is worth waiting for."""
        self.is_compacting = not self.is_flushing and not self.outcome.done()
        self._is_in_the_way = False

    async def has_to_wait(self, before: int) -> None:
        """Take note that others have the model: no turn waits for this now, but does the work by itself at its rank."""
        self.is_compacting = False
        if self.waiting:
            self.cancel()

    def give_way(self) -> None:
        """Let somebody else have the model, and try again later; as long as a person waits for this, nobody else."""
        self._is_in_the_way = bool(self.waiting)
        if self.attempt is not None and not self.waiting:
            self.is_compacting = False
            self.attempt.cancel()

    async def awaited(self) -> Outcome | None:
        """Return what the compaction came to, None where it was given up.

        One that has had to give way meanwhile, or to wait for others, is given up: it would go on only when nobody
        needs the model, and now somebody does.
        """
        if not self.is_compacting and not self.outcome.done():
            self.cancel()
            return None
        self.waiting += 1
        try:
            return await asyncio.shield(self.outcome)
        finally:
            self.waiting -= 1
            if self._is_in_the_way and not self.outcome.done():
                self.give_way()

    def compacted(self, outcome: Outcome | None) -> None:
        """Note that the compaction has ended."""
        self.is_compacting = False
        if not self.outcome.done():
            self.outcome.set_result(outcome)


Work = Callable[[Job], Awaitable[None]]


@dataclass(slots=True)
class Background:
    """The jobs of one server, by the key of the conversation with the answer that they began behind."""

    admission: Admission
    quiet_seconds: float = QUIET_SECONDS
    _jobs: dict[str, Job] = field(default_factory=dict)

    def begin(self, key: str, pool: PoolKey, work: Work, conversation: str = "") -> None:
        """Begin `work` once the model is quiet; where somebody needs the model, it is cancelled and tried again."""
        if (before := self._jobs.get(key)) is not None:
            before.cancel()
        job = Job(key, asyncio.get_running_loop().create_future(), conversation)
        self._jobs[key] = job
        job.task = asyncio.create_task(self._run(job, pool, work))

    def taken_up(self, keys: Iterable[str]) -> Job | None:
        """Return the job whose compaction is under way for a conversation that goes on; all else for it is ended."""
        found = None
        for key in keys:
            if (job := self._jobs.get(key)) is None:
                continue
            if job.is_compacting:
                found = job
            else:
                job.cancel()
        return found

    async def end(self, conversation: str) -> None:
        """End what is under way for the conversation with this id, because a person has stopped it."""
        await _ended(job for job in self._jobs.values() if job.conversation == conversation)

    async def aclose(self) -> None:
        """End all jobs."""
        await _ended(self._jobs.values())

    async def _run(self, job: Job, pool: PoolKey, work: Work) -> None:
        try:
            for _ in range(MOST_TRIES):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._quiet(pool)
                if await self._attempted(job, work):
                    break
        except TimeoutError:
            log.info("The background work behind an answer of %s is given up: others need the model.", pool[1])
        finally:
            if self._jobs.get(job.key) is job:
                del self._jobs[job.key]
            job.compacted(None)

    async def _attempted(self, job: Job, work: Work) -> bool:
        """Do the work; return False where it had to give way."""
        job.attempt = asyncio.create_task(_logged(work(job)))
        try:
            await asyncio.wait([job.attempt])
        finally:
            job.is_compacting = False
            job.attempt.cancel()
            await asyncio.wait([job.attempt])
        return not job.attempt.cancelled()

    async def _quiet(self, pool: PoolKey) -> None:
        """Wait until nobody has used the model or waited for it for a moment."""
        was_free = False
        while True:
            is_free = self.admission.background_may_start(pool)
            if is_free and was_free:
                return
            was_free = is_free
            await asyncio.sleep(self.quiet_seconds)


async def _ended(jobs: Iterable[Job]) -> None:
    tasks = [job.task for job in jobs if job.task is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except ElbowroomError as error:
        log.info("The background work behind an answer was given up: %s", error)
    except Exception:
        log.exception("The background work behind an answer failed; the next turn does without it.")


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in by the rank of whom they are made for; for background work that is the `job`'s.

    A job is told when it has the model, when it waits for it, and when it is in somebody's way.
    """

    admission: Admission
    job: Job | None = None

    @asynccontextmanager
    async def entered(
        self,
        provider: Provider,
        info: ModelInfo,
        *,
        window: int,
        prompt: int,
        tokens: int,
        on_wait: Callable[[int], Awaitable[None]] | None = None,
    ) -> AsyncIterator[Ticket | None]:
        """Hold `tokens` of the model's `window` for one request with such a prompt, as soon as there is room for it.

        Where a provider manages the context of its model by itself, nothing is held and nobody waits. Raises
        TooManyRequests.
        """
        if not provider.manages_context:
            yield None
            return
        priority = self.job.priority if self.job else Priority.CHAT
        if self.job is not None and priority is Priority.BACKGROUND:
            on_wait = self.job.has_to_wait
        async with self.admission.admitted(
            (provider.id, info.id),
            capacity=window,
            tokens=tokens,
            prompt=prompt,
            priority=priority,
            on_wait=on_wait,
        ) as ticket:
            if self.job is not None:
                ticket.on_preempt = self.job.give_way
                self.job.has_model()
            yield ticket
