"""Where requests of one kind enter a model's context, beside those of all others."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from elbowroom.agents.admission import Admission, Priority, Ticket
from elbowroom.providers.base import ModelInfo, Provider


@dataclass(frozen=True, slots=True)
class Gate:
    """Lets requests in by their `priority`; `give_way` ends background work that is in somebody's way."""

    admission: Admission
    priority: Priority = Priority.CHAT
    give_way: Callable[[], object] | None = None

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
        async with self.admission.admitted(
            (provider.id, info.id),
            capacity=window,
            tokens=tokens,
            prompt=prompt,
            priority=self.priority,
            on_wait=on_wait,
        ) as ticket:
            ticket.on_preempt = self.give_way
            yield ticket
