"""Where requests of one kind enter a model's context, beside those of all others."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from elbowroom.agents.admission import Admission, Priority, Ticket
from elbowroom.agents.background import Job
from elbowroom.providers.base import ModelInfo, Provider


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
