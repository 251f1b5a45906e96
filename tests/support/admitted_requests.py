"""Requests that hold a place in a model's context for as long as a test wants."""

import asyncio
from collections.abc import Sequence

from manual_clock import ManualClock, settle

from elbowroom.agents.admission import Admission, PoolKey, Priority, Ticket

MODEL: PoolKey = ("lmstudio", "qwen3-8b")
WINDOW = 1000
RUNNING: set[asyncio.Task[None]] = set()  # a loop does not keep its tasks alive, and a test may not need all of them


class Request:
    """A request that is sent when it is admitted, and answered or failed when the test says so."""

    def __init__(
        self,
        admission: Admission,
        tokens: int,
        priority: Priority = Priority.CHAT,
        *,
        prompt: int | None = None,
        window: int = WINDOW,
    ) -> None:
        self.ticket: Ticket | None = None
        self.told: list[int] = []
        self._end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._prompt = tokens if prompt is None else prompt
        self.task = asyncio.create_task(self._run(admission, tokens, priority, window))
        RUNNING.add(self.task)
        self.task.add_done_callback(RUNNING.discard)

    async def _run(self, admission: Admission, tokens: int, priority: Priority, window: int) -> None:
        async with admission.admitted(
            MODEL, capacity=window, tokens=tokens, priority=priority, prompt=self._prompt, on_wait=self._tell
        ) as self.ticket:
            await self._end

    async def _tell(self, before: Sequence[Priority]) -> None:
        self.told.append(len(before))

    @property
    def is_admitted(self) -> bool:
        """Tell whether it has been admitted, at some time."""
        return self.ticket is not None

    @property
    def admitted(self) -> Ticket:
        """Return its ticket."""
        assert self.ticket is not None
        return self.ticket

    async def finish(self) -> None:
        """Let the answer end."""
        self._end.set_result(None)
        await self.task

    async def fail(self, error: BaseException) -> None:
        """Let the answer end by this error, and return when it is through."""
        self._end.set_exception(error)
        await asyncio.wait([self.task])
        assert self.task.exception() is error

    async def cancel(self) -> None:
        """Let the client leave."""
        self.task.cancel()
        await asyncio.wait([self.task])


async def requests(admission: Admission, *sizes: int) -> list[Request]:
    """Return chats of these sizes that arrive one after the other."""
    arrived = []
    for size in sizes:
        arrived.append(Request(admission, size))
        await settle()
    return arrived


def new_admission(max_waiting: int = 32) -> tuple[Admission, ManualClock]:
    """Return an admission with the clock that it goes by."""
    clock = ManualClock()
    return Admission(max_waiting=max_waiting, clock=clock), clock
