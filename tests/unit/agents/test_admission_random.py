"""Hundreds of requests of all kinds, cancelled at any moment: the engine's context never overflows, and all end."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest
from admitted_requests import MODEL
from manual_clock import ManualClock, settle

from elbowroom.agents.admission import Admission, Priority, Ticket
from elbowroom.errors import TooManyRequests, UpstreamRejected

WINDOW = 8000
REQUESTS = 200
CHUNK = 40  # tokens
KINDS = [Priority.CHAT, Priority.CHAT, Priority.TASK, Priority.BACKGROUND]


@dataclass(slots=True)
class Engine:
    """Holds prompts and answers of all requests in one context; it reads a prompt to its end, wanted or not.

    `most` is what it has ever held at once, in tokens.
    """

    clock: ManualClock
    rate: float
    in_use: dict[object, int] = field(default_factory=dict)
    most: int = 0
    read_in_vain: int = 0

    def take(self, request: object, tokens: int) -> None:
        """Hold so many tokens for a request."""
        self.in_use[request] = tokens
        self.most = max(self.most, sum(self.in_use.values()))

    async def read(self, request: object, prompt: int) -> None:
        """Read a prompt and say the first word, which a request that is cancelled before does not keep it from."""
        self.take(request, prompt)
        end = self.clock.now + prompt / self.rate
        try:
            await self.clock.sleep(prompt / self.rate + 0.001)
        except asyncio.CancelledError:
            self.read_in_vain += 1
            self.clock.call_at(end, lambda: self.in_use.pop(request))
            raise


class Crowd:
    """Random requests of one model."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = ManualClock()
        self.engine = Engine(self.clock, self.random.choice([210.0, 700.0, 2500.0]))
        self.admission = Admission(max_waiting=self.random.choice([5, REQUESTS]), clock=self.clock)
        self.answered = self.refused = self.cut = 0
        self.tasks = [asyncio.create_task(self._request()) for _ in range(REQUESTS)]

    async def run(self) -> None:
        """Let time pass until every request has ended; now and then one of them is cancelled, at any moment."""
        await settle()
        while not all(task.done() for task in self.tasks):
            for _ in range(self.random.randrange(5)):
                await asyncio.sleep(0)
            if self.random.random() < 0.005:
                self.random.choice(self.tasks).cancel()
            await self.clock.step()
            assert self.admission.held(MODEL) <= WINDOW

    async def _request(self) -> None:
        pace = 2500 / self.engine.rate + 2  # seconds: they come faster than they can be answered
        await self.clock.sleep(self.random.uniform(0, REQUESTS * pace))
        if self.random.random() < 0.3:
            task = asyncio.current_task()
            assert task is not None
            self.clock.call_at(self.clock.now + self.random.uniform(0, 6 * pace), task.cancel)
        priority = self.random.choice(KINDS)
        key = (*MODEL, self.random.choice(["", "1", "2", "3"]))
        try:
            if priority is Priority.TASK:
                await self.admission.before_task(key)
            if priority is Priority.CHAT:
                with self.admission.running.chat(key):
                    await self._ask(priority)
            else:
                await self._ask(priority)
        except (TooManyRequests, UpstreamRejected):
            self.refused += 1

    async def _ask(self, priority: Priority) -> None:
        prompt = self.random.choice([300, 1000, 3000, 6000, 7000, WINDOW])
        reserve = min(500, WINDOW - prompt)
        async with self.admission.admitted(
            MODEL, capacity=WINDOW, tokens=prompt + reserve, priority=priority, prompt=prompt, on_wait=self._tell
        ) as ticket:
            await self._answer(ticket, prompt, reserve)
            self.answered += 1

    async def _tell(self, _before: object) -> None:
        await self.clock.sleep(self.random.choice([0, 0, 1]))

    async def _answer(self, ticket: Ticket, prompt: int, reserve: int) -> None:
        task = asyncio.current_task()
        assert task is not None
        if ticket.priority is Priority.BACKGROUND:
            ticket.on_preempt = task.cancel
        if self.random.random() < 0.05:
            raise UpstreamRejected("It is not taken.", status=400)
        await self.engine.read(ticket, prompt)
        ticket.first_token()
        try:
            for size in range(prompt, prompt + self.random.randrange(2 * reserve + 1), CHUNK):
                if not ticket.grow(size + CHUNK):
                    self.cut += 1
                    return
                self.engine.take(ticket, min(size + CHUNK, WINDOW))
                await self.clock.sleep(0.5)
        finally:
            del self.engine.in_use[ticket]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
async def test_the_context_never_overflows_and_everyone_is_served(seed: int) -> None:
    """What the engine really holds fits its window at every moment; every request ends; all is free afterwards."""
    crowd = Crowd(seed)
    await crowd.run()
    ended = crowd.answered + crowd.refused + sum(task.cancelled() for task in crowd.tasks)
    assert ended == REQUESTS
    assert crowd.answered > REQUESTS // 4
    assert crowd.engine.read_in_vain > 0
    assert WINDOW // 2 < crowd.engine.most <= WINDOW
    await crowd.clock.elapse(600)
    assert crowd.admission.held(MODEL) == crowd.admission.waiting(MODEL) == 0
    assert crowd.clock.appointments == 0
    assert not crowd.engine.in_use
