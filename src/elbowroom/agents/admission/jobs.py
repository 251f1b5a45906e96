"""Work in the background, done for a conversation while its person reads the answer: any chat goes before it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple

from elbowroom.agents.admission.pool import PoolKey, Priority
from elbowroom.context.compaction import Cannot, Compaction
from elbowroom.errors import ElbowroomError

log = logging.getLogger(__name__)
QUIET_SECONDS: Final = 1.0
"""How long nobody may have asked for the model before work begins: clients ask for titles and tags after an answer."""
MOST_TRIES: Final = 5
PATIENCE_SECONDS: Final = 900.0
GOES_ON_WITHIN: Final = 600.0
"""Seconds: a chat that has not brought the results of its tools by then is taken to have been left."""
LONGEST_ORDER: Final = 3600.0
"""Seconds for which a chat is waited for at most while others go on, which may do a part of its work."""

Outcome = Compaction | Cannot


@dataclass(slots=True, eq=False)
class Job:
    """The work after one answer: a compaction, whose `outcome` the next turn may wait for, and warming up the engine.

    `conversation` is the id of the conversation and `owner` whose it is, empty where it has none. `waiting` counts the
    turns that wait: a person may ask for the same answer twice. `usual_pause` is for how many seconds the person
    usually reads an answer, None where that is not known. While the job `is_flushing`, before the compaction, no
    turn waits for it: the next turn of the conversation ends it.
    """

    key: str | PoolKey
    outcome: "asyncio.Future[Outcome | None]"
    conversation: str = ""
    owner: str = ""
    is_compacting: bool = False
    waiting: int = 0
    usual_pause: float | None = None
    is_flushing: bool = False
    task: "asyncio.Task[None] | None" = None
    attempt: "asyncio.Task[None] | None" = None
    _is_in_the_way: bool = False

    def cancel(self) -> None:
        """End the work; turns that wait for the outcome get None."""
        if self.task is not None:
            self.task.cancel()

    def cancel_unless_awaited(self) -> None:
        """Cancel the work, which its conversation no longer needs, unless another turn waits for it."""
        if not self.waiting:
            self.cancel()

    @property
    def priority(self) -> Priority:
        """Return the rank of its requests: that of a chat while a turn waits for it."""
        return Priority.CHAT if self.waiting else Priority.BACKGROUND

    def has_model(self) -> None:
        """Note that one of its requests was admitted: from now on a turn may wait for it."""
        self.is_compacting = not self.is_flushing and not self.outcome.done()
        self._is_in_the_way = False

    async def pause(self, before: Sequence[Priority]) -> None:
        """Note that others have the model: a turn that waits stops waiting, and compacts by itself at its own rank."""
        self.is_compacting = False
        if self.waiting:
            self.cancel()

    def give_way(self) -> None:
        """Leave the model to others and try again later; not while a turn waits for this job."""
        self._is_in_the_way = bool(self.waiting)
        if self.attempt is not None and not self.waiting:
            self.is_compacting = False
            self.attempt.cancel()

    async def awaited(self) -> Outcome | None:
        """Wait for the compaction and return its outcome, None where it was given up.

        A job that has given way to others, or waits for them, is given up: it would go on only when nobody needs the
        model, and the turn that asks here needs it now.
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


class GoingOn(NamedTuple):
    """A chat of an owner with a model that is about to bring results, since it `began`; it was there `last` then."""

    pool: PoolKey
    owner: str
    last: float
    began: float

    def is_there(self, now: float) -> bool:
        """Tell whether it is not taken to have been left."""
        return now - self.last < GOES_ON_WITHIN and now - self.began < LONGEST_ORDER


@dataclass(slots=True)
class Background:
    """The jobs of one server, by the key of their conversation up to the answer after which they began.

    The job that has a model read its last chat again has that model's key.

    `may_start` tells whether background work with a model would be in nobody's way. Of each model's last chat it is
    known how the engine reads it again, and which chats are about to go on with the results of their tools.
    """

    may_start: Callable[[PoolKey], bool]
    quiet_seconds: float = QUIET_SECONDS
    _jobs: dict[str | PoolKey, Job] = field(default_factory=dict)
    _last_prompts: dict[PoolKey, Work] = field(default_factory=dict)
    _going_on: dict[str, GoingOn] = field(default_factory=dict)

    def begin(self, key: str | PoolKey, pool: PoolKey, work: Work, conversation: str = "", owner: str = "") -> Job:
        """Begin `work` once the model is quiet; it is cancelled where others need the model, and tried again later.

        Return its job, whose `outcome` is there at the end of the work at the latest.
        """
        if (before := self._jobs.get(key)) is not None:
            before.cancel()
        job = Job(key, asyncio.get_running_loop().create_future(), conversation, owner)
        self._jobs[key] = job
        job.task = asyncio.create_task(self._run(job, pool, work))
        job.task.add_done_callback(partial(self._ended, job))
        return job

    def compacting(self, owns: Callable[[str], bool]) -> list[str]:
        """Return the ids of the conversations that are being compacted now, of owners for whom `owns` is true."""
        jobs = (job for job in self._jobs.values() if job.is_compacting and job.conversation)
        return [job.conversation for job in jobs if owns(job.owner)]

    def conversations(self) -> frozenset[str]:
        """Return the ids of the conversations whose jobs have not ended, and may yet change how full they are."""
        return frozenset(job.conversation for job in self._jobs.values())

    def claim(self, keys: Iterable[str]) -> Job | None:
        """Return the job that is compacting the conversation with these keys, or None; cancel its other jobs."""
        found = None
        if not (self._jobs or self._going_on):
            return None
        for key in keys:
            self._going_on.pop(key, None)
            if (job := self._jobs.get(key)) is None:
                continue
            if job.is_compacting:
                found = job
            else:
                job.cancel()
        return found

    def goes_on(self, key: str, pool: PoolKey, owner: str, *, of_one_order: bool = False) -> None:
        """Note that a chat of this owner with a model is about to bring results, after the answer with this key.

        While a chat that works off one order goes on, those that have waited since before it began are not left: it may
        do a part of their work.
        """
        now = asyncio.get_running_loop().time()
        self._going_on = {
            each: chat._replace(last=now) if of_one_order and chat[:2] == (pool, owner) else chat
            for each, chat in self._going_on.items()
            if chat.is_there(now)
        }
        self._going_on[key] = GoingOn(pool, owner, now, now)

    def is_at_work(self, pool: PoolKey, owner: str) -> bool:
        """Tell whether a chat of this owner with a model goes on soon, and needs its place in the engine's cache."""
        now = asyncio.get_running_loop().time()
        return any(chat[:2] == (pool, owner) and chat.is_there(now) for chat in self._going_on.values())

    def chat_begins(self, pool: PoolKey) -> None:
        """Forget what the last chat with a model has left to be read again: this one takes its place in the engine."""
        self._last_prompts.pop(pool, None)
        if (job := self._jobs.get(pool)) is not None:
            job.cancel()

    def chat_ended(self, pool: PoolKey, read: Work) -> None:
        """Note how the engine reads the last chat with a model again, where something else takes its cache."""
        self._last_prompts[pool] = read

    def read_again(self, pool: PoolKey) -> None:
        """Have the engine read the last chat with a model again once it is quiet, if there is anything to read."""
        if (read := self._last_prompts.get(pool)) is not None:
            self.begin(pool, pool, read)

    async def end(self, conversation: str) -> None:
        """End the jobs of the conversation with this id, because a person has stopped it."""
        await _cancelled(job for job in self._jobs.values() if job.conversation == conversation)

    async def aclose(self) -> None:
        """End all jobs."""
        await _cancelled(self._jobs.values())

    async def _run(self, job: Job, pool: PoolKey, work: Work) -> None:
        try:
            for _ in range(MOST_TRIES):
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self._quiet(pool)
                if await self._attempted(job, work):
                    break
        except TimeoutError:
            log.info("The background work after an answer of %s is given up: others need the model.", pool[1])

    def _ended(self, job: Job, _: object) -> None:
        """Forget a job that has ended, be it before its task has run at all."""
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
        job.compacted(None)
        job.task = job.attempt = None  # which know the job, and where they were cancelled

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
            is_free = self.may_start(pool)
            if is_free and was_free:
                return
            was_free = is_free
            await asyncio.sleep(self.quiet_seconds)


async def _cancelled(jobs: Iterable[Job]) -> None:
    tasks = [job.task for job in jobs if job.task is not None]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _logged(work: Awaitable[None]) -> None:
    try:
        await work
    except ElbowroomError as error:
        log.info("The background work after an answer was given up: %s", error)
    except Exception:
        log.exception("The background work after an answer failed; the next turn does without it.")
